from textwrap import dedent

import pytest

from spec_eval.cards.tables import Row, Table, read_tables


def only(text: str) -> Table:
    (table,) = read_tables(dedent(text))
    return table


def digits(row: Row) -> list[str | None]:
    return [p.text if p else None for p in (row.length, row.rate, *row.positions)]


def shares(row: Row) -> list[float | None]:
    return [float(p.value) if p else None for p in (row.rate, *row.positions)]


PIPES = """\
    | Set | AL | Acceptance rate | Pos 1 | Pos 2 |
    |:----|---:|:---------------:|-------|-------|
    | one | 2.30 | 65% | 80% | 50% |
    | two | 2.40 | 70% | 85% | 55% |
    """


def test_a_pipe_table() -> None:
    table = only(PIPES)
    assert (table.line, table.positions, table.label_head) == (1, 2, "Set")
    assert [(row.line, row.label, digits(row)) for row in table.rows] == [
        (3, "one", ["2.30", "65%", "80%", "50%"]),
        (4, "two", ["2.40", "70%", "85%", "55%"]),
    ]
    assert shares(table.rows[0]) == [0.65, 0.8, 0.5]


LINES = dedent(PIPES).splitlines()
BARE = """\
Set | AL | Acceptance rate | Pos 1 | Pos 2
--- | --- | --- | --- | ---
one | 2.30 | 65% | 80% | 50%
two | 2.40 | 70% | 85% | 55%"""


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["```", *LINES, "```"]),
        "\n".join(["~~~markdown", *LINES]),
        "\n".join(f"> {line}" for line in LINES),
        "\n".join(f"    {line}" for line in LINES),
        "\n".join([LINES[0], *LINES[2:]]),
        "\n".join(["Some words right before it:", *LINES, "And behind it."]),
        BARE,
    ],
    ids=["fence", "tildes", "quote", "indented", "no rule", "touching words", "no outer pipes"],
)
def test_the_same_table_in_another_dress(text: str) -> None:
    (table,) = read_tables(text)
    assert [(row.label, digits(row)) for row in table.rows] == [
        ("one", ["2.30", "65%", "80%", "50%"]),
        ("two", ["2.40", "70%", "85%", "55%"]),
    ]


def test_a_tab_table_counted_from_zero_with_bare_percents() -> None:
    table = only("Category\tAL\tPos 0\tPos 1\ncoding\t2.30\t80.0\t50.0\n")
    assert (table.line, table.positions) == (1, 2)
    assert shares(table.rows[0]) == [None, 0.8, 0.5]


def test_fractions_stay_fractions_and_one_odd_cell_does_not_decide() -> None:
    table = only("Set\tAL\tP1\tP2\na\t2.30\t0.80\t0.50\nb\t3.1\t0.90\t1.20\n")
    assert shares(table.rows[1]) == [None, 0.9, 1.2]
    # And the other way round: 0.8 in a table of percents is 0.8%.
    table = only("Set\tAL\tP1\tP2\na\t2.30\t80\t50\nb\t1.1\t9\t0.8\n")
    assert shares(table.rows[1]) == [None, 0.09, 0.008]


def test_an_escaped_pipe_is_no_border_and_bold_is_no_text() -> None:
    table = only("""\
        | Set | **AL** | `Pos 1` | Pos 2 |
        |---|---|---|---|
        | a\\|b | **2.30** | *80%* | 50\\% |
        """)
    assert (table.rows[0].label, digits(table.rows[0])) == ("a|b", ["2.30", None, "80%", "50%"])


def test_columns_in_another_order_and_the_label_last() -> None:
    table = only("Pos 2\tPos 1\ttok/s\tτ\tSet\n50\t80\t123.4\t2.3\tx\n")
    assert (table.rows[0].label, digits(table.rows[0])) == ("x", ["2.3", None, "80", "50"])


def test_an_empty_label_stays_empty() -> None:
    table = only("Set\tAL\tPos 1\tPos 2\n\t2.3\t80\t50\n")
    assert (table.rows[0].label, table.rows[0].name) == ("", "(no label)")
    assert digits(table.rows[0]) == ["2.3", None, "80", "50"]


def test_cells_without_data_and_cells_that_are_not_read() -> None:
    table = only("Set\tAL\tPos 1\tPos 2\tPos 3\na\tNaN\t80,0\t–\n")
    (row,) = table.rows
    assert digits(row) == [None, None, None, None, None]
    assert len(row.unread) == 2
    assert row.unread[0].startswith("AL 'NaN' was not read")
    assert row.unread[1].startswith("Pos 1 '80,0' was not read: a comma")


