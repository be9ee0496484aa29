"""AIPerf's folder with odd files in it: what was measured is kept, and what is amiss is named."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.throughput import Face, X, Y, calls, cells, only, start, suite
from tests.drivers.test_aiperf import gone
from tests.factories import DATA
from tests.llamacpp_server import LlamaCppServer

RECORDS, RAW = "profile_export.jsonl", "profile_export_raw.jsonl"
Run = Any


@pytest.fixture
def run(face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of c4 and c1 whose c1 has these files; gives exit code, cell c1, its folder and what was said."""

    def go(files: dict[str, str], mode: str = "ok", **more: Any) -> tuple[int, dict[str, Any], Path, str]:
        monkeypatch.setenv("FAKE_AIPERF_FILES", json.dumps({"1": files}))
        monkeypatch.setenv("FAKE_AIPERF", json.dumps({"c1": mode}))
        code, out, err = start(face, tmp_path, server, **more)
        kept = cells(out)
        assert kept["c4-r1"]["outcome"] == "ok"
        assert kept["c4-r1"]["drafts"]["steps"] == 190  # as recorded, whatever became of the other
        return code, kept["c1-r1"], Path(out.strip()), err

    return go


def recorded(name: str = RECORDS) -> list[dict[str, Any]]:
    """Of the window, under the name of the first prompt."""
    rows = map(json.loads, (DATA / "aiperf" / "vllm" / name).read_text(encoding="utf-8").splitlines())
    found = [row for row in rows if row["metadata"]["benchmark_phase"] == "profiling"]
    for row in found:
        row["metadata"]["conversation_id"] = "{0}"
    return found


def text(*rows: object) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def edited(row: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**row, "metadata": {**row["metadata"], **metadata}}


def test_a_summary_that_breaks_off_is_a_hole_and_the_rest_is_kept(run: Run) -> None:
    code, cell, _, err = run({"profile_export_aiperf.json": '{"aiperf_version": "0.13.0", "output_token'})
    assert (code, cell["outcome"], cell["native"]) == (5, "AIPerf failed", {})
    assert "1 of 2 cells have no figures (c1-r1 AIPerf failed)" in err


