import csv
import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval import curves
from spec_eval.curves import Comparison
from spec_eval.render import throughput
from spec_eval.store.windows import Drafts, PrefixCache, Requests, ServerWindow
from tests.windows import Curve, cell, folder

ONE: Curve = {1: [(100.0, 90.0)]}


def compared(tmp_path: Path, drafted: Curve, bare: Curve) -> Comparison:
    [found] = curves.read([folder(tmp_path, "r1", "d", drafted), folder(tmp_path, "r2", "none", bare)])
    return found


def drafts(**changes: Any) -> Drafts:
    made = Drafts(answers=8, requests=8, prompts=8, steps=100, accepted=300, drafted=800, histogram=None)
    return made.model_copy(update=changes)


def test_a_row_says_all_of_a_level_and_a_hole_is_a_dash(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {4: [(80.0, 300.0), (60.0, 330.0)], 8: ["killed", "timed out"]})
    four, eight = curves.read([made])[0].arms[0].points
    # (300 + 330) * 1.1 / 2 = 346.5; 2 of 10 requests dropped in each
    shown = "4 | 70.00 | 315.00 | 346.50 | 20.0% of requests | 16 of 20 | 0 | 4.0000 | 2"
    assert " | ".join(throughput.row(four)) == shown
    hole = ("8", *["—"] * 7, "repeat 1: killed; repeat 2: timed out")
    assert throughput.row(eight) == hole


def test_what_is_not_known_is_a_question_mark_and_no_zero(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {4: ["killed"]})
    window = ServerWindow(tokens_per_second=50.0, counter="llamacpp:tokens_predicted", at_end=True)
    made.append(cell(4, 1, (1.0, 2.0), requests=Requests(), dropped=None, drafts=None, server_window=window))
    [point] = curves.read([made])[0].arms[0].points
    assert throughput.row(point) == ("4", "1.00", "2.00", "50.00*", "—", "? of ?", "?", "—", "1")


def test_a_cell_without_a_figure_says_why(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: ["killed"], 4: ["killed"], 8: ["killed"], 16: ["killed"]})
    silent = ServerWindow(reason="the server shows no vllm:generation_tokens")
    made.append(cell(1, 1, (1.0, 1.0), server_window=silent, drafts=drafts(no_counters={"null": 3}, requests=5)))
    made.append(cell(4, 1, (1.0, 1.0), server_window=silent, drafts=drafts(unknown_prompts=2)))
    made.append(cell(8, 1, (1.0, 1.0), drafts=None, drafts_reason="records.jsonl: line 1: not JSON"))
    made.append(cell(16, 1, "AIPerf failed", detail="no \x1b[31mtokenizer; exit code 1"))
    [arm] = curves.read([made])[0].arms
    assert throughput.remarks(arm) == [
        "c16-r1: AIPerf failed (no  [31mtokenizer; exit code 1)",
        "no server Y: the server shows no vllm:generation_tokens (c1-r1, c4-r1)",
        "answers without usable counters: 3 of 8 null (c1-r1)",
        "answers to prompts that were not sent: 2 (c4-r1)",
        "no window AL: records.jsonl: line 1: not JSON (c8-r1)",
    ]
    text = throughput.markdown(curves.read([made]))
    assert "\n- c16-r1: AIPerf failed (no  [31mtokenizer; exit code 1)\n" in text
    assert json.loads(throughput.document(curves.read([made])))["runs"][0]["remarks"] == throughput.remarks(arm)


def test_counters_that_an_arm_without_a_drafter_lacks_are_no_news(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "none", {1: ["killed"]})
    made.append(cell(1, 1, (1.0, 1.0), drafts=drafts(no_counters={"null": 8}, requests=0, steps=0, accepted=0)))
    [arm] = curves.read([made])[0].arms
    assert (throughput.remarks(arm), arm.points[0].acceptance_length) == ([], None)


