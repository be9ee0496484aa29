"""The same prompts through our driver, AIPerf and `vllm bench serve`: one server, one set of counters, one answer.

Nothing but the request's own prefix is cached by any of them, since the server runs without a prefix cache: ours sends
a salt with each request, the others do not.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.live import Run, run, spec_eval
from tests.live_vllm.conftest import Serve
from tests.live_vllm.server import HERE, MODEL_NAME, Server

VARIABLE = "SPEC_EVAL_AIPERF"
MAX_TOKENS = 48
# Answers that repeat the prompt, themselves, or nothing: steps accept none, some and all of their drafts.
PROMPTS = (
    "Repeat this sentence three times: the small red boat crosses the wide grey river every morning.",
    "List the days of the week in order, then list them again in the same order.",
    "Write a Python class Point with methods get_x, get_y, set_x and set_y.",
    "Write an SQL table of books with ten columns, then insert three rows into it.",
    "Count from 1 to 20, one number a line.",
    "Tell a short story about a cat and a dog. Begin each sentence with: The cat and the dog.",
    "Copy this list twice: apples, pears, plums, cherries, grapes.",
    "Write a JSON list of three people with name, age and city.",
)
Figures = dict[str, float]


@pytest.fixture(scope="module")
def aiperf() -> Path:
    """AIPerf's executable; it lives in an environment of its own, since it pins older libraries."""
    if VARIABLE not in os.environ:
        pytest.skip(f"{VARIABLE} does not name AIPerf's executable: pip install aiperf==0.13.0, in its own environment")
    return Path(os.environ[VARIABLE])


def test_three_tools_give_one_answer(vllm: Serve, aiperf: Path, tmp_path: Path) -> None:
    with vllm("ngram", prefix_caching=False) as server:
        ours = run(str(_suite(tmp_path)), "--engine", "vllm", "--base-url", server.base_url, cwd=tmp_path)
        theirs = _aiperf(aiperf, server, tmp_path)
        bench = _bench(server, tmp_path)
    expected = _of_totals(ours.sums())
    assert len(ours.records) == len(PROMPTS)
    assert ours.manifest["reconciliation"]["status"] == "exact"
    assert 1 < expected["AL"] < 8
    assert _of_report(ours.path, tmp_path) == _near(expected)
    assert _of_aiperf(theirs) == _near(expected)
    assert _of_bench(bench) == _near(expected)

    imported = _imported(tmp_path, "aiperf", theirs)
    assert _of_report(imported.path, tmp_path) == _near(expected)
    assert imported.sums() == ours.sums()
    assert _answers(imported) == _answers(ours)
    _same_without_raw(imported, theirs, tmp_path)
    totals = _imported(tmp_path, "vllm-bench", bench)
    assert _of_report(totals.path, tmp_path) == _near(expected)
    (point,) = totals.manifest["points"].values()
    assert {name: point[name] for name in ("steps", "drafted", "accepted", "ok", "failed")} == {
        **{name: ours.sums()[name] for name in ("steps", "drafted", "accepted")},
        "ok": len(PROMPTS),
        "failed": 0,
    }


def _same_without_raw(raw: Run, theirs: Path, folder: Path) -> None:
    """The records alone hold the same counters, and nothing of the answers."""
    (theirs / "profile_export_raw.jsonl").unlink()
    kept = _imported(folder, "aiperf", theirs)
    names = ("prompt_id", "counters", "prompt_tokens", "completion_tokens", "start_ns", "end_ns")
    assert [[r[name] for name in names] for r in kept.records] == [[r[name] for name in names] for r in raw.records]
    assert {(r["text"], r["finish_reason"]) for r in kept.records} == {(None, None)}
    # AIPerf keeps the time in milliseconds
    gaps = [abs(a["first_token_ns"] - b["first_token_ns"]) for a, b in zip(kept.records, raw.records, strict=True)]
    assert max(gaps) <= 1


def _near(figures: Figures) -> Any:
    """To four decimals."""
    return pytest.approx(figures, rel=0, abs=5e-5)


def _of_totals(sums: dict[str, int]) -> Figures:
    positions = {f"position {i}": sums.get(f"position {i}", 0) / sums["steps"] for i in range(1, 9)}
    return {"AL": 1 + sums["accepted"] / sums["steps"], "rate": sums["accepted"] / sums["drafted"], **positions}


def _of_report(path: Path, cwd: Path) -> Figures:
    row = json.loads(spec_eval("report", str(path), "--format", "json", cwd=cwd).stdout)["overall"]
    positions = {f"position {i}": share for i, share in enumerate(row["positions"], 1)}
    return {"AL": row["acceptance_length"]["value"], "rate": row["acceptance_rate"], **positions}


