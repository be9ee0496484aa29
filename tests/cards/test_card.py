from pathlib import Path
from textwrap import dedent

import pytest

from spec_eval.cards import Card, NoteCode, check
from spec_eval.cards.checks import Verdict
from spec_eval.errors import UsageError

HEADS = "| Set | AL | Acceptance rate | Pos 1 | Pos 2 |\n|---|---|---|---|---|\n"
GOOD = "| one | 2.30 | 65% | 80% | 50% |\n"


@pytest.fixture
def card(tmp_path: Path) -> "Checker":
    return Checker(tmp_path / "card.md")


class Checker:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, text: str | bytes) -> Card:
        self.path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
        return check(self.path)


def verdicts(card: Card) -> list[tuple[int, str, Verdict]]:
    return [(row.row.line, row.row.name, row.verdict) for table in card.tables for row in table.rows]


def notes(card: Card) -> list[tuple[NoteCode, int, str]]:
    return [(note.code, note.line, note.message) for note in card.notes]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks(card: Checker, end: str, mark: str) -> None:
    text = f"{mark}{HEADS}{GOOD}".replace("\n", end)
    assert verdicts(card(text.encode())) == [(3, "one", Verdict.HOLDS)]


@pytest.mark.parametrize("text", [b"| \xe9 | AL |\n", "| a | AL |".encode("utf-16")])
def test_text_that_is_not_utf8_cannot_be_read(card: Checker, text: bytes) -> None:
    with pytest.raises(UsageError, match="not UTF-8 at byte"):
        card(text)


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        check(tmp_path / "missing.md")
    with pytest.raises(UsageError, match="Is a directory"):
        check(tmp_path)


@pytest.mark.parametrize("text", ["", "words\n", HEADS, "| c | tok/s |\n|---|---|\n| 1 | 100 |\n"])
def test_a_text_without_figures_is_a_card_without_tables(card: Checker, text: str) -> None:
    found = card(text)
    assert (found.tables, found.notes, found.name) == ((), (), "card.md")
    assert "hardware" in found.missing


def test_a_comment_is_passed_over_and_lines_keep_their_numbers(card: Checker) -> None:
    hidden = GOOD.replace("2.30", "2.90")
    found = card(f"<!--\nnum_speculative_tokens 9\n{HEADS}{hidden}-->\n{HEADS}{GOOD}")
    assert verdicts(found) == [(9, "one", Verdict.HOLDS)]
    assert found.settings == ()


def test_a_command_that_drafts_another_number(card: Checker) -> None:
    found = card(f"run '{{\"num_speculative_tokens\": 3}}' here\n\n{HEADS}{GOOD}")
    assert notes(found) == [
        (NoteCode.DRAFT_TOKENS, 1, "num_speculative_tokens 3 means 3 drafts a step, the tables have 2")
    ]
    assert verdicts(found) == [(5, "one", Verdict.HOLDS)]


def test_an_anchor_is_no_draft(card: Checker) -> None:
    assert notes(card(f"--speculative-num-draft-tokens 3\n\n{HEADS}{GOOD}")) == []
    assert notes(card(f"--speculative-num-draft-tokens 2\n\n{HEADS}{GOOD}")) == [
        (NoteCode.DRAFT_TOKENS, 1, "--speculative-num-draft-tokens 2 means 1 drafts a step, the tables have 2")
    ]


def test_a_table_that_no_command_goes_with(card: Checker) -> None:
    found = card(f"num_speculative_tokens 2\n\n{HEADS}{GOOD}\nSet\tAL\tPos 0\tPos 1\tPos 2\na\t2.6\t80\t50\t30\n")
    assert [table.ks for table in found.tables] == [(2,), (3,)]
    assert notes(found) == [(NoteCode.DRAFT_TOKENS, 7, "this table has 3 drafts a step, and no command sets 3")]


def test_a_table_without_positions_has_the_drafts_of_the_others(card: Checker) -> None:
    bins = "\nLength bin\tAL\tAcceptance rate\nshort\t2.60\t80.00%\nlong\t2.20\t{}\n"
    # 1.6 / 2 = 80%, 1.2 / 2 = 60%; 40% would be three drafts.
    assert verdicts(card(HEADS + GOOD + bins.format("60.00%")))[1:] == [
        (6, "short", Verdict.HOLDS),
        (7, "long", Verdict.HOLDS),
    ]
    assert verdicts(card(HEADS + GOOD + bins.format("40.00%")))[2] == (7, "long", Verdict.IMPOSSIBLE)


def test_rows_of_methods_may_each_have_their_own_drafts(card: Checker) -> None:
    # 1.2 / 3 = 40% beside 1.6 / 2 = 80%
    found = card(HEADS + GOOD + "\nMethod\tAL\tAcceptance rate\nours\t2.60\t80.00%\nother\t2.20\t40.00%\n")
    assert verdicts(found)[1:] == [(6, "ours", Verdict.HOLDS), (7, "other", Verdict.HOLDS)]
    assert found.tables[1].ks == (2, 3)


@pytest.mark.parametrize("label", ["Overall", "**Average**", "total", "Macro average", "all"])
def test_a_total_that_is_a_plain_mean(card: Checker, label: str) -> None:
    # (2.30 + 2.50) / 2 = 2.40
    found = card(f"{HEADS}{GOOD}| two | 2.50 | 75% | 90% | 60% |\n| {label} | 2.40 | 70% | 85% | 55% |\n")
    assert [(note.code, note.line) for note in found.notes] == [(NoteCode.TOTAL_IS_MEAN, 5)]
    assert "acceptance length 2.40 is the plain mean of its 2 rows" in found.notes[0].message


