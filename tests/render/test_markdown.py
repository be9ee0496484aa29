import re
from pathlib import Path
from typing import Any

import pytest

from spec_eval import tables
from spec_eval.render.markdown import escape, render
from spec_eval.store import Target
from tests.factories import answered, cell, failed, from_histogram, plan, run_folder

UNITS = [("y1", "yesno", 1), ("h1", "hard", 1), ("e1", "easy", 1)]
RECORDS = (
    answered(from_histogram((0, 0, 0)), prompt_id="y1", category="yesno"),
    answered(from_histogram((6, 0, 0)), prompt_id="h1", category="hard"),
    answered(from_histogram((1, 1, 2)), prompt_id="e1", category="easy"),
)


def report(where: Path, units: list[tuple[str, str, int]] = UNITS, records: Any = RECORDS, **changes: Any) -> str:
    whole = changes.pop("whole", True)
    cells = {key: changes.pop(key) for key in ("title", "notes") if key in changes}
    return render([tables.build(run_folder(where, plan(cell(units, **cells), **changes), records, whole=whole))])


def table(text: str, number: int) -> list[list[str]]:
    """Cells of the table of that number, split at bars that no backslash stands before."""
    blocks = [block for block in text.split("\n\n") if block.startswith("|")]
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in blocks[number].splitlines()]


def cells(text: str, number: int) -> list[list[str]]:
    return [[one.strip() for one in row] for row in table(text, number)]


def test_figures_stand_in_a_table_with_overall_last(tmp_path: Path) -> None:
    # Overall: S = 10, A = 5, D = 20; per request (1 + 2.25) / 2.
    assert cells(report(tmp_path), 0) == [
        ["", "AL", "95% interval", "AL per request", "rate", "steps"],
        [":--", "--:", "--:", "--:", "--:", "--:"],
        ["Chat / yesno", "—", "—", "—", "—", "0"],
        ["Chat / hard", "1.0000", "—", "1.0000", "0.00%", "6"],
        ["Chat / easy", "2.2500", "—", "2.2500", "62.50%", "4"],
        ["overall, pooled", "1.5000", "—", "1.6250", "25.00%", "10"],
    ]


def test_positions_stand_in_their_own_table(tmp_path: Path) -> None:
    assert cells(report(tmp_path), 1) == [
        ["", "pos 1", "pos 2"],
        [":--", "--:", "--:"],
        ["Chat / yesno", "—", "—"],
        ["Chat / hard", "0.00%", "0.00%"],
        ["Chat / easy", "75.00%", "50.00%"],
        ["overall, pooled", "30.00%", "20.00%"],
    ]


def test_requests_are_accounted_for(tmp_path: Path) -> None:
    rows = cells(report(tmp_path, records=(*RECORDS[:2], failed(prompt_id="e1", category="easy"))), 2)
    overall = dict(zip(rows[0], rows[-1], strict=True))
    assert (overall["planned"], overall["sent"], overall["ok"], overall["failed"]) == ("3", "3", "2", "1")
    assert (overall["measured"], overall["zero steps"]) == ("2", "1")


def test_interval_of_few_conversations_is_marked(tmp_path: Path) -> None:
    # Twenty coin flips: 1.5 ± 0.240086.
    units = [(f"p{i}", "qa", 1) for i in range(20)]
    records = [answered(from_histogram((1 - i % 2, i % 2)), prompt_id=f"p{i}", category="qa") for i in range(20)]
    assert cells(report(tmp_path, units, records), 0)[-1][1:3] == ["1.5000", "≈[1.2599, 1.7401]"]


def test_definitions_stand_beside_the_figures(tmp_path: Path) -> None:
    text = report(tmp_path)
    assert "summed first, divided once" in text
    assert "mean over requests" in text


@pytest.mark.parametrize(("changes", "mark"), [({"synthetic": "rates"}, "synthetic"), ({"whole": False}, "incomplete")])
def test_heading_carries_what_nobody_may_miss(tmp_path: Path, changes: dict[str, Any], mark: str) -> None:
    heading, *_ = report(tmp_path, **changes).splitlines()
    assert heading == f"## chat: drafter-a ({mark})"


