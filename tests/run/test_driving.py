import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spec_eval import run as running
from spec_eval.errors import EnvironmentFault, RunNotWhole, SpecEvalError, UsageError
from spec_eval.records import RequestRecord
from spec_eval.render.progress import Progress
from spec_eval.run import Finished, RunOptions, driving, serving
from spec_eval.store import RequestLog, RunFolder, RunLock
from tests.llamacpp_server import Ask, LlamaCppServer, Reply, quick_waits, write_suite

BROKEN = Reply(status=500, plain=b'{"error":{"message":"broken"}}')
PROBE = "Repeat after me"


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


def start(server: LlamaCppServer, tmp_path: Path, **more: Any) -> Finished:
    suite = write_suite(tmp_path / "suite", prompts=more.pop("prompts", 6))
    options: dict[str, Any] = {
        "suite": str(suite),
        "engine": "llamacpp",
        "base_url": server.url,
        "out": tmp_path / "results",
        **more,
    }
    return running.start(RunOptions(**options), Progress())


def for_prompts(rules: dict[int, Reply]) -> Callable[[Ask], Reply]:
    named = {f"Answer: Question number {i}?": reply for i, reply in rules.items()}
    return lambda ask: named.get(ask.prompt, Reply())


def lines(folder: RunFolder) -> list[dict[str, Any]]:
    path = folder.path / "requests.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def ok_units(folder: RunFolder) -> Counter[str]:
    return Counter(row["prompt_id"] for row in lines(folder) if row["status"] == "ok")


def names(folder: RunFolder) -> set[str]:
    return {path.name for path in folder.path.iterdir()}


def test_a_whole_run_leaves_a_folder_with_everything_and_nothing_more(tmp_path: Path) -> None:
    with LlamaCppServer() as server:
        finished = start(server, tmp_path, drafter="eagle", k=4)
    assert finished.shortfall is None
    folder = finished.folder
    assert folder.path.parent == tmp_path / "results"
    assert "pair-llamacpp-eagle" in folder.path.name
    assert names(folder) == {
        "plan.json",
        "requests.jsonl",
        "requests.parquet",
        "sessions.jsonl",
        "metrics-before.prom",
        "metrics-after.prom",
        "manifest.json",
    }
    times = {name: (folder.path / name).stat().st_mtime_ns for name in names(folder)}
    assert min(times, key=lambda name: times[name]) == "plan.json"
    assert max(times, key=lambda name: times[name]) == "manifest.json"
    assert ok_units(folder) == Counter({f"p{i}": 1 for i in range(6)})
    assert folder.plan().run_id == folder.path.name


def test_the_plan_is_there_before_the_first_question_and_each_line_as_its_answer_ends(tmp_path: Path) -> None:
    seen: list[tuple[bool, int, bool]] = []

    def look(ask: Ask) -> Reply:
        folder = next((tmp_path / "results").iterdir())
        log = folder / "requests.jsonl"
        whole_lines = log.read_bytes().count(b"\n") if log.exists() else 0
        seen.append(((folder / "plan.json").exists(), whole_lines, (folder / "manifest.json").exists()))
        return Reply()

    with LlamaCppServer(look) as server:
        start(server, tmp_path, concurrency=(1,))
    assert seen == [(True, n, False) for n in (0, 0, 1, 2, 3, 4, 5)]  # the first is the probe's


def test_the_sums_over_requests_equal_the_servers_counters(tmp_path: Path) -> None:
    replies = {0: Reply(steps=((4, 4), (4, 1))), 1: Reply(steps=((2, 0),)), 2: Reply(steps=((0, 0), (3, 2), (0, 0)))}
    with LlamaCppServer(for_prompts(replies)) as server:
        finished = start(server, tmp_path)
    manifest = finished.folder.manifest()
    assert manifest is not None
    found = manifest.reconciliation
    assert found.status == "exact"
    # p0: S 2 D 8 A 5; p1: 1 2 0; p2: 1 3 2; the other three: 3 11 5 each. The probe's own steps are not in it.
    expected = {"steps": 13, "drafted": 46, "accepted": 22}
    assert found.server is not None
    assert found.requests is not None
    assert {name: found.server[name] for name in expected} == expected
    assert {name: found.requests[name] for name in expected} == expected
    # at least 1: p0 2, p2 1, others 2 each; 2: p0 1, p2 1, others 2; 3: p0 1, others 1; 4: p0 1
    assert found.server["positions"] == [9, 8, 4, 1]


