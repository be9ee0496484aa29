"""vLLM 0.32 on the CPU: every counter equals the server's own, and a phantom step is seen and kept out."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.live import Run, run, spec_eval
from tests.live_vllm.conftest import Serve
from tests.live_vllm.phantom import phantom_prompt
from tests.live_vllm.server import Drafter, Server

K = {"ngram": 8, "draft_model": 4, "scripted": 4}


@pytest.mark.parametrize("drafter", ["ngram", "draft_model", "scripted"])
def test_counters_equal_the_servers_own(drafter: Drafter, vllm: Serve, humaneval: list[str], tmp_path: Path) -> None:
    with vllm(drafter) as server:
        size = (
            ["--limit", "20", "--max-tokens", "96"] if drafter == "ngram" else ["--limit", "10", "--max-tokens", "64"]
        )
        options = ["humaneval", *size, *humaneval, *_at(server), "--drafter", drafter]
        alone = run(*options, "--concurrency", "1", cwd=tmp_path)
        together = run(*options, "--concurrency", "4", cwd=tmp_path)
        runs = [alone, together]
        if drafter == "ngram":
            runs.append(run(*_gsm8k(tmp_path), "--max-tokens", "96", *_at(server), cwd=tmp_path))
            unknown = spec_eval("run", *options, "--model", "other", cwd=tmp_path, code=4)
            assert "does not serve 'other' but smol" in unknown.stderr
            found = _examined(server, tmp_path, code=0)
            assert "fail" not in found.values()
            assert {found[check] for check in ("counters, streamed", "counters, not streamed", "server's totals")} == {
                "pass"
            }
    for done in runs:
        assert done.sums() == done.prometheus("vllm:")
        assert done.sums()["steps"] > 20
        assert done.manifest["reconciliation"]["status"] == "exact"
        assert {record["counters"]["k"] for record in done.records} == {K[drafter]}
        assert all(record["counters"]["per_step_drafted"] for record in done.records if record["counters"]["steps"])
    lengths = {n for r in alone.records for n in r["counters"]["per_step_drafted"] or ()}
    if drafter == "scripted":
        assert lengths == {1, 2, 3, 4}
        tokens = sum(r["completion_tokens"] - 1 for r in alone.records)
        verified = alone.sums()["steps"] + alone.sums()["accepted"]
        assert tokens > verified, "steps without drafts leave tokens that no verification step accounts for"


def test_a_phantom_step_is_shown_and_kept_out(vllm: Serve, tmp_path: Path) -> None:
    with vllm("ngram", prefix_caching=True, prompt_tokens_details=True) as server:
        prompt = phantom_prompt(server.base_url)
        suite = _one_prompt(tmp_path, prompt.text)
        options = [str(suite), "--repeats", "3", "--no-seed", *_at(server)]
        cold = run(*options, cwd=tmp_path)
        warm = run(*options, "--no-cache-salt", cwd=tmp_path)
    kept, spoilt = [[r["counters"] for r in done.records] for done in (cold, warm)]
    assert [r["cached_tokens"] for r in cold.records] == [0, 0, 0]
    assert [r["cached_tokens"] for r in warm.records] == [0, *[prompt.prompt_tokens - 1] * 2]
    assert kept[0] == kept[1] == kept[2] == spoilt[0]
    for phantom in spoilt[1:]:
        assert phantom["steps"] == kept[0]["steps"] + 1
        assert phantom["drafted"] == kept[0]["drafted"] + 8
        assert phantom["accepted"] == kept[0]["accepted"]
        assert phantom["per_step_accepted"][0] == 0
    assert _acceptance_length(warm, tmp_path) < _acceptance_length(cold, tmp_path)
    codes = {w["code"] for w in _report(warm, tmp_path)["warnings"]}
    assert {"warm_prefix_cache", "phantom_steps"} <= codes
    assert "phantom_steps" not in {w["code"] for w in _report(cold, tmp_path)["warnings"]}


def test_without_the_counter_flag_nothing_is_sent(vllm: Serve, humaneval: list[str], tmp_path: Path) -> None:
    with vllm("ngram", metrics="none") as server:
        before = _counter(server, "vllm:request_success_total")
        done = spec_eval("run", "humaneval", *humaneval, *_at(server), cwd=tmp_path, code=4)
        asked = _counter(server, "vllm:request_success_total") - before
        found = _examined(server, tmp_path, code=1)
    assert "--per-request-spec-decode-metrics" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert asked == 1
    assert found["counters, streamed"] == "fail"
    assert not (tmp_path / "results").exists() or not list((tmp_path / "results").iterdir())


@pytest.mark.long
def test_without_statistics_reconciliation_is_not_available(vllm: Serve, humaneval: list[str], tmp_path: Path) -> None:
    with vllm("ngram", metrics="summary", log_stats=False) as server:
        options = ["--limit", "2", "--max-tokens", "32", *humaneval, *_at(server)]
        done = run("humaneval", *options, cwd=tmp_path)
    assert done.manifest["reconciliation"]["status"] == "not available"
    assert all(record["counters"] for record in done.records)


def test_without_speculation_there_is_nothing_to_measure(vllm: Serve, humaneval: list[str], tmp_path: Path) -> None:
    with vllm("none") as server:
        done = spec_eval("run", "humaneval", *humaneval, *_at(server), cwd=tmp_path, code=4)
        found = _examined(server, tmp_path, code=1)
    assert found["counters, streamed"] == "fail"
    assert "--speculative-config" in done.stderr
    assert "no sign of drafting" in done.stderr


def _examined(server: Server, cwd: Path, *, code: int) -> dict[str, str]:
    """What doctor says, by check."""
    done = spec_eval("doctor", *_at(server), "--format", "json", cwd=cwd, code=code)
    return {finding["check"]: finding["status"] for finding in json.loads(done.stdout)["findings"]}


def _at(server: Server) -> list[str]:
    return ["--engine", "vllm", "--base-url", server.base_url]


def _gsm8k(folder: Path) -> list[str]:
    """The shipped template of gsm8k on word problems of our own: its real rows are not to be had offline."""
    text = (Path(__file__).parents[2] / "suites" / "gsm8k.toml").read_text()
    kept = [
        line
        for line in text.splitlines()
        if not line.startswith(("hub", "config", "split", "revision", "local", "rows", "sha256"))
    ]
    suite = folder / "word-problems.toml"
    suite.write_text("\n".join(kept).replace("[data]", '[data]\nfile = "word-problems.jsonl"'))
    problems = [
        f"A baker fills {n} trays with {n + 3} rolls each and sells {2 * n} rolls. How many rolls are left?"
        for n in range(4, 12)
    ]
    rows = (json.dumps({"question": problem, "answer": ""}) for problem in problems)
    (folder / "word-problems.jsonl").write_text("\n".join(rows) + "\n")
    return [str(suite)]


def _one_prompt(folder: Path, text: str) -> Path:
    (folder / "one.jsonl").write_text(json.dumps({"id": "phantom", "prompt": text}) + "\n")
    suite = folder / "one.toml"
    suite.write_text(
        """schema_version = 1
name = "one"
title = "One prompt"
[data]
file = "one.jsonl"
licence = "Apache-2.0"
[prompt]
id = "id"
template = "{prompt}"
[sampling]
temperature = 0.0
max_tokens = 48
"""
    )
    return suite


def _report(done: Run, cwd: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(spec_eval("report", str(done.path), "--format", "json", cwd=cwd).stdout)
    return loaded


def _acceptance_length(done: Run, cwd: Path) -> float:
    value: float = _report(done, cwd)["overall"]["acceptance_length"]["value"]
    return value


def _counter(server: Server, name: str) -> int:
    with urllib.request.urlopen(f"{server.root_url}/metrics") as answer:
        text = answer.read().decode()
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in text.splitlines() if line.startswith(name))
