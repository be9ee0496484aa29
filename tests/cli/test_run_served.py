"""`run --serve`: from nothing to a table in one command, over a stand-in for vLLM."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from spec_eval import cli
from spec_eval.run import serving
from spec_eval.serve import process
from spec_eval.store import RunFolder
from tests import fake_vllm
from tests.llamacpp_server import write_suite


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)
    monkeypatch.setattr(process, "_BETWEEN_S", 0.05)


def face(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *argv: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["spec-eval", *argv])
    with pytest.raises(SystemExit) as left:
        cli.main()
    captured = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return int(left.value.code), captured.out, captured.err


def served(tmp_path: Path, *more: str) -> list[str]:
    suite = str(write_suite(tmp_path / "suite", prompts=4))
    target = ["--serve", "ngram", "--engine", "vllm", "--hardware", "cpu", "--model", "house/mouse"]
    return ["run", suite, *target, "--out", str(tmp_path / "results"), *more]


def test_one_command_starts_measures_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch)
    code, out, err = face(capsys, monkeypatch, *served(tmp_path, "--k", "3"))
    assert code == 0, err
    assert fake_vllm.gone(pids)
    folder = RunFolder(Path(out.strip()))
    plan, manifest = folder.plan(), json.loads((folder.path / "manifest.json").read_text())
    assert (plan.target.engine, plan.target.model, plan.target.k) == ("vllm", "house/mouse", 3)
    assert plan.target.recipe is not None
    assert plan.target.hardware is not None
    assert (plan.target.recipe["name"], plan.target.hardware["name"]) == ("ngram", "cpu")
    assert folder.server_log.read_text().startswith("INFO loading weights")
    assert "--speculative-config" in manifest["server"]["command"]
    assert manifest["server"]["program"] == f"{tmp_path}/bin/vllm"
    assert manifest["reconciliation"]["status"] == "exact"
    assert manifest["engine_version"] == "0.0-fake"
    # 4 answers of 4 steps, 5 of their drafts accepted each: 1 + 20 / 16
    assert "2.2500" in err
    assert {record.counters.k for record in folder.records().records if record.counters} == {3}


def test_a_resumed_run_starts_its_server_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch)
    code, out, _ = face(capsys, monkeypatch, *served(tmp_path))
    assert code == 0
    folder = RunFolder(Path(out.strip()))
    lines = (folder.path / "requests.jsonl").read_bytes().splitlines(keepends=True)
    (folder.path / "requests.jsonl").write_bytes(b"".join(lines[:2]))
    (folder.path / "manifest.json").unlink()
    monkeypatch.chdir(tmp_path / "suite")
    code, out, err = face(capsys, monkeypatch, "run", "--resume", str(folder.path))
    assert code == 0, err
    assert len(folder.records().records) == 4
    assert folder.server_log.read_text().count("INFO loading weights") == 2


def test_a_dry_run_shows_the_servers_command_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch)
    code, out, err = face(capsys, monkeypatch, *served(tmp_path, "--dry-run"))
    assert (code, err) == (0, "")
    assert "server: export VLLM_CPU_KVCACHE_SPACE=1\n" in out
    assert "server: vllm serve house/mouse " in out
    assert not pids.exists()
    assert not (tmp_path / "results").exists()


def test_a_server_that_dies_at_the_start_keeps_its_log_and_says_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch, "dies: torch.OutOfMemoryError: CUDA out of memory.")
    code, out, err = face(capsys, monkeypatch, *served(tmp_path))
    assert (code, out) == (4, "")
    (folder,) = (tmp_path / "results").iterdir()
    assert err.splitlines()[-1] == (
        "spec-eval: vllm ended while starting, exit code 1: out of memory: torch.OutOfMemoryError: CUDA out of "
        f"memory.; its log is {folder}/server.log"
    )
    assert "OutOfMemoryError" in (folder / "server.log").read_text()


def test_an_engine_that_is_not_here_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("SPEC_EVAL_VLLM_PYTHON", raising=False)
    code, _, err = face(capsys, monkeypatch, *served(tmp_path))
    assert code == 4
    assert "vllm is not here" in err
    assert list((tmp_path / "results").iterdir()) == []


@pytest.mark.parametrize("more", [["--k", "0"], ["--hardware", "9xh200"], ["--base-url", "http://127.0.0.1:1"]])
def test_what_does_not_go_together_starts_nothing(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch)
    code, out, err = face(capsys, monkeypatch, *served(tmp_path, *more))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not pids.exists()
    assert not (tmp_path / "results").exists()


def test_trust_is_only_given_where_it_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch)
    commands: list[Any] = []
    for more in ([], ["--trust-remote-code"]):
        code, out, err = face(capsys, monkeypatch, *served(tmp_path, *more))
        assert code == 0, err
        commands.append(json.loads((Path(out.strip()) / "manifest.json").read_text())["server"]["command"])
    assert ["--trust-remote-code" in command for command in commands] == [False, True]


def test_a_baseline_without_a_drafter_keeps_its_answers_and_misses_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch)
    suite = str(write_suite(tmp_path / "suite", prompts=4))
    target = ["--serve", "none", "--engine", "vllm", "--hardware", "cpu", "--model", "house/mouse"]
    code, out, err = face(capsys, monkeypatch, "run", suite, *target, "--out", str(tmp_path / "results"))
    assert code == 0, err
    folder = RunFolder(Path(out.strip()))
    assert [(r.status, r.counters, r.completion_tokens) for r in folder.records().records] == [("ok", None, 10)] * 4
    manifest = json.loads((folder.path / "manifest.json").read_text())
    assert "speculative" not in manifest["server"]["command"]
    assert "per-request-spec-decode-metrics" not in manifest["server"]["command"]
    code, out, err = face(capsys, monkeypatch, "report", str(folder.path), "--format", "json")
    assert code == 3
    assert "the run had no drafter" in err
    document = json.loads(out)
    assert document["runs"][0]["labels"] == ["no drafter"]
    assert document["overall"]["acceptance_length"] is None
    assert {"low_coverage", "zero_step_requests"}.isdisjoint(w["code"] for w in document["warnings"])