def test_a_step_that_the_server_tells_of_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 30.0)
    naps: list[float] = []
    monkeypatch.setattr("spec_eval.run.driving.time.sleep", naps.append)
    # Two readings that agree before driving, then two that miss the last step and one that has it.
    with LlamaCppServer(hidden_in=frozenset({3, 4})) as server:
        finished = start(server, tmp_path)
        assert server.scrapes == 5
    manifest = finished.folder.manifest()
    assert manifest is not None
    assert manifest.reconciliation.status == "exact"
    assert len(naps) == 3


def test_a_late_step_of_the_probe_is_not_counted_into_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 30.0)
    monkeypatch.setattr("spec_eval.run.driving.time.sleep", lambda _: None)
    with LlamaCppServer(hidden_in=frozenset({1})) as server:
        finished = start(server, tmp_path)
    manifest = finished.folder.manifest()
    assert manifest is not None
    assert manifest.reconciliation.status == "exact"


def test_a_run_taken_up_again_is_not_whole_before_it_ends(tmp_path: Path) -> None:
    with LlamaCppServer() as server:
        folder = start(server, tmp_path).folder
    derived = [folder.path / name for name in ("manifest.json", "requests.parquet")]
    assert [path.exists() for path in derived] == [True, True]
    folder.start_session("2030-01-02T03:04:05+00:00")
    assert [path.exists() for path in derived] == [False, False]


def test_foreign_traffic_shows_as_a_difference_with_its_cause(tmp_path: Path) -> None:
    stranger: Reply = Reply(counted=(*Reply().steps, (4, 4), (4, 2)))
    with LlamaCppServer(for_prompts({3: stranger})) as server:
        finished = start(server, tmp_path)
    assert finished.shortfall is None
    manifest = finished.folder.manifest()
    assert manifest is not None
    assert manifest.reconciliation.status == "differs"
    assert manifest.reconciliation.reason == (
        "the server counted 20 steps and 36 accepted, the requests 18 and 30: likely foreign traffic on the server"
    )


def test_answers_that_failed_half_way_are_the_likely_cause_of_a_difference(tmp_path: Path) -> None:
    with LlamaCppServer(for_prompts({3: Reply(drop_after=6, pause=0.001)})) as server:
        finished = start(server, tmp_path, max_failures=0.5)
    manifest = finished.folder.manifest()
    assert manifest is not None
    assert manifest.reconciliation.status == "differs"
    assert "1 failed half-way" in str(manifest.reconciliation.reason)


def test_without_metrics_the_run_goes_on_and_says_what_it_could_not_check(tmp_path: Path) -> None:
    off = {"/metrics": (404, "text/plain", "metrics endpoint not enabled, start the server with --metrics")}
    with LlamaCppServer(pages=off) as server:
        finished = start(server, tmp_path)
    assert finished.shortfall is None
    manifest = finished.folder.manifest()
    assert manifest is not None
    assert manifest.reconciliation.status == "not available"
    assert "--metrics" in str(manifest.reconciliation.reason)
    assert not [name for name in names(finished.folder) if name.endswith(".prom")]


def test_the_manifest_tells_server_settings_and_sessions(tmp_path: Path) -> None:
    # Slow enough for the event loop to be looked at, every tenth of a second.
    with LlamaCppServer(lambda _: Reply(pause=0.02)) as server:
        finished = start(server, tmp_path, k=4, concurrency=(1, 3))
    manifest = finished.folder.manifest()
    assert manifest is not None
    assert manifest.run_id == finished.folder.path.name
    assert manifest.settings_sha256 == finished.folder.plan().settings_sha256
    assert sorted(manifest.settings) == ["pair-c1", "pair-c3"]
    assert manifest.settings["pair-c3"]["concurrency"] == 3
    assert manifest.engine_version == "b4242-cafe"
    assert {k: manifest.server[k] for k in ("root", "model", "models", "context", "speculative", "total_slots")} == {
        "root": server.root,
        "model": "tiny",
        "models": ["tiny"],
        "context": 512,
        "speculative": True,
        "total_slots": 4,
    }
    assert manifest.outcome == {"planned": 12, "sent": 12, "ok": 12, "failed": 0, "measured": 12}
    (session,) = manifest.sessions
    assert (session.session, session.reason, session.requests, session.aborted) == (1, "finished", 12, 0)
    assert session.loop_lag_p99_ms is not None
    assert str(manifest.started) <= str(session.ended)
    assert manifest.ended == session.ended


