import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from spec_eval import run as running
from spec_eval.errors import RunNotWhole, SpecEvalError
from spec_eval.records import RequestRecord
from spec_eval.render.progress import Progress
from spec_eval.run import Finished, driving, serving
from spec_eval.store import NotExact, RequestLog, RunFolder
from tests.llamacpp_server import LlamaCppServer, Reply, write_suite
from tests.run.driven import PROBE, for_prompts, names, start


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


def child(server: LlamaCppServer, tmp_path: Path) -> "subprocess.Popen[str]":
    suite = write_suite(tmp_path / "suite", prompts=12)
    argv = [sys.executable, "-m", "spec_eval", "run", str(suite), "--engine", "llamacpp", "--base-url", server.url]
    argv += ["--out", str(tmp_path / "results"), "--k", "4"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)


def stopped(tmp_path: Path, number: int) -> tuple[RunFolder, int, str, str]:
    """A run of 12 questions, ended by a signal while 5 are answered and 2 in flight."""
    patient = {i: Reply(stall_after=4) for i in range(5, 12)}
    with LlamaCppServer(for_prompts(patient)) as server:
        process = child(server, tmp_path)
        try:
            server.until(lambda s: s.finished == 6 and s.in_flight == 2)  # the probe is one of the six
            (path,) = (tmp_path / "results").iterdir()
            server.until(lambda _: len(RunFolder(path).records().records) == 5)
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
            process.wait()
    return RunFolder(path), process.returncode, out, err


def resumed(folder: RunFolder) -> Finished:
    """Gone on with; every missing question is asked once, and not a byte of what was there is lost."""
    log = folder.path / "requests.jsonl"
    before = log.read_bytes()
    with LlamaCppServer() as server:
        finished = running.resume(folder.path, Progress(), base_url=server.url)
        asked = Counter(ask.prompt for ask in server.asks if PROBE not in ask.prompt)
    assert asked == Counter({f"Answer: Question number {i}?": 1 for i in range(5, 12)})
    assert log.read_bytes().startswith(before)
    assert sorted(r.prompt_id for r in folder.records().records if r.status == "ok") == sorted(
        f"p{i}" for i in range(12)
    )
    assert folder.records().doubles == ()
    return finished


def test_sigterm_keeps_what_was_measured_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder, code, out, err = stopped(tmp_path, signal.SIGTERM)
    assert code == 5
    assert out == f"{folder.path}\n"
    last = err.splitlines()[-1]
    assert (
        last == f"spec-eval: interrupted; what was measured is kept, go on with `spec-eval run --resume {folder.path}`"
    )
    assert "Traceback" not in err
    assert "manifest.json" not in names(folder)
    assert "run.lock" not in names(folder)
    assert "report.md" in names(folder)
    (session,) = folder.session_ends()
    assert (session.reason, session.requests, session.aborted) == ("interrupted", 5, 2)
    assert session.reconciliation.status == "differs"
    assert "2 aborted in flight" in str(session.reconciliation.reason)
    finished = resumed(folder)
    assert finished.shortfall is None
    manifest = finished.folder.manifest()
    assert manifest is not None
    assert [s.reason for s in manifest.sessions] == ["interrupted", "finished"]
    assert manifest.reconciliation.status == "differs"


def test_a_killed_run_is_gone_on_with_as_if_nothing_had_been(tmp_path: Path) -> None:
    folder, code, out, _ = stopped(tmp_path, signal.SIGKILL)
    assert (code, out) == (-signal.SIGKILL, "")
    assert "run.lock" in names(folder)
    with (folder.path / "requests.jsonl").open("ab") as log:
        log.write(b'{"schema_version":1,"cell_id":"pair","prompt_id":"p')  # as if killed within a line
    finished = resumed(folder)
    assert finished.shortfall is None
    manifest = finished.folder.manifest()
    assert manifest is not None
    assert (manifest.reconciliation.status, manifest.reconciliation.cause) == ("not available", NotExact.KILLED)
    assert "1 of 2 sessions were killed" in str(manifest.reconciliation.reason)
    assert len(folder.records().set_aside) == 1


def test_an_interruption_before_the_first_answer_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_args: object, **_more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driving, "probe", interrupted)
    with LlamaCppServer() as server:
        finished = start(server, tmp_path)
    assert isinstance(finished.shortfall, SpecEvalError)
    assert finished.shortfall.exit_code == 5
    assert finished.folder.records().records == ()


def test_a_disk_that_fills_up_ends_the_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append, room = RequestLog.append, [2]

    def full(log: RequestLog, record: RequestRecord) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(28, "No space left on device")
        append(log, record)

    monkeypatch.setattr(RequestLog, "append", full)
    with LlamaCppServer() as server:
        finished = start(server, tmp_path)
    assert isinstance(finished.shortfall, RunNotWhole)
    assert "No space left on device" in str(finished.shortfall)
    assert f"--resume {finished.folder.path}" in str(finished.shortfall)
    assert len(finished.folder.records().records) == 2
    (end,) = finished.folder.session_ends()
    assert (end.reason, end.requests) == ("fault", 2)