def test_a_total_that_weighs_its_rows_is_no_note(card: Checker) -> None:
    found = card(f"{HEADS}{GOOD}| two | 2.50 | 75% | 90% | 60% |\n| Overall | 2.36 | 68% | 83% | 53% |\n")
    assert notes(found) == []
    assert [verdict for *_, verdict in verdicts(found)] == [Verdict.HOLDS] * 3


def test_a_total_outside_of_its_rows(card: Checker) -> None:
    found = card(f"{HEADS}{GOOD}| two | 2.50 | 75% | 90% | 60% |\n| Overall | 2.60 | 80% | 90% | 70% |\n")
    assert [(note.code, note.line) for note in found.notes] == [(NoteCode.TOTAL_OUTSIDE, 5)]


def test_each_of_several_totals_closes_the_rows_above_it(card: Checker) -> None:
    rows = "a\t2.0\nb\t4.0\nMean\t3.0\nc\t5.0\nd\t6.0\nMean\t5.9\n"
    assert [(note.code, note.line) for note in card(f"Set\tAL\n{rows}").notes] == [(NoteCode.TOTAL_IS_MEAN, 4)]


def test_a_set_that_has_all_in_its_name_is_no_total(card: Checker) -> None:
    assert notes(card("Set\tAL\na\t2\nb\t4\nMMLU (all subjects)\t3\n")) == []


def test_cells_that_were_not_read_are_named(card: Checker) -> None:
    found = card(HEADS + GOOD + "| two | 2,30 | 65% | 80% | 50% |\n")
    assert notes(found) == [
        (
            NoteCode.NOT_READ,
            4,
            "two: AL '2,30' was not read: a comma may be a decimal mark or part thousands; print a point",
        )
    ]
    # Rate and positions are checked all the same: 1.3 / 2 = 65%.
    assert verdicts(found)[1] == (4, "two", Verdict.HOLDS)


def test_columns_that_cannot_be_told_apart_are_a_note(card: Checker) -> None:
    found = card("Set\tAL\tAL\tAcceptance rate\tAcceptance rate\na\t2\t3\t50%\t60%\n")
    assert [(note.code, note.line) for note in found.notes] == [(NoteCode.NOT_READ, 1)]
    assert verdicts(found) == [(2, "a", Verdict.UNCHECKED)]


def test_a_drafter_that_varies_is_known_from_its_command(card: Checker) -> None:
    # 1.3 / 2 = 65%: 70% needs steps with one draft.
    row = "| one | 2.30 | 70% | 80% | 50% |\n"
    assert verdicts(card(HEADS + row))[0][2] is Verdict.IMPOSSIBLE
    assert verdicts(card(f'\'{{"method":"ngram"}}\'\n\n{HEADS}{row}'))[0][2] is Verdict.HOLDS


def test_a_whole_card(card: Checker) -> None:
    found = card("""\
        # Drafter of an example

        Acceptance at temperature 0 on one H100.

        ```sh
        serve org/target --speculative-config "{\\"method\\":\\"dflash\\",\\"num_speculative_tokens\\":4}"
        ```

        | Dataset | Acceptance length | Acceptance rate | Pos 1 | Pos 2 | Pos 3 |
        |---|---|---|---|---|---|
        | first | 2.7000 | 56.67% | 80.00% | 55.00% | 35.00% |
        | second | 2.8000 | 60.00% | 80.00% | 55.00% | 35.00% |
        | third | 2.6000 | 53.33% | 70.00% | 40.00% | 50.00% |
        | fourth | 2.7000 | | | | |

        Another author's:

        Category\tAL\tPos 0\tPos 1\tPos 2
        \t2.70\t80.0\t55.0\t35.0
        """)
    assert verdicts(found) == [
        (11, "first", Verdict.HOLDS),
        (12, "second", Verdict.IMPOSSIBLE),
        (13, "third", Verdict.IMPOSSIBLE),
        (14, "fourth", Verdict.UNCHECKED),
        (19, "(no label)", Verdict.HOLDS),
    ]
    second, third = (found.tables[0].rows[i].reasons for i in (1, 2))
    # 1 + 0.80 + 0.55 + 0.35 = 2.70, 1.70 / 3 = 56.667%
    assert second == (
        "1 + the sum of positions is 2.7000 (2.69985 to 2.70015 before rounding), printed is 2.8000",
        "the sum of positions / 3 is 56.667% (56.662% to 56.672% before rounding), printed rate is 60.00%",
    )
    # 1 + 0.70 + 0.40 + 0.50 = 2.60, which is what it says.
    assert third == ("position 3 (50.00%) is above position 2 (40.00%): a step that accepts 3 drafts accepts 2 too",)
    assert notes(found) == [
        (NoteCode.DRAFT_TOKENS, 6, "num_speculative_tokens 4 means 4 drafts a step, the tables have 3")
    ]
    assert found.missing == (
        "draft revision",
        "target revision",
        "engine version",
        "thinking mode",
        "max tokens",
        "prompts per row",
        "pooled or mean",
    )
