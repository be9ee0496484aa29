"""`serve` with the embedded engine for real: it answers, it drafts, and it is gone behind Ctrl-C."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from spec_eval.serve.process import free_port
from tests.live import run, spec_eval


@pytest.mark.parametrize(
    ("recipe", "drafts"), [("smollm2-ngram", True), ("smollm2-draft", True), ("smollm2-none", False)]
)
def test_a_recipe_is_served_until_it_is_interrupted(
    recipe: str, drafts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    argv = [sys.executable, "-m", "spec_eval", "serve", recipe, "--engine", "llamacpp", "--port", str(free_port())]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            served = _asked(f"{url}/models")["data"][0]["id"]
            answer = _asked(f"{url}/chat/completions", {"max_tokens": 24, "temperature": 0, "messages": [_COUNT]})
            asked = ("doctor", "--engine", "llamacpp", "--base-url", url, "--format", "json")
            doctor = spec_eval(*asked, cwd=tmp_path, code=0 if drafts else 1)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert served.startswith("SmolLM2-135M-Instruct")
    assert bool(answer["timings"].get("draft_n")) == drafts
    found = {finding["check"]: finding["status"] for finding in json.loads(doctor.stdout)["findings"]}
    if drafts:
        assert found["counters, streamed"] == found["server's totals"] == "pass"
    else:
        assert found["drafter"] == "fail"
    with pytest.raises(OSError, match=r"refused"):
        _asked(f"{url}/models")


def test_a_target_that_drafts_for_itself_accepts_nearly_everything(tmp_path: Path) -> None:
    done = run("smoke", "--limit", "3", "--max-tokens", "24", "--serve", "smollm2-draft", cwd=tmp_path)
    sums = done.sums()
    assert sums["steps"] > 10
    assert sums["accepted"] > 0.9 * sums["drafted"]
    assert done.manifest["reconciliation"]["status"] == "exact"


def test_a_baseline_keeps_answers_and_has_no_figure(tmp_path: Path) -> None:
    done = run("smoke", "--limit", "3", "--max-tokens", "16", "--serve", "smollm2-none", cwd=tmp_path)
    assert [record["status"] for record in done.records] == ["ok"] * 3
    assert all(record["completion_tokens"] for record in done.records)
    shown = spec_eval("report", str(done.path), cwd=tmp_path, code=3)
    assert "no drafter" in shown.stdout
    assert "the run had no drafter" in shown.stderr


_COUNT = {"role": "user", "content": "Repeat: one two three four, one two three four, one two three four"}


def _asked(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return json.load(answer)
