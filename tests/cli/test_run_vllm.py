"""The whole way over a server that answers as vLLM does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spec_eval.run import serving
from tests.llamacpp_server import Ask, LlamaCppServer, Reply, write_suite

HEAD = b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"partial"}}]}\n\n'
END = b"data: [DONE]\n\n"


def counted(histogram: list[int], **more: Any) -> bytes:
    """The last chunk: usage and counters, every step drafting k."""
    k, steps = len(histogram) - 1, sum(histogram)
    counters = {
        "acceptance_histogram": histogram,
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": sum(j * n for j, n in enumerate(histogram)),
        "num_draft_tokens": k * steps,
        "num_spec_tokens": k,
    }
    usage = {"prompt_tokens": 7, "completion_tokens": 30}
    chunk = {"object": "chat.completion.chunk", "choices": [], "usage": usage}
    return b"data: " + json.dumps(chunk | {"metrics": {"speculative_decoding": counters}} | more).encode() + b"\n\n"


GOOD = Reply(stream=HEAD + counted([1, 1, 2]) + END)


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


def by_question(rules: dict[int, Reply]) -> Callable[[Ask], Reply]:
    named = {f"Answer: Question number {i}?": reply for i, reply in rules.items()}
    return lambda ask: named.get(ask.prompt, GOOD)


def run(face: Callable[..., tuple[int, str, str]], tmp_path: Path, rules: dict[int, Reply]) -> tuple[int, str, str]:
    suite = write_suite(tmp_path / "suite", prompts=4)
    with LlamaCppServer(by_question(rules)) as server:
        got = face("run", suite, "--engine", "vllm", "--base-url", server.url, "--out", tmp_path / "results")
        salts = [ask.body["cache_salt"] for ask in server.asks]
    assert len(set(salts)) == len(salts) == 5  # the probe's too
    return got


def test_counters_are_pooled(face: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, _ = run(face, tmp_path, {0: Reply(stream=HEAD + counted([5, 0, 0]) + END)})
    assert code == 0
    overall = json.loads(face("report", out.strip(), "--format", "json")[1])["overall"]
    # three times S 4 A 5, and S 5 A 0
    assert (overall["steps"], overall["accepted"], overall["drafted"], overall["k"]) == (17, 15, 34, 2)
    assert overall["acceptance_length"]["value"] == pytest.approx(1 + 15 / 17)
    assert overall["positions"] == pytest.approx([9 / 17, 6 / 17])


def test_streams_that_end_badly_give_no_figure(face: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    died = b'data: {"error":{"message":"engine process died","code":500}}\n\n'
    bad = {
        0: Reply(stream=HEAD + b'data: {"object":"chat.completion.chunk","choices":[{"ind'),
        1: Reply(stream=HEAD + END),
        2: Reply(stream=HEAD + died + END),
        3: Reply(stream=b""),
    }
    code, out, err = run(face, tmp_path, bad)
    assert code == 5
    assert "3 of 4 requests failed" in err.splitlines()[-1]
    code, text, _ = face("report", out.strip(), "--format", "json", "--partial")
    assert code == 3
    overall = json.loads(text)["overall"]
    assert (overall["acceptance_length"], overall["acceptance_rate"], overall["coverage"]) == (None, None, 0.0)
    requests = overall["requests"]
    assert {name: requests[name] for name in ("sent", "failed", "ok", "measured")} == {
        "sent": 4,
        "failed": 3,
        "ok": 1,
        "measured": 0,
    }
    assert requests["failed_by"] == {"empty body": 1, "server error": 1, "stream ended before [DONE]": 1}
    (reason,) = requests["no_counters_by"]
    assert reason.startswith("no usage chunk")
    table = face("report", out.strip(), "--partial")[1]
    assert "| overall, pooled | — | — | — | — | 0 |" in table
    assert "1.0000" not in table


def test_answers_that_keep_their_counters_back_lower_the_coverage(
    face: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    null = Reply(stream=HEAD + counted([1, 1], metrics=None) + END)
    code, out, err = run(face, tmp_path, {3: null})
    assert code == 5
    assert "coverage 75.0% is below 95%: 3 of 4" in err.splitlines()[-1]
    assert "metrics null" in (Path(out.strip()) / "report.md").read_text(encoding="utf-8")
    assert "--per-request-spec-decode-metrics" in err


def test_server_without_counters_is_found_out_before_the_first_prompt(
    face: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    suite = write_suite(tmp_path / "suite", prompts=4)
    with LlamaCppServer(lambda _: Reply(stream=HEAD + counted([1, 1], metrics=None) + END)) as server:
        code, out, err = face("run", suite, "--engine", "vllm", "--base-url", server.url, "--out", tmp_path / "results")
        assert len(server.asks) == 1
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert "no counters in its answers (metrics null)" in err
    assert "--per-request-spec-decode-metrics" in err