def test_the_key_goes_to_the_server_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-99")
    with LlamaCppServer(for_prompts({2: BROKEN})) as server:
        finished = start(server, tmp_path, api_key_env="MY_KEY", max_failures=1.0)
    assert {ask.headers["Authorization"] for ask in server.asks} == {"Bearer sk-secret-99"}
    for path in finished.folder.path.iterdir():
        assert b"sk-secret-99" not in path.read_bytes(), path.name
    assert "sk-secret-99" not in "".join(capfd.readouterr())


def test_failures_above_the_allowance_leave_a_written_run_that_is_not_whole(tmp_path: Path) -> None:
    with LlamaCppServer(for_prompts({1: BROKEN})) as server:
        finished = start(server, tmp_path)
    assert isinstance(finished.shortfall, RunNotWhole)
    assert "1 of 6 requests failed, more than --max-failures 5% allows" in str(finished.shortfall)
    assert f"--resume {finished.folder.path}" in str(finished.shortfall)
    assert "manifest.json" in names(finished.folder)


def test_failures_within_the_allowance_are_a_whole_run(tmp_path: Path) -> None:
    with LlamaCppServer(for_prompts({1: BROKEN})) as server:
        finished = start(server, tmp_path, max_failures=0.17)  # 1 of 6 is 16.7%
    assert finished.shortfall is None


def test_coverage_below_95_percent_is_a_run_that_is_not_whole(tmp_path: Path) -> None:
    with LlamaCppServer(for_prompts({4: Reply(timings=False)})) as server:
        finished = start(server, tmp_path)
    assert isinstance(finished.shortfall, RunNotWhole)
    assert "coverage 83.3% is below 95%: 5 of 6 answers have usable counters" in str(finished.shortfall)


def test_counters_that_contradict_themselves_count_as_not_covered(tmp_path: Path) -> None:
    with LlamaCppServer(for_prompts({4: Reply(steps=((1, 3),))})) as server:
        finished = start(server, tmp_path)
    assert isinstance(finished.shortfall, RunNotWhole)
    assert "coverage 83.3%" in str(finished.shortfall)


def test_a_server_that_dies_half_way_leaves_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_waits(monkeypatch)
    with LlamaCppServer(die_after=5) as server:
        finished = start(server, tmp_path, prompts=30, concurrency=(1,))
    folder = finished.folder
    assert isinstance(finished.shortfall, RunNotWhole)
    assert "the server is gone" in str(finished.shortfall)
    assert f"--resume {folder.path}" in str(finished.shortfall)
    assert ok_units(folder) == Counter({f"p{i}": 1 for i in range(4)})  # five answers, one of them the probe's
    assert "manifest.json" not in names(folder)
    (session,) = folder.session_ends()
    assert session.reason == "server gone"
    with LlamaCppServer() as server:
        again = running.resume(folder.path, Progress(), base_url=server.url)
    assert again.shortfall is None
    assert ok_units(folder) == Counter({f"p{i}": 1 for i in range(30)})
    assert {"metrics-before.prom", "metrics-before.2.prom", "metrics-after.2.prom"} <= names(folder)


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path: Path) -> None:
    with LlamaCppServer(lambda _: Reply(timings=False)) as server, pytest.raises(EnvironmentFault, match="no counters"):
        start(server, tmp_path)
    assert list((tmp_path / "results").iterdir()) == []


def test_failed_and_missing_units_are_asked_again_and_no_other(tmp_path: Path) -> None:
    with LlamaCppServer(for_prompts({1: BROKEN, 4: Reply(drop_after=5)})) as server:
        first = start(server, tmp_path)
    assert first.shortfall is not None
    with LlamaCppServer() as server:
        again = running.resume(first.folder.path, Progress(), base_url=server.url)
        asked = Counter(ask.prompt for ask in server.asks if PROBE not in ask.prompt)
    assert again.shortfall is None
    assert asked == Counter({"Answer: Question number 1?": 1, "Answer: Question number 4?": 1})
    manifest = again.folder.manifest()
    assert manifest is not None
    assert manifest.outcome == {"planned": 6, "sent": 6, "ok": 6, "failed": 0, "measured": 6}
    assert [s.session for s in manifest.sessions] == [1, 2]


