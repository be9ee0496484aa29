"""`spec-eval serve emulator` as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spec_eval import cli

ROW = "glm-5.3-dflash2-preview:basic-t0:HumanEval"


@contextmanager
def served(*more: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The process and the one line that it prints."""
    command = [sys.executable, "-c", "from spec_eval.cli import main; main()", "serve", "emulator"]
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    with subprocess.Popen(
        [*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_prints_its_address_and_runs_until_it_is_told(number: signal.Signals) -> None:
    with served("--like", "vllm", "--profile", ROW, "--per-request-spec-decode-metrics", "detailed") as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/v1")
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}).encode()
        with urllib.request.urlopen(
            urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"}), timeout=30
        ) as answer:
            counters = json.load(answer)["metrics"]["speculative_decoding"]
        assert len(counters["per_step_accepted"]) == counters["num_spec_steps"] > 0
        process.send_signal(number)
        rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest, errors) == (0, "", "")


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--profile", "glm-5.3-dflash2-preview:basic-t0:HumanEvil"], 2, "did you mean"),
        (["--profile", ROW, "--fault", "cutt"], 2, "did you mean 'cut'"),
        (["--profile", ROW, "--step-ms", "3"], 2, "give --timing gpu too"),
        (["--profile", "glm-5.3-dflash2-preview", "--suite", "card-dflash2-preview", "--cast", "x"], 2, "CELL=PROFILE"),
        (["--profile", ROW, "--host", "192.0.2.1"], 4, "give another --host or --port"),
        (["--profile", ROW, "--hands", "20000"], 2, "give from 1 to 10000"),
    ],
)
def test_what_cannot_be_is_one_line(more: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["serve", "emulator", "--like", "vllm", *more])
    captured = capsys.readouterr()
    assert left.value.code == code
    assert words in captured.err
    assert captured.err.count("\n") == 1
