"""vLLM's format, place by place against answers that a vLLM 0.32.0 sent."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.emulator.asking import chat, completion, events, get, paths, post, stream
from tests.emulator.server import EmulatorServer
from tests.factories import DATA

SHORT: dict[str, Any] = {"max_tokens": 24, "temperature": 0.0}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmulatorServer(detail="detailed") as server:
        yield server.url


@pytest.fixture(scope="module")
def summary() -> Iterator[str]:
    with EmulatorServer() as server:
        yield server.url


def recorded(name: str) -> Any:
    return json.loads((DATA / "vllm" / "whole" / name).read_text(encoding="utf-8"))


def recorded_events(name: str) -> list[Any]:
    return events((DATA / "vllm" / name).read_text(encoding="utf-8").rstrip("\n") + "\n\n")


def shapes(found: list[Any]) -> list[tuple[str, ...]]:
    """The kinds of events, in the order of their first appearance."""
    return list(dict.fromkeys(tuple(sorted(paths(event))) for event in found))


def test_whole_chat(url: str) -> None:
    assert paths(chat(url, **SHORT)) == paths(recorded("chat.json"))


def test_whole_chat_of_two_answers_has_no_metrics(url: str) -> None:
    found = chat(url, n=2, **SHORT)
    assert paths(found) == paths(recorded("chat-n2.json"))
    assert found["metrics"] is None
    assert [choice["index"] for choice in found["choices"]] == [0, 1]
    assert found["choices"][0]["message"]["content"] != found["choices"][1]["message"]["content"]


def test_whole_completion(url: str) -> None:
    assert paths(completion(url, **SHORT)) == paths(recorded("completion.json"))


def test_completion_of_one_token_has_zeros_and_no_steps(url: str) -> None:
    found, real = completion(url, max_tokens=1), recorded("completion-one-token.json")
    assert paths(found) == paths(real)
    counters = found["metrics"]["speculative_decoding"]
    assert counters == real["metrics"]["speculative_decoding"] | {
        "acceptance_histogram": [0] * 9,
        "num_spec_tokens": 8,
    }
    assert found["metrics"]["mean_itl_ms"] is None
    assert found["usage"]["completion_tokens"] == 1


def test_two_prompts_in_one_request_have_no_metrics(url: str) -> None:
    found = completion(url, prompt=["One.", "Another one."], **SHORT)
    assert paths(found) == paths(recorded("completion-two-prompts.json"))
    assert found["usage"]["prompt_tokens"] == 1 + 3  # bytes / 4, rounded up
    assert found["usage"]["completion_tokens"] == 48


@pytest.mark.parametrize(
    ("kind", "name"),
    [("chat/completions", "draft-detailed.chat.stream.txt"), ("completions", "completion.stream.txt")],
)
def test_streams_of_both_kinds(kind: str, name: str, url: str) -> None:
    # enough tokens for several chunks, which a chunk of the recorded ones has one step of
    found = stream(url, kind, max_tokens=600, ignore_eos=True)
    assert shapes(found) == shapes(recorded_events(name))
    assert found[-1]["choices"] == []


def test_stream_with_a_summary_leaves_the_steps_out(summary: str) -> None:
    counters = stream(summary, **SHORT)[-1]["metrics"]["speculative_decoding"]
    real = recorded_events("ngram-summary.chat.stream.txt")[-1]["metrics"]["speculative_decoding"]
    assert list(counters) == list(real)
    whole = chat(summary, **SHORT)["metrics"]["speculative_decoding"]
    assert (whole["per_step_accepted"], whole["per_step_drafted"]) == (None, None)


def test_stream_without_usage_has_the_fingerprint_on_its_last_chunk(url: str) -> None:
    found = stream(url, usage=False, max_tokens=600, ignore_eos=True)
    assert shapes(found) == shapes(recorded_events("chat.stream-no-usage.txt"))


def test_counters_add_up_to_the_tokens(url: str) -> None:
    found = chat(url, max_tokens=5000)
    counters, usage = found["metrics"]["speculative_decoding"], found["usage"]
    assert found["choices"][0]["finish_reason"] == "stop"
    assert counters["num_spec_steps"] == 125
    assert usage["completion_tokens"] == 1 + 125 + counters["num_accepted_draft_tokens"]
    assert counters["num_draft_tokens"] == 125 * 8
    assert sum(counters["per_step_accepted"]) == counters["num_accepted_draft_tokens"]
    assert [counters["per_step_accepted"].count(j) for j in range(9)] == counters["acceptance_histogram"]
    assert len(found["choices"][0]["message"]["content"].split()) == usage["completion_tokens"]


def test_last_step_is_not_clipped_at_the_limit(url: str) -> None:
    found = chat(url, max_tokens=2)
    counters = found["metrics"]["speculative_decoding"]
    whole = chat(url, max_tokens=5000)["metrics"]["speculative_decoding"]
    assert found["choices"][0]["finish_reason"] == "length"
    assert found["usage"]["completion_tokens"] == 2
    assert counters["per_step_accepted"] == whole["per_step_accepted"][:1]
    assert counters["num_draft_tokens"] == 8


def test_streamed_text_and_counters_are_those_of_the_whole_answer(url: str) -> None:
    whole, found = chat(url, max_tokens=5000), stream(url, max_tokens=5000)
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in found if event["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert found[-1]["metrics"]["speculative_decoding"] == whole["metrics"]["speculative_decoding"]
    assert found[-1]["usage"] == {name: n for name, n in whole["usage"].items() if n is not None}


def test_stop_string_ends_the_text_before_it_and_takes_the_counters_away(url: str) -> None:
    words = chat(url, max_tokens=5000)["choices"][0]["message"]["content"].split()
    found = chat(url, max_tokens=5000, stop=[words[20]])
    choice = found["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", words[20])
    assert choice["message"]["content"] == " ".join(words[:20]) + " "
    assert found["usage"]["completion_tokens"] == 21
    assert found["metrics"]["speculative_decoding"] is None
    streamed = stream(url, max_tokens=5000, stop=[words[20]])
    text = "".join(event["choices"][0]["delta"]["content"] for event in streamed if event["choices"])
    assert text == choice["message"]["content"]
    assert "speculative_decoding" not in streamed[-1]["metrics"]


def test_stop_token_ends_the_text_and_leaves_the_counters(url: str) -> None:
    words = chat(url, max_tokens=5000)["choices"][0]["message"]["content"].split()
    syllables = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "za")
    one, two, three = (syllables.index(words[20][i : i + 2]) for i in (0, 2, 4))
    token = one * 256 + two * 16 + three
    found = chat(url, max_tokens=5000, stop_token_ids=[token])
    assert (found["choices"][0]["finish_reason"], found["choices"][0]["stop_reason"]) == ("stop", token)
    assert found["usage"]["completion_tokens"] == 21
    steps = found["metrics"]["speculative_decoding"]["per_step_accepted"]
    delivered = [1 + sum(a + 1 for a in steps[:n]) for n in range(len(steps) + 1)]
    assert delivered[-2] < 21 <= delivered[-1]


def test_thinking_is_spelt_as_vllm_does_and_only_where_it_is_asked_for(url: str) -> None:
    asked: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}, "max_tokens": 40}
    message = chat(url, **asked)["choices"][0]["message"]
    assert len(message["reasoning"].split()) == len(message["content"].split()) == 20
    assert chat(url, max_tokens=40)["choices"][0]["message"]["reasoning"] is None
    deltas = [event["choices"][0]["delta"] for event in stream(url, **asked) if event["choices"]]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == message["reasoning"]
    assert "".join(delta.get("content") or "" for delta in deltas) == message["content"]


def test_ignore_eos_goes_on_to_the_limit(url: str) -> None:
    found = chat(url, max_tokens=3000, ignore_eos=True)
    assert found["usage"]["completion_tokens"] == 3000
    assert found["choices"][0]["finish_reason"] == "length"


def test_cached_tokens_are_told_where_the_flag_is_on() -> None:
    with EmulatorServer(prompt_details=True) as server:
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": "w" * 400}], "max_tokens": 4}
        first, again = (chat(server.url, **asked)["usage"] for _ in range(2))
        salted = chat(server.url, **asked, cache_salt="s")["usage"]
        streamed = stream(server.url, **asked)[-1]["usage"]
    assert first["prompt_tokens_details"] == {"cached_tokens": 0, "created_cache_tokens": 0, "multimodal_tokens": None}
    # 3 + 4 + 100 tokens; whole blocks of 16 in the 106 before the last: 96
    assert (first["prompt_tokens"], again["prompt_tokens_details"]["cached_tokens"]) == (107, 96)
    assert salted["prompt_tokens_details"]["cached_tokens"] == 0
    assert streamed["prompt_tokens_details"] == {"cached_tokens": 96, "created_cache_tokens": 0}


def test_pages(url: str) -> None:
    root = url.removesuffix("/v1")
    assert paths(json.loads(get(f"{url}/models"))) == paths(recorded("models.json"))
    assert paths(json.loads(get(f"{root}/version"))) == paths(recorded("version.json"))
    info = json.loads(get(f"{root}/server_info?config_format=json"))
    real = json.loads((DATA / "vllm" / "server-info.json").read_text(encoding="utf-8"))
    assert paths(real) - paths(info) == {".vllm_config.cache_config.block_size"}
    assert info["vllm_config"]["speculative_config"]["num_speculative_tokens"] == 8
    counted = json.loads(post(f"{root}/tokenize", {"messages": [{"role": "user", "content": "w" * 400}]})[1])
    assert (counted["count"], len(counted["tokens"]), counted["max_model_len"]) == (107, 107, 1_048_576)


def families(text: str) -> set[str]:
    """Heads, and samples without values; positions share one."""
    lines = [line for line in text.splitlines() if "vllm:spec_decode" in line]
    return {line.partition(' position="')[0].split("} ")[0].partition(',position="')[0] for line in lines}


def test_totals_have_the_recorded_families_and_move_with_the_answers(url: str) -> None:
    text = get(url.removesuffix("/v1") + "/metrics").replace("emulated-model", "smol")
    assert families(text) == families((DATA / "vllm" / "metrics.txt").read_text(encoding="utf-8"))
    with EmulatorServer() as server:
        chat(server.url, max_tokens=5000)
        found = stream(server.url, messages=[{"role": "user", "content": "More."}], max_tokens=50)
        totals = server.emulator.totals.each[0]
    assert totals.steps == 125 + found[-1]["metrics"]["speculative_decoding"]["num_spec_steps"]
    assert totals.finished == {"stop": 1, "length": 1}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": "other"}, 404, "The model `other` does not exist."),
        ({"messages": []}, 400, "messages must be a list"),
        ({"max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ({"max_tokens": 2_000_000}, 400, "maximum context length is 1048576 tokens"),
        ({"seed": "x", "n": "many"}, 400, "unreadable request"),
    ],
)
def test_requests_that_cannot_be_are_refused_in_vllms_words(
    body: dict[str, Any], status: int, words: str, url: str
) -> None:
    got, text = post(f"{url}/chat/completions", {"messages": [{"role": "user", "content": "hi"}], **body})
    error = json.loads(text)["error"]
    assert (got, error["code"]) == (status, status)
    assert words in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