def test_a_whole_run_is_not_driven_again(tmp_path: Path) -> None:
    with LlamaCppServer() as server:
        first = start(server, tmp_path)
        asked = len(server.asks)
        again = running.resume(first.folder.path, Progress())
        assert len(server.asks) == asked
    assert again.shortfall is None
    assert len(lines(first.folder)) == 6


def test_a_stale_lock_is_taken_over_and_a_held_one_refused(tmp_path: Path) -> None:
    with LlamaCppServer() as server:
        folder = start(server, tmp_path).folder
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait(30)
        (folder.path / "run.lock").write_text(json.dumps({"host": socket.gethostname(), "pid": gone.pid}))
        assert running.resume(folder.path, Progress()).shortfall is None
        assert "run.lock" not in names(folder)
        with RunLock(folder.path), pytest.raises(UsageError, match=f"held by process {os.getpid()}"):
            running.resume(folder.path, Progress())
        (folder.path / "run.lock").write_text(json.dumps({"host": "another-machine", "pid": gone.pid}))
        with pytest.raises(UsageError, match="another-machine"):
            running.resume(folder.path, Progress())
        assert "run.lock" in names(folder)


@pytest.mark.parametrize(
    ("place", "value"), [(("seed",), 12), (("cells", 0, "sampling", "temperature"), 0.9), (("target", "k"), 7)]
)
def test_a_plan_whose_settings_were_changed_is_not_gone_on_with(
    tmp_path: Path, place: tuple[Any, ...], value: object
) -> None:
    with LlamaCppServer(for_prompts({1: BROKEN})) as server:
        folder = start(server, tmp_path).folder
        path = folder.path / "plan.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        inner = content
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        path.write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(UsageError, match="settings"):
            running.resume(folder.path, Progress())
    assert len(lines(folder)) == 6


def test_resume_needs_a_run_that_was_measured_here(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no run folder \(no plan\.json in it\)"):
        running.resume(tmp_path, Progress())
    with LlamaCppServer() as server:
        folder = start(server, tmp_path).folder
    folder.write_plan(folder.plan().model_copy(update={"origin": "imported"}))
    with pytest.raises(UsageError, match="imported"):
        running.resume(folder.path, Progress())


def test_resume_at_an_address_is_refused_where_the_server_is_ours(tmp_path: Path) -> None:
    with LlamaCppServer() as server:
        folder = start(server, tmp_path).folder
    target = folder.plan().target.model_copy(update={"base_url": None, "recipe": {}})
    folder.write_plan(folder.plan().model_copy(update={"target": target}))
    with pytest.raises(UsageError, match="drop --base-url"):
        running.resume(folder.path, Progress(), base_url="http://127.0.0.1:1/v1")


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
    assert manifest.reconciliation.status == "not available"
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


@pytest.mark.parametrize(
    "odd",
    [
        Reply(stream=b'data: {"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n"),
        Reply(plain=b"[" * 100_000 + b"]" * 100_000),
        Reply(status=400, plain=b'{"error": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        Reply(stream=b'data: {"choices":[],"timings":' + b'{"a":' * 190 + b"1" + b"}" * 191 + b"\n\n"),
    ],
    ids=["events", "body", "error", "deep but readable, and cut"],
)
def test_an_answer_nested_too_deeply_is_one_failure_and_loses_nothing(tmp_path: Path, odd: Reply) -> None:
    with LlamaCppServer(for_prompts({2: odd})) as server:
        finished = start(server, tmp_path, max_failures=0.5)
    assert finished.shortfall is None
    assert [row["prompt_id"] for row in lines(finished.folder) if row["status"] == "failed"] == ["p2"]
    assert ok_units(finished.folder) == Counter({f"p{i}": 1 for i in (0, 1, 3, 4, 5)})


def test_a_run_may_lie_under_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        odd.mkdir()
    except OSError:
        pytest.skip("this file system has no such names")
    with LlamaCppServer() as server:
        finished = start(server, odd)
    assert finished.shortfall is None
    assert {"manifest.json", "requests.parquet"} <= names(finished.folder)