def test_warnings_carry_code_message_and_remedy(tmp_path: Path) -> None:
    text = report(tmp_path, records=(*RECORDS[:2], failed("timeout", prompt_id="e1", category="easy")))
    assert "- `failures`: 1 of 3 requests failed: 1 timeout; " in text


@pytest.mark.parametrize(
    "text", ["<script>", "[a](http://b)", "a|b", "`code`", "**bold**", "_it_", "~~x~~", "#h", "$x$"]
)
def test_escape_leaves_no_sign_alive(text: str) -> None:
    got = escape(text)
    assert not re.search(r"(?<!\\)[\\`*_{}\[\]<>#|~$]", re.sub(r"\\.", "", got))
    assert re.sub(r"\\(.)", r"\1", got) == text


def test_escape_ends_no_line() -> None:
    assert "\n" not in escape("a\nb\r\nc")
    assert "\r" not in escape("a\nb\r\nc")


OPENED = re.compile(r"(?<!\\)(<img|\[a\]|`c`)")
BAD = "<img src=x onerror=y>|[a](http://b)\n## `c`"


@pytest.mark.parametrize("title", ["Chat", "[v2] Chat", "≈[x]"])
def test_category_from_the_data_can_open_nothing(tmp_path: Path, title: str) -> None:
    record = answered(from_histogram((1, 1)), prompt_id="a", category=BAD)
    text = report(tmp_path, [("a", BAD, 1)], [record], title=title)
    assert not OPENED.search(text)
    for number in range(3):
        assert len({len(row) for row in table(text, number)}) == 1


def test_names_and_reasons_from_outside_can_open_nothing(tmp_path: Path) -> None:
    text = report(
        tmp_path,
        records=[failed(BAD, prompt_id="e1", category="easy")],
        target=Target(engine="llamacpp", model=BAD, drafter=BAD, k=3),
        notes=(BAD,),
        synthetic=BAD,
        overrides={"model": BAD},
    )
    assert not OPENED.search(text)
    assert [line for line in text.splitlines() if line.startswith("#")] == [text.splitlines()[0]]


def test_runs_follow_each_other(tmp_path: Path) -> None:
    of = [plan(cell(UNITS), run_id=name, suite_name=name) for name in ("one", "two")]
    text = render([tables.build(run_folder(tmp_path, one, RECORDS)) for one in of])
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## one: drafter-a", "## two: drafter-a"]


def test_row_of_which_some_is_missing_is_marked_partial(tmp_path: Path) -> None:
    records = (*RECORDS[:2], failed("http 503", prompt_id="e1", category="easy"))
    names = [row[0] for row in cells(report(tmp_path, records=records), 0)[2:]]
    assert [name.endswith("(partial)") for name in names] == [False, False, False, True]
    assert names[2].endswith("easy"), "nothing of it was measured: a dash says so, not a mark"


FLIPS_UNITS = [(f"p{i}", "qa", 1) for i in range(20)]
# Twenty coin flips: the mean is 0.5, and half of its interval 0.240086.
FLIPS = [answered(from_histogram((1 - i % 2, i % 2)), prompt_id=f"p{i}", category="qa") for i in range(20)]


def rows_of(text: str, corner: str) -> dict[str, list[str]]:
    """The rows of the table with that first column, by name."""
    (number,) = [n for n in range(text.count("| :--")) if cells(text, n)[0][0] == corner]
    return {row[0]: row[1:] for row in cells(text, number)[2:]}


def test_means_rate_and_positions_carry_half_of_their_intervals(tmp_path: Path) -> None:
    text = report(tmp_path, FLIPS_UNITS, FLIPS)
    assert cells(text, 0)[-1][3:5] == ["1.5000 ≈±0.2401", "50.00% ≈±24.01"]
    assert cells(text, 1)[-1][1:] == ["50.00% ≈±24.01"]
    assert rows_of(text, "positions per request")["overall, pooled"] == ["50.00% ≈±24.01"]
    assert "half of a 95% interval" in text


