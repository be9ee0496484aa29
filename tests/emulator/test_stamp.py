"""A run against the emulator is synthetic by itself, in every file and at every moment."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from spec_eval import cli, tables
from spec_eval import run as running
from spec_eval.engines.endpoint import STAMP, Endpoint
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.render import markdown
from spec_eval.render.progress import Progress
from spec_eval.run import Finished, RunOptions, driving, serving
from spec_eval.store import RunFolder
from tests.emulator.server import HUMANEVAL, EmulatorServer, settings
from tests.llamacpp_server import LlamaCppServer, Reply, quick_waits, write_suite

WHY = f"an emulator of vllm played {HUMANEVAL} from a deck, seed 0; no model ran"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)
    quick_waits(monkeypatch)


def options(url: str, tmp_path: Path, **more: Any) -> RunOptions:
    suite = write_suite(tmp_path / "suite", prompts=4, concurrency=1)
    chosen = {"suite": str(suite), "engine": "vllm", "base_url": url, "out": tmp_path / "results", **more}
    return RunOptions(**chosen)


def start(url: str, tmp_path: Path, **more: Any) -> Finished:
    return running.start(options(url, tmp_path, **more), Progress())


@pytest.mark.parametrize("like", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/models", None),
        ("/health", None),
        ("/nowhere", None),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "stream": True}),
        ("/v1/chat/completions", {"messages": []}),
    ],
)
def test_every_answer_carries_the_stamp(like: str, path: str, body: dict[str, Any] | None) -> None:
    with EmulatorServer(like=like) as server:
        data = None if body is None else json.dumps(body).encode()
        opener = urllib.request.build_opener(_Whatever())
        with opener.open(urllib.request.Request(server.root + path, data), timeout=10) as answer:
            assert answer.headers[STAMP] == WHY.replace("of vllm", f"of {like}")


class _Whatever(urllib.request.HTTPErrorProcessor):
    def http_response(self, request: Any, response: Any) -> Any:
        return response


def test_bodies_say_so_too() -> None:
    with EmulatorServer() as server:
        endpoint = Endpoint.at(server.url)
        assert endpoint.get_json("/version") == {"version": "0.32.0+emulator"}
        assert endpoint.models()[0]["owned_by"] == "spec-eval-emulator"
        assert str(endpoint.metrics()).splitlines()[0] == f"# synthetic: {WHY}"
        answer = endpoint.post_json_or_none("/v1/completions", {"prompt": "hi", "max_tokens": 4})
    assert answer["system_fingerprint"] == "vllm-0.32.0+emulator"
    assert answer["id"].startswith("cmpl-emulated")


def test_stamp_is_found_without_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"object": "list", "data": [{"id": "m", "owned_by": "spec-eval-emulator"}]}
    page = (200, "application/json", json.dumps(models))
    with LlamaCppServer(pages={"/v1/models": page}) as server:
        assert "is an emulator" in str(Endpoint.at(server.url).stamp())
    with LlamaCppServer() as server:
        assert Endpoint.at(server.url).stamp() is None


def test_run_is_synthetic_in_every_file_and_title(tmp_path: Path) -> None:
    with EmulatorServer() as server:
        finished = start(server.url, tmp_path)
    folder = finished.folder
    plan = folder.plan()
    assert plan.synthetic == WHY
    assert [cell.cell_id for cell in plan.cells] == ["synthetic-pair"]
    assert {r.cell_id for r in folder.records().records} == {"synthetic-pair"}
    manifest = folder.manifest()
    assert manifest is not None
    assert manifest.settings["synthetic-pair"]["synthetic"] == WHY
    assert manifest.engine_version == "0.32.0+emulator"
    for name in ("metrics-before.prom", "metrics-after.prom"):
        assert (folder.path / name).read_text(encoding="utf-8").startswith("# synthetic\n")
    first = json.loads((folder.path / "sessions.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["synthetic"] is True
    report = markdown.render([tables.build(folder)])
    assert report.splitlines()[0] == "## pair: drafter not named (synthetic)"
    assert WHY in report


def test_server_wide_run_is_stamped_too(tmp_path: Path) -> None:
    with EmulatorServer() as server:
        finished = start(server.url, tmp_path, engine="scrape", max_tokens=2048)
    report = tables.build(finished.folder)
    assert report.plan.synthetic == WHY
    # four prompts, a hand of 125 steps each
    assert report.overall.figures.steps == 500


def test_stamp_names_faults_that_change_acceptance_and_is_plain(tmp_path: Path) -> None:
    own = tmp_path / "größe\n.toml"
    own.write_text("schema_version = 1\npositions = [0.5, 0.25]\n")
    found = settings(str(own), fault=("loop:every=2", "500"), deck=False, seed=3).why
    assert found == "an emulator of vllm played gr??e? from random draws, seed 3, with fault loop; no model ran"


def test_plan_is_stamped_before_the_server_is_asked_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def look(*_args: Any, **_more: Any) -> Any:
        (path,) = (tmp_path / "results").iterdir()
        seen.append(RunFolder(path).plan().synthetic)
        raise EnvironmentFault("looked")

    monkeypatch.setattr(driving, "probe", look)
    with EmulatorServer() as server, pytest.raises(EnvironmentFault, match="looked"):
        start(server.url, tmp_path)
    assert seen == [WHY]


def test_run_on_an_emulator_goes_on_with_the_same_one_only(tmp_path: Path) -> None:
    with EmulatorServer(fault=("500:every=3",)) as server:
        folder = start(server.url, tmp_path).folder
        port = server.port
    lines = (folder.path / "requests.jsonl").read_bytes()
    with EmulatorServer(port=port, seed=1), pytest.raises(UsageError, match=r"planned for an emulator .* seed 0; "):
        running.resume(folder.path, Progress())
    assert (folder.path / "requests.jsonl").read_bytes() == lines
    with EmulatorServer(port=port):
        assert running.resume(folder.path, Progress()).shortfall is None
    assert folder.plan().synthetic == WHY


def counted(prompt: str) -> Reply:
    """As a real vLLM answers, or fails."""
    if "number 3" in prompt:
        return Reply(status=500, plain=b'{"error":{"message":"broken"}}')
    counters = {"num_spec_steps": 1, "num_accepted_draft_tokens": 1, "num_draft_tokens": 2, "num_spec_tokens": 2}
    chunk = {"object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    chunk["metrics"] = {"speculative_decoding": counters | {"acceptance_histogram": [0, 1, 0]}}
    return Reply(stream=b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n")


def test_run_on_a_real_server_never_goes_on_with_an_emulator(tmp_path: Path) -> None:
    with LlamaCppServer(lambda ask: counted(ask.prompt)) as server:
        folder = start(server.url, tmp_path).folder
    assert folder.plan().synthetic is None
    lines = (folder.path / "requests.jsonl").read_bytes()
    with (
        EmulatorServer(model="tiny") as server,
        pytest.raises(UsageError, match=r"planned for a real server; .* is an"),
    ):
        running.resume(folder.path, Progress(), base_url=server.url)
    assert (folder.path / "requests.jsonl").read_bytes() == lines


def test_doctor_tells(capsys: pytest.CaptureFixture[str]) -> None:
    with EmulatorServer() as server, pytest.raises(SystemExit) as left:
        cli.main(["doctor", "--engine", "vllm", "--base-url", server.url])
    assert left.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"synthetic: {WHY}" in lines
    assert f"WARN  acceptance: synthetic: {WHY}; never publish its figures as measured" in lines


@pytest.mark.parametrize("like", ["vllm", "sglang", "trtllm"])
def test_recorded_answers_are_synthetic_when_they_are_imported(
    like: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmulatorServer(like=like) as server:
        body = {"messages": [{"role": "user", "content": "hi"}], "return_spec_tokens_details": True}
        answer = Endpoint.at(server.url).post_json("/v1/chat/completions", body)
    (tmp_path / "took.jsonl").write_text(json.dumps({"request_id": "a", "response": answer}) + "\n")
    source, out = tmp_path / "took.jsonl", tmp_path / "results"
    with pytest.raises(SystemExit) as left:
        cli.main(["import", "captures", str(source), "--engine", like, "--k", "8", "--out", str(out)])
    assert left.value.code == 0
    folder = RunFolder.open(Path(capsys.readouterr().out.strip()))
    plan = folder.plan()
    assert plan.synthetic == "took.jsonl: 1 of 1 answers bear an emulator's mark"
    assert [cell.cell_id for cell in plan.cells] == ["synthetic-captures"]
    assert [r.cell_id for r in folder.records().records] == ["synthetic-captures"]
    title = markdown.render([tables.build(folder)]).splitlines()[0]
    assert "synthetic" in title
    assert "imported" in title
