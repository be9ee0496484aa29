"""SGLang's and TensorRT-LLM's formats, which are built from their schemas: what the payloads in tests/data have."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from spec_eval.engines import ENGINES
from spec_eval.engines.endpoint import Endpoint
from tests.emulator.asking import chat, completion, get, paths, post, stream
from tests.emulator.server import EmulatorServer
from tests.factories import DATA

DETAILS: dict[str, Any] = {"return_spec_tokens_details": True}


@pytest.fixture(scope="module")
def sglang() -> Iterator[str]:
    with EmulatorServer(like="sglang") as server:
        yield server.url


@pytest.fixture(scope="module")
def trtllm() -> Iterator[str]:
    with EmulatorServer(like="trtllm") as server:
        yield server.url


def built(engine: str, name: str) -> Any:
    return json.loads((DATA / engine / name).read_text(encoding="utf-8"))


def test_sglang_has_every_place_of_its_payload(sglang: str) -> None:
    found = chat(sglang, max_tokens=24, **DETAILS)
    assert paths(built("sglang", "chat.json")) - paths(found) == set()
    details = found["sglext"]["spec_tokens_details"]
    assert set(details) == set(built("sglang", "chat.json")["sglext"]["spec_tokens_details"])
    steps, accepted = details["spec_verify_ct"], details["spec_num_correct_drafts"]
    assert details["spec_num_proposed_drafts"] == 8 * steps
    assert details["spec_accept_length"] == 24 / steps
    histogram = details["spec_correct_drafts_histogram"]
    assert (sum(histogram), sum(j * n for j, n in enumerate(histogram))) == (steps, accepted)
    assert histogram[-1] > 0


def test_sglang_counts_only_where_it_is_asked_to(sglang: str) -> None:
    assert "sglext" not in chat(sglang, max_tokens=24)
    assert not [event for event in stream(sglang, max_tokens=24) if "sglext" in event]
    several = chat(sglang, max_tokens=24, n=2, **DETAILS)["sglext"]["spec_tokens_details"]
    assert len(several) == 2


def test_sglang_streams_counters_and_usage_in_events_of_their_own(sglang: str) -> None:
    found = stream(sglang, max_tokens=24, **DETAILS)
    whole = chat(sglang, max_tokens=24, **DETAILS)
    assert [len(event["choices"]) for event in found] == [1, 1, 1, 0, 0]
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    assert found[2]["choices"][0]["finish_reason"] == "length"
    assert found[3]["sglext"] == whole["sglext"]
    assert found[4]["usage"] == whole["usage"]
    assert found[1]["choices"][0]["delta"]["content"] == whole["choices"][0]["message"]["content"]


def test_sglang_spells_reasoning_its_way(sglang: str) -> None:
    asked: dict[str, Any] = {"max_tokens": 40, "chat_template_kwargs": {"enable_thinking": True}}
    whole = chat(sglang, **asked)
    assert len(whole["choices"][0]["message"]["reasoning_content"].split()) == 20
    assert whole["usage"]["reasoning_tokens"] == 20
    deltas = [event["choices"][0]["delta"] for event in stream(sglang, **asked) if event["choices"]]
    reasoning = "".join(delta["reasoning_content"] or "" for delta in deltas)
    assert reasoning == whole["choices"][0]["message"]["reasoning_content"]


def test_sglang_completion_and_errors(sglang: str) -> None:
    found = completion(sglang, max_tokens=24, **DETAILS)
    assert set(found["choices"][0]) == {"index", "text", "logprobs", "finish_reason", "matched_stop"}
    assert stream(sglang, "completions", max_tokens=24)[0]["choices"][0]["text"] == found["choices"][0]["text"]
    status, text = post(f"{sglang}/chat/completions", {"messages": []})
    error = json.loads(text)
    assert (status, error["object"], error["code"]) == (400, "error", 400)


def test_sglang_says_k_as_it_counts_and_has_no_totals(sglang: str) -> None:
    root = sglang.removesuffix("/v1")
    info = json.loads(get(f"{root}/server_info"))
    assert (info["speculative_num_draft_tokens"], info["version"]) == (9, "0.5.23+emulator")
    assert json.loads(get(f"{root}/get_server_info")) == info
    page = get(f"{root}/metrics")
    assert "sglang:spec_accept_length{" in page
    assert "num_drafts" not in page
    identity = ENGINES["sglang"].identify(Endpoint.at(sglang))
    assert (identity.k, identity.k_flag, identity.tree) == (8, "speculative_num_draft_tokens 9", False)


def test_trtllm_has_every_place_of_its_payload(trtllm: str) -> None:
    found = chat(trtllm, max_tokens=24)
    assert paths(built("trtllm", "chat.json")) - paths(found) == set()
    choice = found["choices"][0]
    counters = choice["speculative_decoding"]
    assert set(counters) == set(built("trtllm", "chat.json")["choices"][0]["speculative_decoding"])
    assert counters["total_draft_tokens"] == 8 * counters["num_spec_steps"]
    assert choice["avg_decoded_tokens_per_iter"] == 24 / (1 + counters["num_spec_steps"])


def test_trtllm_streams_its_counters_on_the_choice_that_ends(trtllm: str) -> None:
    found, whole = stream(trtllm, max_tokens=24), chat(trtllm, max_tokens=24)
    assert [len(event["choices"]) for event in found] == [1, 1, 0]
    assert "speculative_decoding" not in found[0]["choices"][0]
    last = found[1]["choices"][0]
    assert last["speculative_decoding"] == whole["choices"][0]["speculative_decoding"]
    assert last["delta"]["content"] == whole["choices"][0]["message"]["content"]
    assert found[2]["usage"] == whole["usage"]


def test_trtllm_spells_reasoning_its_way(trtllm: str) -> None:
    asked: dict[str, Any] = {"max_tokens": 40, "chat_template_kwargs": {"enable_thinking": True}}
    whole = chat(trtllm, **asked)["choices"][0]["message"]
    deltas = [event["choices"][0]["delta"] for event in stream(trtllm, **asked) if event["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == whole["reasoning_content"]
    assert "".join(delta.get("content", "") for delta in deltas) == whole["content"]


def test_trtllm_counts_drafts_and_no_steps(trtllm: str) -> None:
    root = trtllm.removesuffix("/v1")
    chat(trtllm, max_tokens=24)
    page = get(f"{root}/prometheus/metrics")
    assert "trtllm_spec_decode_num_draft_tokens_total{" in page
    assert "num_drafts" not in page
    assert json.loads(get(f"{root}/version")) == {"version": "1.2.0+emulator"}
    assert stream(trtllm, "completions", max_tokens=24)[0]["choices"][0]["finish_reason"] == "length"