def test_delivered_tokens_carry_their_interval_and_what_nobody_received(tmp_path: Path) -> None:
    # S 2, A 7 each: 1 + 2 + 7 tokens were verified, 7 delivered, of which 6 after the first.
    records = [answered(from_histogram((0, 0, 1, 0, 0, 1)), prompt_id=f"p{i}", completion_tokens=7) for i in range(20)]
    text = report(tmp_path, [(f"p{i}", "coding", 1) for i in range(20)], records)
    assert cells(text, 0)[-1][1] == "4.5000"
    (line,) = [line for line in text.splitlines() if line.startswith("- **delivered**")]
    assert "3.0000 ≈±0.0000 completion tokens after the first / verification steps (not AL)" in line
    assert "60 verified tokens lay past the end of an answer (3 a request)" in line


def test_positions_per_request_have_a_table_of_their_own(tmp_path: Path) -> None:
    # Pooled 7 of 12 steps; per request a half of the one, all of the other.
    records = [
        answered(from_histogram((5, 0, 5)), prompt_id="a"),
        answered(from_histogram((0, 0, 2)), prompt_id="b"),
    ]
    text = report(tmp_path, [("a", "coding", 1), ("b", "coding", 1)], records)
    assert cells(text, 1)[-1][1:] == ["58.33%", "58.33%"]
    assert rows_of(text, "positions per request")["overall, pooled"] == ["75.00%", "75.00%"]


def test_mean_of_rows_is_a_named_row_and_not_the_overall_one(tmp_path: Path) -> None:
    # Rows 1 and 2.25; pooled 1.5.
    text = report(tmp_path, UNITS[1:], RECORDS[1:])
    assert [row[:2] for row in cells(text, 0)[-2:]] == [
        ["overall, pooled", "1.5000"],
        ["mean of 2 rows (macro)", "1.6250"],
    ]
    assert cells(text, 0)[-1][2:] == ["—"] * 4


def test_mean_of_repeats_stands_with_its_extremes(tmp_path: Path) -> None:
    # Repeat 0: S 10, A 10; repeat 1: S 2, A 4.
    records = [
        answered(from_histogram((5, 0, 5)), prompt_id="a", repeat=0),
        answered(from_histogram((0, 0, 2)), prompt_id="a", repeat=1),
    ]
    folder = run_folder(tmp_path, plan(cell([("a", "coding", 1)], repeats=2)), records)
    text = render([tables.build(folder)])
    found = [n for n in range(text.count("| :--")) if cells(text, n)[0][0] == "mean of repeats"]
    assert [cells(text, n)[-1][1:] for n in found] == [
        ["2", "2.5000 (2.0000–3.0000)", "2.5000 (2.0000–3.0000)", "75.00% (50.00–100.00)"],
        ["75.00% (50.00–100.00)", "75.00% (50.00–100.00)"],
    ]


def test_single_repeat_has_no_mean_of_repeats(tmp_path: Path) -> None:
    assert "| mean of repeats" not in report(tmp_path)


def test_fewer_drafts_are_told_where_k_is_fixed(tmp_path: Path) -> None:
    # Ten steps, at least 1: 6, at least 2: 3.
    record = answered(from_histogram((4, 3, 2, 1)), prompt_id="a")
    text = report(tmp_path, [("a", "coding", 1)], [record])
    assert rows_of(text, "AL, rate at fewer drafts")["overall, pooled"] == ["1.6000, 60.00%", "1.9000, 45.00%"]
    unknown = answered(from_histogram((4, 3, 2, 1), drafted=24), prompt_id="a")
    assert "| AL, rate" not in report(tmp_path / "varied", [("a", "coding", 1)], [unknown])


def test_rows_carry_the_marks_of_their_run(tmp_path: Path) -> None:
    text = report(tmp_path, synthetic="rates", origin="imported")
    names = [row[0] for number in range(text.count("| :--")) for row in cells(text, number)[2:]]
    assert names
    assert all("synthetic, imported" in name for name in names)


def test_hardware_is_what_the_user_says_or_not_stated(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, plan(cell(UNITS)), RECORDS)
    assert "- **hardware**: not stated" in render([tables.build(folder)])
    assert "- **hardware**: 2 \\<b\\> GPUs" in render([tables.build(folder)], "2 <b> GPUs")


@pytest.mark.parametrize("text", ["see https://a.example", "www.a.example", "mail a@b.example"])
def test_escape_leaves_no_address_for_the_page_to_link(text: str) -> None:
    got = escape(text)
    assert not re.search(r"(?<!\\)(@|://)|www\.", got)
    assert re.sub(r"\\(.)", r"\1", got) == text
