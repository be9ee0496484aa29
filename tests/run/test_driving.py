import os
from collections import Counter
from pathlib import Path

import pytest

from spec_eval.errors import EnvironmentFault, RunNotWhole
from spec_eval.run import serving
from tests.llamacpp_server import Ask, LlamaCppServer, Reply
from tests.run.driven import BROKEN, for_prompts, lines, names, ok_units, start


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


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
    # Not a word of --resume, which asks for no answer again.
    assert str(finished.shortfall) == (
        f"{finished.folder.path}: coverage 83.3% is below 95%: 5 of 6 answers have usable counters; "
        "the report is written; its warnings say why: mend that and start a new run"
    )


def test_counters_that_contradict_themselves_count_as_not_covered(tmp_path: Path) -> None:
    with LlamaCppServer(for_prompts({4: Reply(steps=((1, 3),))})) as server:
        finished = start(server, tmp_path)
    assert isinstance(finished.shortfall, RunNotWhole)
    assert "coverage 83.3%" in str(finished.shortfall)


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path: Path) -> None:
    with LlamaCppServer(lambda _: Reply(timings=False)) as server, pytest.raises(EnvironmentFault, match="no counters"):
        start(server, tmp_path)
    assert list((tmp_path / "results").iterdir()) == []


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
