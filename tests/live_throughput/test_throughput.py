"""Throughput suites with the real AIPerf. Skipped unless SPEC_EVAL_AIPERF names its executable."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import live
from tests.live import spec_eval

pytestmark = pytest.mark.skipif(not os.environ.get("SPEC_EVAL_AIPERF"), reason="SPEC_EVAL_AIPERF is not set")
PROFILE = "glm-5.3-dflash2-preview:basic-t0:HumanEval"
COUNTER = "vllm:generation_tokens_total"
LEVELS, ALL_LEVELS = (4,), (1, 4, 8, 16, 32, 64, 128)


def matrix(folder: Path) -> Path:
    """A drafter and the baseline on the embedded engine, over prompts that one thread reads in no time."""
    (folder / "short.toml").write_text(
        """schema_version = 1
name = "throughput-smoke"
title = "Smoke"
prompts = "smoke"
[sampling]
temperature = 0.0
max_tokens = 24
[window]
concurrency = [1, 4]
warmup_s = 2
duration_s = 10
""",
        encoding="utf-8",
    )
    path = folder / "two.toml"
    path.write_text(
        """schema_version = 1
name = "two"
[[arms]]
recipes = ["smollm2-ngram", "smollm2-none"]
engines = ["llamacpp"]
suites = ["short.toml"]
""",
        encoding="utf-8",
    )
    return path


def cells(folder: Path) -> list[dict[str, Any]]:
    """The lines of its cells."""
    return [json.loads(line) for line in (folder / "cells.jsonl").read_text(encoding="utf-8").splitlines()]


def native(folder: Path, cell: dict[str, Any]) -> dict[str, Any]:
    """AIPerf's own file."""
    path = folder / cell["folder"] / "profile_export_aiperf.json"
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def test_an_arm_with_drafts_and_one_without_are_drawn(tmp_path: Path) -> None:
    done = spec_eval("run", "--matrix", str(matrix(tmp_path)), cwd=tmp_path)
    folders = done.stdout.splitlines()
    assert ["ngram" in folder for folder in folders] == [True, False]
    for folder in map(tmp_path.joinpath, folders):
        lines = cells(folder)
        assert [(cell["concurrency"], cell["outcome"]) for cell in lines] == [(1, "ok"), (4, "ok")]
        for cell in lines:
            told = native(folder, cell)
            for metric in ("output_token_throughput_per_user", "output_token_throughput"):
                assert cell["native"][metric]["avg"] == told[metric]["avg"] > 0
            assert cell["requests"]["completed"] == told["request_count"]["avg"]
            drafts = cell["drafts"]
            assert (drafts["answers"], drafts["unknown_prompts"]) == (cell["requests"]["completed"], 0)
            assert drafts["requests"] == drafts["answers"]  # none without counters
        assert (sum(cell["drafts"]["steps"] for cell in lines) > 0) == ("ngram" in folder.name)
    spec_eval("plot", *folders, "-o", "plots", cwd=tmp_path)
    assert (tmp_path / "plots" / "throughput-smoke.png").read_bytes().startswith(b"\x89PNG")
    rows = (tmp_path / "plots" / "speed-up.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[4] for row in rows[1:]] == ["1", "4"]
    spec_eval(
        *("plot", *folders, "-o", "by-aiperf", "--renderer", "aiperf"),
        *("--aiperf", os.environ["SPEC_EVAL_AIPERF"]),
        cwd=tmp_path,
    )
    assert (tmp_path / "by-aiperf" / "throughput-smoke.png").read_bytes().startswith(b"\x89PNG")


class Watch:
    """Reads an emulator's own count, until it is told to end."""

    def __init__(self, root: str) -> None:
        self.readings: list[tuple[int, float]] = []
        self._root = root
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        while not self._ended.wait(0.1):
            with urllib.request.urlopen(f"{self._root}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            now = time.time_ns()
            self.readings.append((now, sum(float(line.split()[-1]) for line in lines if line.startswith(COUNTER))))

    def at(self, moment: int) -> float:
        """Between the readings around it."""
        (t0, n0), (t1, n1) = next(
            (before, after)
            for before, after in zip(self.readings, self.readings[1:], strict=False)
            if before[0] <= moment <= after[0]
        )
        return n0 + (n1 - n0) * (moment - t0) / (t1 - t0)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(15)


@contextmanager
def emulator(like: str, cwd: Path) -> Iterator[str]:
    """One that keeps a GPU's time, at its URL."""
    argv = [sys.executable, "-m", "spec_eval", "serve", "emulator", "--like", like, "--profile", PROFILE]
    argv += ["--timing", "gpu", "--draw", "random"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=cwd) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def load(like: str, url: str, levels: Sequence[int], cwd: Path) -> Path:
    """A run of short windows; its folder."""
    done = spec_eval(
        *("run", "throughput-humaneval", "--engine", like, "--base-url", url, "--drafter", "played"),
        *("--concurrency", ",".join(map(str, levels)), "--duration", "6", "--warmup", "2", "--repeats", "1"),
        *("--max-tokens", "400", *live.humaneval_rows()),
        cwd=cwd,
    )
    return cwd / done.stdout.strip()


def test_the_servers_window_is_what_an_emulator_counted(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    levels = ALL_LEVELS if pytestconfig.getoption("--long") else LEVELS
    with emulator("vllm", tmp_path) as url, Watch(url.removesuffix("/v1")) as watch:
        folder = load("vllm", url, levels, tmp_path)
    measured = cells(folder)
    assert [(cell["concurrency"], cell["outcome"]) for cell in measured] == [(level, "ok") for level in levels]
    for cell in measured:
        start, end = cell["start_ns"], cell["end_ns"]
        counted = (watch.at(end) - watch.at(start)) / ((end - start) / 1e9)
        assert cell["server_window"]["tokens_per_second"] == pytest.approx(counted, rel=0.02)
        told = native(folder, cell)
        assert cell["native"].keys() >= {"output_token_throughput_per_user", "output_token_throughput"}
        for name, kept in cell["native"].items():
            assert kept == {key: told[name][key] for key in kept}
            assert kept["avg"] == told[name]["avg"]
        assert cell["requests"]["dispatched"] == cell["requests"]["completed"] + cell["requests"]["dropped"]
        share = 1 - told["output_token_throughput"]["avg"] / cell["server_window"]["tokens_per_second"]
        assert cell["dropped"] == {"share": pytest.approx(share), "basis": "tokens"}
    assert json.loads((folder / "plan.json").read_text(encoding="utf-8"))["synthetic"]
    spec_eval("plot", str(folder), "-o", "plots", cwd=tmp_path)
    assert (tmp_path / "plots" / "throughput-humaneval.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.parametrize("like", ["sglang", "trtllm"])
def test_counters_that_only_raw_records_hold_are_read(like: str, tmp_path: Path) -> None:
    with emulator(like, tmp_path) as url:
        [cell] = cells(load(like, url, LEVELS, tmp_path))
    drafts = cell["drafts"]
    assert (cell["outcome"], drafts["unknown_prompts"]) == ("ok", 0)
    assert drafts["requests"] == drafts["answers"] == cell["requests"]["completed"] > 0
    # The row's 4.8074, out of some 80 steps an answer drawn at random.
    assert 1 + drafts["accepted"] / drafts["steps"] == pytest.approx(4.8074, abs=0.6)
    assert cell["dropped"]["basis"] == "requests"  # tokens are counted at an answer's end, or not at all
