"""Runs that are driven against a stand-in for llama.cpp, and what they leave."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spec_eval import run as running
from spec_eval.render.progress import Progress
from spec_eval.run import Finished, RunOptions
from spec_eval.store import RunFolder
from tests.llamacpp_server import Ask, LlamaCppServer, Reply, write_suite

BROKEN = Reply(status=500, plain=b'{"error":{"message":"broken"}}')
PROBE = "Repeat after me"


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