def test_a_length_in_percent_is_not_read() -> None:
    table = only("Set\tAL\tPos 1\tPos 2\na\t230%\t80\t50\n")
    assert table.rows[0].length is None
    assert table.rows[0].unread == ("AL '230%' was not read: a length is no percentage",)


def test_a_row_with_more_cells_than_heads_is_not_guessed_at() -> None:
    table = only("Set\tAL\tPos 1\tPos 2\na\tb\t2.3\t80\t50\n")
    assert digits(table.rows[0]) == [None, None, None, None]
    assert table.rows[0].unread == ("5 cells under 4 heads: none was read",)


def test_two_lines_of_heads() -> None:
    table = only("""\
        | Set | AL | Acceptance at position | | |
        |---|---|---|---|---|
        | | | 1 | 2 | 3 |
        | x | 2.6 | 80 | 50 | 30 |
        """)
    assert [(row.label, digits(row)) for row in table.rows] == [("x", ["2.6", None, "80", "50", "30"])]


def test_measurements_side_by_side() -> None:
    table = only("""\
        | | T=0 | | T=1 | |
        |---|---|---|---|---|
        | Set | AL | Acceptance rate | AL | Acceptance rate |
        | x | 2.6 | 53% | 2.0 | 33% |
        """)
    assert [(row.label, row.group, digits(row)) for row in table.rows] == [
        ("x", "T=0 AL", ["2.6", "53%"]),
        ("x", "T=1 AL", ["2.0", "33%"]),
    ]


def test_positions_of_two_drafters_side_by_side() -> None:
    table = only("Set\tOne AL\tOne P1\tOne P2\tTwo AL\tTwo P1\tTwo P2\na\t2.3\t80\t50\t2.4\t85\t55\n")
    assert [(row.group, digits(row)) for row in table.rows] == [
        ("One AL", ["2.3", None, "80", "50"]),
        ("Two AL", ["2.4", None, "85", "55"]),
    ]


def test_columns_that_cannot_be_told_apart_are_refused() -> None:
    table = only("Set\tAL\tAL\tAcceptance rate\tAcceptance rate\na\t2\t3\t50%\t60%\n")
    assert table.refused is not None
    assert [(row.label, digits(row)) for row in table.rows] == [("a", [None, None])]


def test_a_table_on_its_side_is_turned() -> None:
    table = only("""\
        | Metric | one | two |
        |---|---|---|
        | Acceptance length | 2.30 | 2.40 |
        | Pos 1 | 80% | 85% |
        | Pos 2 | 50% | 55% |
        """)
    assert [(row.label, digits(row)) for row in table.rows] == [
        ("one", ["2.30", None, "80%", "50%"]),
        ("two", ["2.40", None, "85%", "55%"]),
    ]


def test_tables_in_one_text_keep_their_own_columns() -> None:
    text = """\
        Set\tAL\tPos 0\tPos 1
        a\t2.3\t80\t50

        | Concurrency | tok/s | P50 | P99 |
        |---|---|---|---|
        | 1 | 100.0 | 2.0 | 3.0 |

        | Set | AL | Pos 1 | Pos 2 | Pos 3 |
        |---|---|---|---|---|
        | b | 2.6 | 80% | 50% | 30% |
        | Set | AL | Pos 1 | Pos 2 |
        | c | 2.3 | 80% | 50% |
        """
    assert [(t.line, t.positions, [r.label for r in t.rows]) for t in read_tables(dedent(text))] == [
        (1, 2, ["a"]),
        (8, 3, ["b"]),
        (11, 2, ["c"]),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Acceptance length: 3.1 | rate: 50%",
        "curl http://127.0.0.1:8000/metrics | grep accept",
        "| Metric | Meaning |\n|---|---|\n| Acceptance length | tokens of a step |\n| Acceptance rate | a share |",
        "| Acceptance length | Acceptance rate |\n|---|---|\n| tokens of a step | accepted over drafted |",
        "| Set | Throughput (tokens/s) | Speedup |\n|---|---|---|\n| a | 812.4 | 2.3 |",
    ],
)
def test_what_is_no_table_of_figures(text: str) -> None:
    assert read_tables(text) == []


def test_a_column_of_draft_tokens() -> None:
    table = only("Set\tk\tAL\tAcceptance rate\na\t2\t2.30\t65%\nb\t2.5\t2.30\t65%\n")
    assert [row.drafts for row in table.rows] == [2, None]
