"""A throughput suite, its runs with the stand-in for AIPerf, and what they leave, read without our own code."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.llamacpp_server import LlamaCppServer, write_suite

Face = Callable[..., tuple[int, str, str]]
# As recorded: AIPerf's own numbers, and 2820 - 980 tokens between the readings at …8433407786 and …3313033214 ns.
X, Y = 100.00424488375263, 337.1873469778463
SERVER = (2820 - 980) / 4.879625428


def suite(folder: Path, *, levels: str = "[4, 1]", repeats: int = 1, extra: str = "") -> Path:
    write_suite(folder)
    path = folder / "load.toml"
    path.write_text(
        f"""schema_version = 1
name = "load"
title = "Load"
prompts = "pair.toml"
[sampling]
temperature = 0.0
max_tokens = 64
thinking = true
[window]
concurrency = {levels}
warmup_s = 2
duration_s = 5
repeats = {repeats}
{extra}""",
        encoding="utf-8",
    )
    return path


def start(face: Face, tmp_path: Path, server: LlamaCppServer, *more: object, **changes: Any) -> tuple[int, str, str]:
    path = suite(tmp_path / "suite", **changes)
    return face(
        "run", path, "--engine", "vllm", "--base-url", server.url, "--drafter", "d", "--out", tmp_path / "runs", *more
    )


def calls(seen: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in seen.read_text(encoding="utf-8").splitlines()] if seen.exists() else []


def cells(out: str) -> dict[str, dict[str, Any]]:
    """By name, the last line of each."""
    lines = (Path(out.strip()) / "cells.jsonl").read_text(encoding="utf-8").splitlines()
    return {f"c{row['concurrency']}-r{row['repeat']}": row for row in map(json.loads, lines)}


def only(folder: object, face: Face, *more: str) -> dict[str, Any]:
    _, text, _ = face("report", folder, "--format", "json", "--partial", *more)
    [found] = json.loads(text)["runs"]
    assert isinstance(found, dict)
    return found
