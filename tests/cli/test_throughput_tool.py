"""AIPerf gone or changed in the middle of a run, requests that fail, and faults of our own."""

import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval.drivers import aiperf, aiperf_files
from spec_eval.store.windows import Requests, WindowFolder
from tests.cli.throughput import Face, Y, calls, cells, start
from tests.llamacpp_server import LlamaCppServer


def test_an_aiperf_that_goes_away_ends_the_run_and_is_named(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = aiperf.run

    def run(argv: Any, **more: Any) -> aiperf.Ended:
        ended = real(argv, **more)
        Path(argv[0]).unlink()
        return ended

    monkeypatch.setattr(aiperf, "run", run)
    code, out, err = start(face, tmp_path, server, levels="[4, 1, 2]")
    assert code == 4
    assert "AIPerf is gone; put AIPerf 0.13.0 back, and finished cells are kept" in err
    assert {name: cell["outcome"] for name, cell in cells(out).items()} == {"c4-r1": "ok", "c1-r1": "AIPerf missing"}
    assert WindowFolder(Path(out.strip())).manifest() is None


def test_another_aiperf_is_refused_before_a_resumed_run_measures(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_AIPERF", json.dumps({"c1": "zero"}))
    _, out, _ = start(face, tmp_path, server)
    monkeypatch.setenv("FAKE_AIPERF", "{}")
    monkeypatch.setenv("FAKE_AIPERF_VERSION", "0.14.0")
    code, _, err = face("run", "--resume", out.strip())
    assert (code, len(calls(seen))) == (4, 2)
    assert "AIPerf 0.14.0 (SPEC_EVAL_AIPERF), and its files are read as 0.13 writes them" in err.splitlines()[-1]
    monkeypatch.setenv("FAKE_AIPERF_VERSION", "0.13.2")
    assert face("run", "--resume", out.strip())[0] == 0


def test_failures_above_the_allowance_end_in_5_and_mark_the_figures(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiperf_files, "_requests", lambda _: Requests(dispatched=91, completed=80, failed=7, dropped=4))
    code, out, err = start(face, tmp_path, server, levels="[4]")
    assert code == 5
    assert "requests failed in c4-r1 7, more than --max-failures 5% allows" in err.splitlines()[-1]
    assert "Load: d (failures)" in face("report", out.strip())[1]
    assert start(face, tmp_path, server, "--max-failures", "10%", levels="[4]")[0] == 0


def test_a_fault_in_the_records_loses_no_figure_of_the_cell(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise IndexError("of ours")

    monkeypatch.setattr("spec_eval.importers.aiperf_records.records", fault)
    code, out, _ = start(face, tmp_path, server, levels="[4]")
    cell = cells(out)["c4-r1"]
    assert (code, cell["native"]["output_token_throughput"]["avg"]) == (0, Y)
    assert (cell["drafts"], cell["drafts_reason"]) == (None, "IndexError: of ours")


def test_a_plan_that_was_changed_is_not_gone_on_with(
    face: Face, tmp_path: Path, server: LlamaCppServer, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_AIPERF", json.dumps({"c1": "zero"}))
    _, out, _ = start(face, tmp_path, server)
    path = Path(out.strip()) / "plan.json"
    plan = json.loads(path.read_text(encoding="utf-8"))
    plan["window"]["duration_s"] = 50.0
    path.write_text(json.dumps(plan), encoding="utf-8")
    code, _, err = face("run", "--resume", out.strip())
    assert (code, len(calls(seen))) == (2, 2)
    assert "plan.json has other settings than the run was begun with; start a new run" in err
