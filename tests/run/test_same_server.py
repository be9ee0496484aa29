"""A run that is taken up again against a server: the same one goes on, another model or k does not."""

import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval import run as running
from spec_eval.engines.base import Identity
from spec_eval.engines.endpoint import Endpoint
from spec_eval.errors import EnvironmentFault
from spec_eval.probe import Probe
from spec_eval.render.progress import Progress
from spec_eval.run import RunOptions, same_server, serving
from spec_eval.store import RunFolder
from tests.llamacpp_server import LlamaCppServer, Reply, write_suite

BROKEN = Reply(status=500, plain=b'{"error":{"message":"broken"}}')
NEWER = {
    "/props": (200, "application/json", json.dumps({"build_info": "b5000-beef", "chat_template": "{{ messages }}"}))
}


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


def unfinished(tmp_path: Path) -> RunFolder:
    suite = write_suite(tmp_path / "suite", prompts=4)
    with LlamaCppServer(lambda ask: BROKEN if ask.number == 2 else Reply()) as server:
        options = RunOptions(suite=str(suite), engine="llamacpp", base_url=server.url, out=tmp_path / "results")
        return running.start(options, Progress()).folder


def session_lines(folder: RunFolder) -> list[dict[str, Any]]:
    text = (folder.path / "sessions.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_another_model_is_refused_though_none_was_asked_for(tmp_path: Path) -> None:
    folder = unfinished(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    with LlamaCppServer(models=("other",)) as server:
        with pytest.raises(EnvironmentFault, match="measured with model tiny, this server has model other"):
            running.resume(folder.path, Progress(), base_url=server.url)
        assert len(server.asks) == 1  # the probe's
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before


def test_the_same_server_goes_on_without_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = unfinished(tmp_path)
    capsys.readouterr()
    with LlamaCppServer() as server:
        assert running.resume(folder.path, Progress(), base_url=server.url).shortfall is None
    assert "warning" not in capsys.readouterr().err
    starts = [line for line in session_lines(folder) if line["event"] == "start"]
    assert [line["server"]["model"] for line in starts] == ["tiny", "tiny"]
    assert [line["server"]["engine_version"] for line in starts] == ["b4242-cafe", "b4242-cafe"]


def test_another_version_goes_on_with_a_warning_that_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = unfinished(tmp_path)
    with LlamaCppServer(pages=NEWER) as server:
        assert running.resume(folder.path, Progress(), base_url=server.url).shortfall is None
    change = "engine version b4242-cafe, now b5000-beef"
    assert f"warning: the server is another than in the run's first session: {change}\n" in capsys.readouterr().err
    assert [line.get("server_changes") for line in session_lines(folder)] == [[], [], [change], [change]]
    manifest = folder.manifest()
    assert manifest is not None
    assert [end.server_changes for end in manifest.sessions] == [(), (change,)]


def test_a_run_whose_first_session_kept_nothing_is_gone_on_with(tmp_path: Path) -> None:
    folder = unfinished(tmp_path)
    lines = session_lines(folder)
    del lines[0]["server"]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder.path / "sessions.jsonl").write_text(text, encoding="utf-8")
    with LlamaCppServer(models=("other",)) as server:
        assert running.resume(folder.path, Progress(), base_url=server.url).shortfall is None


def facts(**changes: Any) -> dict[str, Any]:
    identity = Identity(models=("m",), version=changes.get("version"), prefix_caching=changes.get("caching"))
    probe = Probe(identity, changes.get("model", "m"), changes.get("k"), changes.get("told_k"))
    return same_server.facts(serving.Server(Endpoint("http://127.0.0.1:1"), None), probe)


def test_another_k_is_refused_where_both_are_known() -> None:
    with pytest.raises(EnvironmentFault, match="run: was measured with k 3, this server has k 7; start the first"):
        same_server.changes(facts(told_k=3), facts(told_k=7), "run")
    assert same_server.changes(facts(told_k=3), facts(), "run") == ()
    assert same_server.changes(facts(), facts(told_k=7), "run") == ()
    assert same_server.changes(facts(k=7), facts(told_k=7), "run") == ()


def test_a_prefix_cache_switched_on_is_named() -> None:
    assert same_server.changes(facts(caching=False), facts(caching=True), "run") == ("prefix caching False, now True",)
    assert same_server.changes(facts(), facts(caching=True), "run") == ()