def _of_aiperf(folder: Path) -> Figures:
    """Its pooled figures; it prints no positions, but pools the histogram that they come from."""
    summary = json.loads((folder / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    histogram = {int(j): n for j, n in summary["pooled_spec_decode_acceptance_histogram"].items()}
    steps = sum(histogram.values())
    return {
        "AL": summary["spec_decode_token_weighted_acceptance_length"]["avg"],
        "rate": summary["spec_decode_overall_draft_acceptance_rate"]["avg"] / 100,
        **{f"position {i}": sum(n for j, n in histogram.items() if j >= i) / steps for i in range(1, 9)},
    }


def _of_bench(path: Path) -> Figures:
    result = json.loads(path.read_text(encoding="utf-8"))
    shares = result["spec_decode_per_position_acceptance_rates"]
    return {
        "AL": result["spec_decode_acceptance_length"],
        "rate": result["spec_decode_acceptance_rate"] / 100,
        **{f"position {i}": share for i, share in enumerate(shares, 1)},
    }


def _answers(done: Run) -> list[tuple[str, list[int], int]]:
    """Text, histogram and tokens of each answer, in the order of the prompts."""
    records = sorted(done.records, key=lambda record: str(record["prompt_id"]))
    return [(r["text"], r["counters"]["histogram"], r["completion_tokens"]) for r in records]


def _imported(cwd: Path, source: str, path: Path) -> Run:
    done = spec_eval("import", source, str(path), "--engine", "vllm", "--out", str(cwd / "imported"), cwd=cwd)
    return Run(Path(done.stdout.strip()))


def _suite(folder: Path) -> Path:
    rows = (json.dumps({"id": f"p{i}", "prompt": prompt}) for i, prompt in enumerate(PROMPTS))
    (folder / "peers.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    suite = folder / "peers.toml"
    suite.write_text(
        f"""schema_version = 1
name = "peers"
title = "Peers"
[data]
file = "peers.jsonl"
licence = "Apache-2.0"
[prompt]
id = "id"
template = "{{prompt}}"
[sampling]
temperature = 0.0
max_tokens = {MAX_TOKENS}
[load]
concurrency = 1
""",
        encoding="utf-8",
    )
    return suite


def _aiperf(executable: Path, server: Server, folder: Path) -> Path:
    """Its artifact folder. The tokenizer is loaded and not used: token counts are the server's."""
    prompts = folder / "aiperf.jsonl"
    prompts.write_text("".join(json.dumps({"text": prompt}) + "\n" for prompt in PROMPTS), encoding="utf-8")
    artifacts = folder / "aiperf"
    command = [str(executable), "profile", "--model", MODEL_NAME, "--url", server.root_url]
    command += ["--tokenizer", os.environ["SPEC_EVAL_VLLM_MODEL"], "--use-server-token-count"]
    command += ["--endpoint-type", "chat", "--streaming", "--input-file", str(prompts)]
    command += ["--custom-dataset-type", "single_turn", "--dataset-sampling-strategy", "sequential"]
    command += ["--concurrency", "1", "--request-count", str(len(PROMPTS)), "--random-seed", "1"]
    command += ["--extra-inputs", json.dumps({"max_completion_tokens": MAX_TOKENS, "temperature": 0})]
    command += ["--export-level", "raw", "--no-gpu-telemetry", "--no-server-metrics", "--ui", "none"]
    _succeed([*command, "--output-artifact-dir", str(artifacts)], folder)
    return artifacts


def _bench(server: Server, folder: Path) -> Path:
    """Its result. ShareGPT's shape is the one that it reads without pandas; the answers in it are not sent."""
    told = [[{"from": "human", "value": prompt}, {"from": "gpt", "value": "Of course."}] for prompt in PROMPTS]
    (folder / "sharegpt.json").write_text(json.dumps([{"conversations": one} for one in told]), encoding="utf-8")
    command = [os.environ["SPEC_EVAL_VLLM_PYTHON"], str(HERE / "bench_serve.py")]
    command += ["--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--base-url", server.root_url]
    command += ["--model", MODEL_NAME, "--tokenizer", os.environ["SPEC_EVAL_VLLM_MODEL"]]
    command += ["--dataset-name", "sharegpt", "--dataset-path", str(folder / "sharegpt.json")]
    command += ["--sharegpt-output-len", str(MAX_TOKENS), "--num-prompts", str(len(PROMPTS))]
    command += ["--max-concurrency", "1", "--temperature", "0"]
    _succeed([*command, "--save-result", "--result-dir", str(folder), "--result-filename", "bench.json"], folder)
    return folder / "bench.json"


def _succeed(command: list[str], cwd: Path) -> None:
    # AIPerf does not take a local tokenizer for one while the hub is said to be offline.
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment | {"DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
