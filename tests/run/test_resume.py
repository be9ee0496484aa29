import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spec_eval import run as running
from spec_eval.errors import RunNotWhole, UsageError
from spec_eval.render.progress import Progress
from spec_eval.run import serving
from spec_eval.store import RunLock
from tests.llamacpp_server import LlamaCppServer, Reply, quick_waits
from tests.run.driven import BROKEN, PROBE, for_prompts, lines, names, ok_units, start


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


def test_a_run_taken_up_again_is_not_whole_before_it_ends(tmp_path: Path) -> None:
    with LlamaCppServer() as server:
        folder = start(server, tmp_path).folder
    derived = [folder.path / name for name in ("manifest.json", "requests.parquet")]
    assert [path.exists() for path in derived] == [True, True]
    folder.start_session("2030-01-02T03:04:05+00:00")
    assert [path.exists() for path in derived] == [False, False]


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
