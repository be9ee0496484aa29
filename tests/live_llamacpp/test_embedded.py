"""What the embedded engine must do: agree with its own counters, and leave nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live import Run, run, spec_eval


@pytest.mark.parametrize("concurrency", ["1", "4"])
def test_counters_equal_the_servers_own(concurrency: str, humaneval: list[str], tmp_path: Path) -> None:
    options = ["--limit", "20", "--max-tokens", "96", "--concurrency", concurrency]
    done = run("humaneval", "--engine", "embedded", *options, *humaneval, cwd=tmp_path)
    assert len(done.records) == 20
    assert done.sums() == done.prometheus("llamacpp:")
    assert done.sums()["steps"] > 100
    assert done.manifest["reconciliation"]["status"] == "exact"
    assert all(record["counters"]["exact"] for record in done.records)


def test_a_killed_run_is_resumed_to_the_same_table(tmp_path: Path) -> None:
    options = ["smoke", "--engine", "embedded", "--concurrency", "1", "--limit", "10"]
    whole = run(*options, cwd=tmp_path)
    started = _start(*options, cwd=tmp_path)
    folder = _run_folder(tmp_path, other_than=whole.path)
    _wait_for_lines(folder, 3)
    started.kill()
    started.communicate()
    assert not (folder / "manifest.json").exists()
    done = spec_eval("run", "--resume", str(folder), cwd=tmp_path)
    assert done.stdout.splitlines() == [str(folder)]
    resumed = Run(folder)
    units = [(r["prompt_id"], r["turn"], r["repeat"]) for r in resumed.records]
    assert sorted(units) == sorted({*units})
    assert len(units) == 10
    assert _figures(folder, tmp_path) == _figures(whole.path, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_was_measured(number: signal.Signals, tmp_path: Path) -> None:
    started = _start("smoke", "--engine", "embedded", "--concurrency", "2", cwd=tmp_path)
    folder = _run_folder(tmp_path)
    _wait_for_lines(folder, 2)
    server = _server_pid(started.pid)
    started.send_signal(number)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 5, errors
    assert f"--resume {folder}" in errors
    assert len(Run(folder).records) >= 2
    assert not (folder / "manifest.json").exists()
    _wait_until_gone(server)


def test_the_server_ends_with_a_killed_parent(tmp_path: Path) -> None:
    started = _start("smoke", "--engine", "embedded", cwd=tmp_path)
    folder = _run_folder(tmp_path)
    _wait_for_lines(folder, 1)
    server = _server_pid(started.pid)
    started.kill()
    started.communicate()
    _wait_until_gone(server)


def test_a_server_that_dies_loses_no_record(tmp_path: Path) -> None:
    started = _start("smoke", "--engine", "embedded", "--concurrency", "2", cwd=tmp_path)
    folder = _run_folder(tmp_path)
    _wait_for_lines(folder, 3)
    os.kill(_server_pid(started.pid), signal.SIGKILL)
    _, errors = started.communicate(timeout=120)
    assert started.returncode == 5, errors
    last = errors.strip().splitlines()[-1]
    assert "the server is gone" in last
    assert str(folder) in last
    assert sum(record["status"] == "ok" for record in Run(folder).records) >= 3
    resumed = spec_eval("run", "--resume", str(folder), cwd=tmp_path)
    assert resumed.stdout.splitlines() == [str(folder)]
    report = json.loads(spec_eval("report", str(folder), "--format", "json", cwd=tmp_path).stdout)
    assert report["overall"]["requests"]["ok"] == 24
    assert report["overall"]["requests"]["failed"] == 0


def _start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "spec_eval", "run", *arguments, "--out", str(cwd / "results")]
    return subprocess.Popen(
        argv,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_as_on_a_terminal,  # noqa: PLW1509 # no threads here, and nothing else sets a signal's disposition
    )


def _as_on_a_terminal() -> None:
    """Ctrl-C is ignored by what a script starts in the background, these tests perhaps among it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run_folder(cwd: Path, other_than: Path | None = None) -> Path:
    for _ in range(600):
        found = [path for path in (cwd / "results").glob("*") if path != other_than]
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError("no run folder")


def _wait_for_lines(folder: Path, count: int) -> None:
    path = folder / "requests.jsonl"
    for _ in range(1200):
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.05)
    raise AssertionError("no records")


def _server_pid(parent: int) -> int:
    (child,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(child)


def _wait_until_gone(pid: int) -> None:
    for _ in range(150):
        if not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError(f"process {pid} still runs")


def _figures(folder: Path, cwd: Path) -> object:
    report = json.loads(spec_eval("report", str(folder), "--format", "json", cwd=cwd).stdout)
    for row in (*report["rows"], report["overall"]):
        row.pop("run_id")
    return report["rows"], report["overall"]