def test_a_named_drafter_that_the_server_does_not_know_of_is_told(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", ONE, server={"speculative": False})
    [arm] = curves.read([made])[0].arms
    assert throughput.remarks(arm) == ["drafter d is named, and the server says that it does not draft"]


@pytest.mark.parametrize(
    ("ys", "says"),
    [
        # against 100 at each level
        ({1: 200.0, 4: 150.0, 16: 90.0}, "Y falls below the baseline's from concurrency 16 on"),
        ({1: 99.9, 4: 150.0, 16: 90.0}, "Y falls below the baseline's from concurrency 1 on, but not at 4"),
        ({1: 99.9, 4: 100.0, 16: 120.0}, "Y falls below the baseline's from concurrency 1 on, but not at 4, 16"),
        ({1: 100.0, 4: 150.0, 16: 101.0}, "none measured where Y is below the baseline's"),
        ({2: 10.0}, "no concurrency has figures of both"),
        ({1: None, 4: None}, "no concurrency has figures of both"),
    ],
)
def test_where_drafting_stops_to_pay(tmp_path: Path, ys: dict[int, float | None], says: str) -> None:
    drafted: Curve = {level: [(1.0, y)] if y is not None else ["killed"] for level, y in ys.items()}
    found = compared(tmp_path, drafted, {level: [(1.0, 100.0)] for level in (1, 4, 16)})
    assert throughput.stop_lines(found) == [f"d: {says}"]


def test_the_speed_up_stands_alone_with_its_marks(tmp_path: Path) -> None:
    one = folder(tmp_path, "r1", "d", ONE, synthetic="played", whole=False)
    found = curves.read([one, folder(tmp_path, "r2", "none", {1: [(50.0, 60.0)]})])
    text = throughput.speed_up(found)
    assert "| d | 1 | 1.500 | 2.000 |" in text
    assert "- d: synthetic, incomplete\n" in text
    [row] = csv.DictReader(throughput.gains_csv(found).splitlines())
    assert (row["y_ratio"], row["x_ratio"], row["marks"]) == ("1.5", "2.0", "synthetic; incomplete")


def test_several_runs_without_a_drafter_are_told_in_every_format(tmp_path: Path) -> None:
    found = curves.read([folder(tmp_path, f"r{i}", "none", ONE) for i in (1, 2)])
    says = "Several runs have no drafter (r1, r2); choose one with --baseline RUN."
    assert says in throughput.markdown(found)
    assert says in throughput.speed_up(found)
    [gains] = json.loads(throughput.document(found))["speed_up"]
    assert (gains["baseline"], gains["rows"]) == (None, [])
    single = curves.read([folder(tmp_path, "r3", "none", ONE)])
    assert (throughput.speed_up(single), "baseline" in throughput.markdown(single)) == ("", False)


def test_the_document_keeps_every_digit_and_cells_without_figures(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(100.00424488375263, 337.1873469778463)], 4: ["all failed"]})
    [run] = json.loads(throughput.document(curves.read([made])))["runs"]
    assert run["points"][0]["x"] == {**dict.fromkeys(("mean", "low", "high"), 100.00424488375263), "repeats": 1}
    assert (run["points"][1]["x"], run["points"][1]["window_acceptance_length"]) == (None, None)
    assert [c["concurrency"] for c in run["cells"]] == [1]
    assert [(c["concurrency"], c["outcome"]) for c in run["lost_cells"]] == [(4, "all failed")]


def test_a_line_of_a_finished_cell_steers_no_terminal() -> None:
    assert throughput.cell_line(cell(4, 1, "AIPerf failed", detail="a\x1b[2J\nb")) == "c4-r1: AIPerf failed (a [2J b)"
    line = "c4-r1: 300.00 tok/s, 80.00 tok/s/user, 8 of 10 requests, 20% of requests dropped, window AL 4.000"
    assert throughput.cell_line(cell(4, 1, (80.0, 300.0))) == line


def test_names_that_would_break_a_table_do_not(tmp_path: Path) -> None:
    runs = [folder(tmp_path, "r1", "a|b\nc", ONE), folder(tmp_path, "r2", "none", ONE)]
    text = throughput.markdown(curves.read(runs))
    assert "| a/b c | 1 | 1.000 | 1.000 |" in text
    assert "## HumanEval: a|b c\n" in text


def test_a_warm_prefix_cache_marks_the_figures_and_says_how_warm(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(100.0, 90.0)], 4: ["killed"], 8: ["killed"]})
    warm, cold = PrefixCache(queries=800, hits=300), PrefixCache(queries=800, hits=0)
    made.append(cell(4, 1, (1.0, 2.0), prefix_cache=warm))
    made.append(cell(8, 1, (1.0, 2.0), prefix_cache=cold))
    [arm] = curves.read([made])[0].arms
    assert arm.marks == ["warm cache"]
    said = "prompt tokens found in the prefix cache, so that nothing had to read them: c4-r1 37.5%"
    assert throughput.remarks(arm) == [said]
    assert "37.5% of prompt tokens out of the prefix cache" in throughput.cell_line(arm.cells[1])
    assert "cache" not in throughput.cell_line(arm.cells[2])
