import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from spec_eval import tables
from spec_eval.render.csv import render
from tests.factories import answered, cell, failed, from_histogram, plan, run_folder

UNITS = [("y1", "yesno", 1), ("h1", "hard", 1), ("e1", "easy", 1), ("n1", "never", 1)]
RECORDS = (
    answered(from_histogram((0, 0, 0)), prompt_id="y1", category="yesno"),
    answered(from_histogram((6, 0, 0)), prompt_id="h1", category="hard"),
    answered(from_histogram((1, 1, 1)), prompt_id="e1", category="easy"),
)


def lines(where: Path, units: list[tuple[str, str, int]] = UNITS, records: Any = RECORDS, **changes: Any) -> Any:
    text = render([tables.build(run_folder(where, plan(cell(units), **changes), records))])
    assert "\r" not in text
    return list(csv.DictReader(io.StringIO(text)))


def test_one_line_a_row_and_overall_last(tmp_path: Path) -> None:
    got = lines(tmp_path)
    assert [(row["row"], row["dataset"], row["category"]) for row in got] == [
        ("row", "chat", "yesno"),
        ("row", "chat", "hard"),
        ("row", "chat", "easy"),
        ("row", "chat", "never"),
        ("overall", "", ""),
    ]
    assert {row["run_id"] for row in got} == {"20300102-030405-chat"}


def test_figures_have_full_precision_and_gaps_are_empty(tmp_path: Path) -> None:
    # Overall: S = 9, A = 3, D = 18; at least 1: 2, at least 2: 1.
    yesno, hard, easy, never, overall = lines(tmp_path)
    for row in (yesno, never):
        assert (row["acceptance_length"], row["acceptance_rate"], row["position_1"]) == ("", "", "")
    assert float(hard["acceptance_length"]) == 1.0
    assert float(hard["acceptance_rate"]) == 0.0
    assert float(easy["acceptance_length"]) == 2.0
    assert float(overall["acceptance_length"]) == 1 + 3 / 9
    assert float(overall["acceptance_rate"]) == 3 / 18
    assert (float(overall["position_1"]), float(overall["position_2"])) == (2 / 9, 1 / 9)
    assert (overall["acceptance_length_low"], overall["acceptance_length_high"]) == ("", "")
    assert "nan" not in str(overall).lower()


def test_counts_are_written_as_integers_even_beside_gaps(tmp_path: Path) -> None:
    _, hard, _, never, overall = lines(tmp_path)
    assert (overall["steps"], overall["accepted"], overall["planned"], overall["ok"]) == ("9", "3", "4", "3")
    assert (never["k"], never["drafted"]) == ("", "")
    assert (hard["k"], hard["drafted"], overall["k"], overall["drafted"]) == ("2", "12", "2", "18")


def test_nominal_drafts_leave_their_cells_empty(tmp_path: Path) -> None:
    nominal = answered(replace(from_histogram((1, 1, 1)), drafted=None), prompt_id="e1", category="easy")
    _, _, easy, _, overall = lines(tmp_path, records=(nominal,))
    assert (easy["drafted"], easy["acceptance_rate"]) == ("", "")
    assert float(overall["acceptance_length"]) == 2.0


def test_text_from_outside_stays_in_its_cell(tmp_path: Path) -> None:
    name = 'a,"b"\nc;d'
    got = lines(tmp_path, [("a", name, 1)], (failed(prompt_id="a", category=name),), synthetic="x, y")
    assert [row["category"] for row in got] == [name, ""]
    assert {row["synthetic"] for row in got} == {"x, y"}


def test_runs_of_different_k_share_one_header(tmp_path: Path) -> None:
    reports = []
    for name, histogram in (("short", (1, 1)), ("long", (0, 0, 0, 2))):
        record = answered(from_histogram(histogram), prompt_id="a", category="qa")
        reports.append(tables.build(run_folder(tmp_path, plan(cell([("a", "qa", 1)]), run_id=name), [record])))
    got = list(csv.DictReader(io.StringIO(render(reports))))
    assert [row["run_id"] for row in got] == ["short", "short", "long", "long"]
    assert [row["position_3"] for row in got][:2] == ["", ""]
    assert [float(row["position_3"]) for row in got[2:]] == [1.0, 1.0]


def test_every_figure_has_its_interval_beside_it(tmp_path: Path) -> None:
    units = [(f"p{i}", "qa", 1) for i in range(20)]
    flips = [answered(from_histogram((1 - i % 2, i % 2)), prompt_id=f"p{i}", category="qa") for i in range(20)]
    overall = lines(tmp_path, units, flips)[-1]
    for name in ("acceptance_rate", "position_1"):
        # Twenty coin flips: 0.5 ± 0.240086.
        assert float(overall[name]) == 0.5
        assert abs(float(overall[f"{name}_low"]) - 0.259914) < 1e-6
        assert abs(float(overall[f"{name}_high"]) - 0.740086) < 1e-6
