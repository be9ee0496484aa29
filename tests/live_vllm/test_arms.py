"""From nothing to a table in one command: vLLM's CPU build started by spec-eval itself, measured and ended.

First of the files here, while no server of another test runs yet.
"""

import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.live import Run, run, spec_eval

MODEL = os.environ.get("SPEC_EVAL_VLLM_MODEL", "")
ON_CPU = ("--engine", "vllm", "--hardware", "cpu", "--model", MODEL)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        monkeypatch.setenv(name, "1")


def test_a_matrix_measures_a_drafter_and_the_baseline_without_one(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(
        f"""schema_version = 1
name = "two"

[[arms]]
recipes = ["ngram", "none"]
engines = ["vllm"]
hardware = ["cpu"]
model = "{MODEL}"
suites = ["smoke"]
"""
    )
    done = spec_eval("run", "--matrix", str(file), "--limit", "2", cwd=tmp_path)
    drafted, plain = (Run(tmp_path / line) for line in done.stdout.splitlines())
    assert drafted.sums() == drafted.prometheus("vllm:")
    assert drafted.sums()["steps"] > 0
    assert drafted.manifest["reconciliation"]["status"] == "exact"
    assert "--enforce-eager" in drafted.manifest["server"]["command"]
    assert "overall" in (drafted.path / "report.md").read_text()
    assert [record["status"] for record in plain.records] == ["ok", "ok"]
    assert all(record["counters"] is None for record in plain.records)
    assert "arm 2 of 2" in done.stderr
    assert all(_gone((one.path / "server.log").read_text()) for one in (drafted, plain))


@pytest.mark.long
def test_one_command_starts_measures_and_stops(tmp_path: Path) -> None:
    done = run("smoke", "--limit", "4", "--serve", "ngram", *ON_CPU, cwd=tmp_path)
    assert len(done.records) == 4
    assert done.sums()["steps"] > 0
    assert done.sums() == done.prometheus("vllm:")
    assert done.manifest["reconciliation"]["status"] == "exact"
    assert {record["counters"]["k"] for record in done.records} == {8}
    assert "--enforce-eager" in done.manifest["server"]["command"]
    assert _gone((done.path / "server.log").read_text())
    assert "overall" in (done.path / "report.md").read_text()


@pytest.mark.long
@pytest.mark.parametrize(
    ("recipe", "cause"),
    [
        ("speculative = { no_such_key = 1 }", "speculative method unknown, or not possible with this model: "),
        ("flags = { no-such-flag = 1 }", "flag unknown to this version: "),
    ],
)
def test_what_vllm_does_not_know_is_told_in_one_line(recipe: str, cause: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(
        'schema_version = 1\nname = "wrong"\ndescription = "x"\n[drafter]\nalgorithm = "ngram"\nk = 4\n'
        f"[engines.vllm]\n{recipe}\n"
    )
    done = spec_eval("run", "smoke", "--serve", str(path), *ON_CPU, "--out", str(tmp_path), cwd=tmp_path, code=4)
    assert cause in done.stderr.splitlines()[-1]
    assert "server.log" in done.stderr.splitlines()[-1]


@pytest.mark.long
def test_a_model_that_is_nowhere_is_told_in_one_line(tmp_path: Path) -> None:
    argv = ["--serve", "ngram", *ON_CPU[:-1], "nobody/no-such-model", "--out", str(tmp_path)]
    done = spec_eval("run", "smoke", *argv, cwd=tmp_path, code=4)
    assert "model not found: " in done.stderr.splitlines()[-1]


@pytest.mark.long
def test_both_arms_of_a_throughput_suite_are_measured_and_drawn(tmp_path: Path, humaneval: list[str]) -> None:
    file = tmp_path / "speed.toml"
    file.write_text(
        f"""schema_version = 1
name = "speed"

[[arms]]
recipes = ["ngram", "none"]
engines = ["vllm"]
hardware = ["cpu"]
model = "{MODEL}"
suites = ["throughput-humaneval"]
"""
    )
    window = ("--concurrency", "1,4", "--duration", "20", "--warmup", "2", "--repeats", "2", "--max-tokens", "24")
    done = spec_eval("run", "--matrix", str(file), *window, *humaneval, cwd=tmp_path, timeout=1800)
    folders = done.stdout.splitlines()
    assert len(folders) == 2
    for folder, drafts in zip(folders, (True, False), strict=True):
        lines = (tmp_path / folder / "cells.jsonl").read_text(encoding="utf-8").splitlines()
        cells = [json.loads(line) for line in lines]
        order = [(1, 1), (4, 1), (1, 2), (4, 2)]
        assert [(cell["concurrency"], cell["repeat"], cell["outcome"]) for cell in cells] == [(*c, "ok") for c in order]
        for cell in cells:
            export = tmp_path / folder / cell["folder"] / "profile_export_aiperf.json"
            told = json.loads(export.read_text(encoding="utf-8"))
            for metric in ("output_token_throughput_per_user", "output_token_throughput"):
                assert cell["native"][metric]["avg"] == told[metric]["avg"] > 0
            counted = cell["server_window"]
            assert (counted["counter"], counted["at_end"]) == ("vllm:generation_tokens", False)
            assert counted["tokens_per_second"] > 0
            assert (cell["drafts"]["steps"] > 0) == drafts
            assert cell["drafts"]["requests"] == (cell["drafts"]["answers"] if drafts else 0)
    spec_eval("plot", *folders, "-o", "plots", cwd=tmp_path)
    rows = (tmp_path / "plots" / "speed-up.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[4] for row in rows[1:]] == ["1", "4"]


def _gone(log: str) -> bool:
    """Whether none of the processes that the log names runs any more; one that was just killed may take a moment."""
    pids = set(re.findall(r"\bpid=(\d+)", log))
    assert pids
    deadline = time.monotonic() + 30.0
    while (alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not alive
