"""The program as a process: signals at any moment, and standard streams that are closed, full or left."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from spec_eval.store import RunFolder
from tests.factories import cell, plan, run_folder
from tests.llamacpp_server import LlamaCppServer, Reply, write_suite

FULL = Path("/dev/full")
# A test runner in the background of a script ignores Ctrl-C, and so would its children.
HEARING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from spec_eval.__main__ import main
main()
"""
PROGRAM = (sys.executable, "-m", "spec_eval")


def program(*argv: str, **how: object) -> "subprocess.CompletedProcess[str]":
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 60, **how}
    return subprocess.run([*PROGRAM, *argv], check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def suite(tmp_path: Path) -> str:
    return str(write_suite(tmp_path / "suite", prompts=2))


def run_against(server: LlamaCppServer, suite: str, tmp_path: Path) -> list[str]:
    return ["run", suite, "--engine", "llamacpp", "--base-url", server.url, "--out", str(tmp_path / "results")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("import spec_eval.cli.output", id="while the program is loaded"),
        pytest.param("import spec_eval.suite", id="while a verb loads what it needs"),
    ],
)
def test_a_signal_before_anything_was_sent_is_one_line(number: int, moment: str, tmp_path: Path) -> None:
    # The module of `moment` sends the signal to its own process while it is imported.
    code = f"""
        import importlib.abc, os, signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)

        class Strike(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name == {moment.split()[1]!r}:
                    sys.meta_path.remove(self)
                    os.kill(os.getpid(), {int(number)})
                return None

        sys.meta_path.insert(0, Strike())
        sys.argv = ["spec-eval", "run", "smoke", "--engine", "embedded", "--dry-run"]
        from spec_eval.__main__ import main
        main()
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (5, "", "spec-eval: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_counters_settle_ends_the_run_in_order(number: int, suite: str, tmp_path: Path) -> None:
    # One step less in each reading after driving: the run waits for it for seconds.
    hidden = frozenset(range(3, 40))
    with LlamaCppServer(hidden_in=hidden) as server:
        argv = [sys.executable, "-c", HEARING, *run_against(server, suite, tmp_path)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            server.until(lambda s: s.finished == 3 and s.scrapes >= 4)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
    (path,) = (tmp_path / "results").iterdir()
    resume = f"spec-eval: interrupted; what was measured is kept, go on with `spec-eval run --resume {path}`"
    assert (process.returncode, out, err.splitlines()[-1]) == (5, f"{path}\n", resume)
    assert "Traceback" not in err
    (end,) = RunFolder(path).session_ends()
    assert (end.reason, end.requests, end.reconciliation.status) == ("interrupted", 2, "differs")
    assert not (path / "manifest.json").exists()
    assert not (path / "run.lock").exists()


@pytest.fixture
def measured(tmp_path: Path) -> str:
    return str(run_folder(tmp_path, plan(cell([("p0", "coding", 1)])), []).path)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("argv", [["report", "RUN"], ["list", "suites"], ["list", "engines"], ["--help"]])
def test_a_standard_output_that_takes_nothing_is_one_line(argv: list[str], measured: str) -> None:
    with FULL.open("wb") as full:
        ended = program(*(measured if word == "RUN" else word for word in argv), stdout=full)
    assert ended.returncode == 4
    assert ended.stderr.startswith("spec-eval: ")
    assert ended.stderr.count("\n") == 1
    assert "No space left on device" in ended.stderr


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full on this system")
def test_a_run_is_kept_whole_though_its_name_cannot_be_written(suite: str, tmp_path: Path) -> None:
    with LlamaCppServer() as server, FULL.open("wb") as full:
        ended = program(*run_against(server, suite, tmp_path), stdout=full)
    (path,) = (tmp_path / "results").iterdir()
    assert ended.returncode == 4
    assert "standard output: cannot be written" in ended.stderr.splitlines()[-1]
    assert {"manifest.json", "report.md"} <= {file.name for file in path.iterdir()}


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full on this system")
def test_a_standard_error_that_takes_nothing_does_not_change_the_exit_code(tmp_path: Path) -> None:
    with FULL.open("wb") as full:
        ended = program("report", str(tmp_path), stderr=full)
    assert (ended.returncode, ended.stdout) == (2, "")


@pytest.mark.parametrize("argv", [["report", "RUN"], ["list", "suites"], ["--help"]])
def test_a_reader_that_left_is_no_failure(argv: list[str], measured: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = program(*(measured if word == "RUN" else word for word in argv), stdout=writing)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_run_goes_on_though_nobody_reads_its_streams(suite: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with LlamaCppServer() as server:
            ended = program(*run_against(server, suite, tmp_path), stdout=writing, stderr=writing)
    finally:
        os.close(writing)
    (path,) = (tmp_path / "results").iterdir()
    assert ended.returncode == 0
    assert {"manifest.json", "report.md"} <= {file.name for file in path.iterdir()}


def test_closed_standard_streams_do_not_stop_a_run(suite: str, tmp_path: Path) -> None:
    with LlamaCppServer(lambda _: Reply(pause=0.001)) as server:
        words = " ".join([*PROGRAM, *run_against(server, suite, tmp_path)])
        ended = subprocess.run(["sh", "-c", f"{words} <&- >&- 2>&-"], timeout=60, check=False)
    (path,) = (tmp_path / "results").iterdir()
    assert ended.returncode == 0
    assert {"manifest.json", "report.md"} <= {file.name for file in path.iterdir()}


def test_a_character_that_the_terminal_does_not_know_stops_nothing(measured: str) -> None:
    ended = program("report", measured, "--partial", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert ended.returncode == 3  # nothing was measured
    assert "\\u2014" in ended.stdout  # a dash
    assert "unexpected" not in ended.stderr