def test_a_metric_that_is_no_number_costs_its_cell_alone(run: Run, face: Face) -> None:
    summary = json.loads((DATA / "aiperf-cells" / "ok" / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    summary["output_token_throughput_per_user"]["avg"] = float("nan")
    code, cell, folder, _ = run({"profile_export_aiperf.json": json.dumps(summary)})
    assert (code, cell["outcome"]) == (5, "AIPerf failed")
    assert cell["detail"] == "no output_token_throughput_per_user; exit code 0"
    assert "NaN" not in (folder / "cells.jsonl").read_text(encoding="utf-8")
    report = only(folder, face)
    assert [(p["concurrency"], p["x"] and p["x"]["mean"]) for p in report["points"]] == [(1, None), (4, X)]
    assert report["remarks"] == [f"c1-r1: AIPerf failed ({cell['detail']})"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (("{broken", *recorded()), "not JSON"),
        (({"metadata": 7}, *recorded()), "no metadata"),
        ((edited(recorded()[0], request_start_ns=None),), "no request_start_ns"),
        ((edited(recorded()[0], turn_index="one"),), "no turn_index"),
    ],
)
def test_records_that_cannot_be_read_leave_the_figures(
    run: Run, face: Face, rows: tuple[object, ...], reason: str
) -> None:
    code, cell, folder, _ = run({RECORDS: text(*rows), RAW: ""})
    assert (code, cell["outcome"], cell["native"]["output_token_throughput"]["avg"]) == (0, "ok", Y)
    assert cell["drafts"] is None
    assert reason in cell["drafts_reason"]
    report = only(folder, face)
    assert report["points"][0]["window_acceptance_length"] is None
    [remark] = report["remarks"]
    assert remark == f"no window AL: {cell['drafts_reason']} (c1-r1)"


def test_a_torn_last_record_costs_itself_alone(run: Run) -> None:
    _, cell, _, _ = run({RECORDS: text(*recorded()).rstrip()[:-9], RAW: ""})
    assert (cell["drafts"]["answers"], cell["drafts_reason"]) == (3, f"{RECORDS}: torn last line set aside")


def test_warm_up_records_count_nowhere(run: Run) -> None:
    rows = [*(edited(row, benchmark_phase="warmup", x_request_id=f"w{i}") for i, row in enumerate(recorded()))]
    _, cell, _, _ = run({RECORDS: text(*rows, recorded()[0]), RAW: ""})
    assert (cell["drafts"]["answers"], cell["drafts"]["steps"]) == (1, 17)


def test_no_record_at_all_is_no_acceptance_length(run: Run, face: Face) -> None:
    _, cell, folder, _ = run({RECORDS: "", RAW: ""})
    assert (cell["outcome"], cell["drafts"]["answers"], cell["drafts"]["drafted"]) == ("ok", 0, None)
    assert only(folder, face)["points"][0]["window_acceptance_length"] is None


def test_failed_and_cancelled_requests_are_no_answers(run: Run) -> None:
    first, second, third, fourth = recorded()
    failed = {**second, "error": {"code": 500, "type": "E", "message": "boom"}}
    _, cell, _, _ = run({RECORDS: text(first, failed, edited(third, was_cancelled=True), fourth), RAW: ""})
    assert (cell["drafts"]["answers"], cell["drafts"]["steps"]) == (2, 17 + 70)


def test_one_request_told_twice_counts_once(run: Run) -> None:
    first, second, *_ = recorded()
    _, cell, _, _ = run({RECORDS: text(first, first, second), RAW: ""})
    assert (cell["drafts"]["answers"], cell["drafts"]["steps"]) == (2, 17 + 36)


def test_one_prompt_asked_twice_is_two_answers_and_one_prompt(run: Run) -> None:
    _, cell, _, _ = run({RECORDS: text(*recorded()), RAW: ""})
    assert (cell["drafts"]["answers"], cell["drafts"]["prompts"]) == (4, 1)
    assert cell["drafts"]["by_category"] == {"even": {"requests": 4, "steps": 190, "accepted": 246}}


@pytest.mark.parametrize("name", ["p%30", "P0", "p0 ", "nobody", None])
def test_a_prompt_that_was_not_sent_is_counted_and_not_guessed(run: Run, face: Face, name: str | None) -> None:
    first, second, *_ = recorded()
    _, cell, folder, _ = run({RECORDS: text(first, edited(second, conversation_id=name)), RAW: ""})
    assert (cell["drafts"]["answers"], cell["drafts"]["unknown_prompts"], cell["drafts"]["steps"]) == (2, 1, 17)
    assert only(folder, face)["remarks"] == ["answers to prompts that were not sent: 1 (c1-r1)"]


def test_counters_of_another_engine_are_not_taken_for_ours(run: Run, face: Face) -> None:
    rows = recorded()
    for row in rows:
        row["spec_decode_acceptance"]["engine"] = "sglang"
    _, cell, folder, _ = run({RECORDS: text(*rows), RAW: ""})
    assert (cell["drafts"]["requests"], cell["drafts"]["steps"], cell["drafts"]["drafted"]) == (0, 0, None)
    assert cell["drafts"]["no_counters"] == {"counters of another engine: sglang": 4}
    report = only(folder, face)
    assert report["points"][0]["window_acceptance_length"] is None
    assert report["remarks"] == ["answers without usable counters: 4 of 4 counters of another engine: sglang (c1-r1)"]


def test_counters_that_contradict_themselves_are_left_out(run: Run) -> None:
    first, second, *_ = recorded()
    first["spec_decode_acceptance"]["num_accepted_draft_tokens"] = 10_000
    _, cell, _, _ = run({RECORDS: text(first, second), RAW: ""})
    assert (cell["drafts"]["requests"], cell["drafts"]["steps"]) == (1, 36)
    assert sum(cell["drafts"]["no_counters"].values()) == 1


def test_scrapes_without_the_counter_leave_the_native_figure(run: Run, face: Face) -> None:
    _, cell, folder, _ = run({"server_metrics_export.jsonl": ""})
    reason = "no reading of the server's counters inside the window"
    assert cell["server_window"] == {
        **dict.fromkeys(("tokens_per_second", "counter", "tokens", "seconds")), "at_end": False, "reason": reason,
    }  # fmt: skip
    assert cell["dropped"] == {"share": 4 / 91, "basis": "requests"}
    assert only(folder, face)["remarks"] == [f"no server Y: {reason} (c1-r1)"]


def test_aiperf_killed_when_all_was_written_is_tried_again_and_no_other_cell(
    run: Run, face: Face, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, cell, folder, _ = run({}, mode="killed late")
    assert (code, cell["outcome"], cell["detail"], cell["native"]) == (5, "killed", "by signal 9", {})
    before = {path: path.read_bytes() for path in (folder / "cells").rglob("*") if path.is_file()}
    first = (folder / "cells.jsonl").read_bytes()
    monkeypatch.setenv("FAKE_AIPERF", "{}")
    assert face("run", "--resume", folder)[0] == 0
    assert [call["level"] for call in calls(seen)] == ["4", "1", "1"]
    assert (folder / "cells.jsonl").read_bytes().startswith(first)
    assert {path: path.read_bytes() for path in before} == before  # AIPerf's folders stay as they were
    assert cells(str(folder))["c1-r1"]["folder"] == "cells/c1-r1.2"
    assert only(folder, face)["marks"] == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
def test_a_run_that_is_killed_takes_aiperf_with_it_and_loses_one_cell(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path
) -> None:
    load = suite(tmp_path / "suite", levels="[4, 1, 2]")
    argv = ("run", load, "--engine", "vllm", "--base-url", server.url, "--drafter", "d", "--out", tmp_path / "runs")
    hangs = {**os.environ, "FAKE_AIPERF": json.dumps({"c1": "hang"})}
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "spec_eval", *map(str, argv)], env=hangs, stdout=said, stderr=said
        )
        while process.poll() is None and len(calls(seen)) < 2:
            time.sleep(0.05)
        process.kill()
        process.wait()
    assert [call["level"] for call in calls(seen)] == ["4", "1"], (tmp_path / "said").read_text(encoding="utf-8")
    assert gone(calls(seen)[1]["pid"])
    [folder] = (tmp_path / "runs").iterdir()
    kept = (folder / "cells.jsonl").read_bytes()
    assert face("report", folder)[0] == 5
    assert face("run", "--resume", folder)[0] == 0
    assert [call["level"] for call in calls(seen)] == ["4", "1", "1", "2"]
    assert (folder / "cells.jsonl").read_bytes().startswith(kept)
    assert {name: cell["folder"] for name, cell in cells(str(folder)).items()} == {
        "c4-r1": "cells/c4-r1",
        "c1-r1": "cells/c1-r1.2",
        "c2-r1": "cells/c2-r1",
    }
