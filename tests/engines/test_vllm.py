import copy
from typing import Any

import pytest

from spec_eval.drivers.answer import Answer
from spec_eval.drivers.chat import ChatRequest, open_client
from spec_eval.drivers.outcome import Outcome
from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.vllm import MetricsReader, Vllm
from tests.engines.vllm_answers import counted, events, read
from tests.llamacpp_server import LlamaCppServer, Reply

# S, A, D, h[0..k] and per-step drafts, read off the recorded payloads by hand.
FOURS = (4,) * 13
RIGHT: dict[str, tuple[int, int, int, tuple[int, ...], tuple[int, ...] | None]] = {
    # 64 tokens = 1 + 13 steps + 52 accepted - 2 past max_tokens
    "draft-detailed.chat.json": (13, 52, 52, (0, 0, 0, 0, 13), FOURS),
    "draft-detailed.chat.stream.txt": (13, 52, 52, (0, 0, 0, 0, 13), FOURS),
    "ngram-summary.chat.json": (9, 57, 72, (1, 1, 0, 0, 0, 0, 0, 0, 7), None),
    "ngram-summary.chat.stream.txt": (9, 57, 72, (1, 1, 0, 0, 0, 0, 0, 0, 7), None),
    # 1 + 3 + 7 + 8 + 2 + 8 + 0 + 5 + 5 = 39 accepted
    "completion.json": (9, 39, 72, (1, 1, 1, 1, 0, 2, 0, 1, 2), (8,) * 9),
    "completion.stream.txt": (10, 40, 40, (0, 0, 0, 0, 10), (4,) * 10),
    # one token comes from reading the prompt: no step at all, and no per-step lists
    "completion-one-token.json": (0, 0, 0, (0, 0, 0, 0, 0), None),
    # a stop token ends the answer inside the only step: 5 tokens = 1 + 1 + 3
    "stop-token-id.json": (1, 3, 8, (0, 0, 0, 1, 0, 0, 0, 0, 0), (8,)),
    "stop-token-id.stream.txt": (1, 3, 8, (0, 0, 0, 1, 0, 0, 0, 0, 0), (8,)),
    # a prefix-cache hit that left one token of the prompt: a first step of 8 placeholder drafts, none accepted
    "phantom.chat.json": (4, 24, 32, (1, 0, 0, 0, 0, 0, 0, 0, 3), (8, 8, 8, 8)),
    "phantom-one-token.chat.json": (1, 0, 8, (1, 0, 0, 0, 0, 0, 0, 0, 0), (8,)),
    # drafts of 1 to 4 tokens, and 7 decode steps with none: 64 tokens = 1 + 28 + 28 + 7
    "custom.chat.json": (
        28,
        28,
        66,
        (14, 5, 4, 5, 0),
        (3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 2, 3, 4, 1, 3, 2, 1, 3, 2, 1, 3, 2, 1, 3, 2),
    ),
    "suffix.chat.json": (10, 40, 45, (1, 5, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0), None),
}


@pytest.mark.parametrize("name", RIGHT)
def test_recorded_counters_are_read_as_they_are(name: str) -> None:
    steps, accepted, drafted, histogram, per_step_drafted = RIGHT[name]
    counters = counted(events(name))
    assert (counters.steps, counters.accepted, counters.drafted) == (steps, accepted, drafted)
    assert (counters.k, counters.histogram) == (len(histogram) - 1, histogram)
    assert counters.per_step_drafted == per_step_drafted
    assert (counters.per_step_accepted is None) == (per_step_drafted is None)
    assert (counters.source, counters.exact) == ("response", True)


def test_custom_drafter_tells_what_each_step_accepted() -> None:
    counters = counted(events("custom.chat.json"))
    accepted = (0,) * 9 + (1, 0, 0, 3, 0, 0, 0, 1, 3, 2, 1, 3, 2, 1, 3, 2, 1, 3, 2)
    assert counters.per_step_accepted == accepted
    assert len(accepted) == 28


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("chat-n2.json", "null, n=2"),
        ("completion-two-prompts.json", "null, n=2"),
        ("stop-string.json", "null, ended by a stop string"),
        ("stop-string.stream.txt", "null, ended by a stop string"),
        ("responses.json", "speculative_decoding null"),
        ("messages.json", "no metrics object"),
        (
            "chat.stream-no-usage.txt",
            "no usage chunk, which would carry the counters: ask for stream_options.include_usage",
        ),
    ],
)
def test_recorded_answers_without_counters_say_why(name: str, reason: str) -> None:
    reading = read(events(name), k=4)
    assert reading.counters is None
    assert reading.reason == reason


def test_stop_string_beside_timings_is_still_the_reason() -> None:
    # with timing metrics on, the object is there and only its counters are null
    body = events("stop-string.json")[0]
    body["metrics"] = {"time_to_first_token_ms": 254.7, "speculative_decoding": None}
    body["choices"][0]["stop_reason"] = "7"
    assert read([body]).reason == "null, ended by a stop string"
    body["choices"][0]["stop_reason"] = None
    assert read([body]).reason == "speculative_decoding null"


def test_second_choice_of_a_stream_counts_as_n() -> None:
    stream = events("chat.stream-no-usage.txt")
    stream[1]["choices"][0]["index"] = 1
    assert read(stream).reason == "null, n=2"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"metrics": None}, "metrics null"),
        ({"metrics": {}}, "metrics without speculative_decoding"),
        ({"metrics": {"time_to_first_token_ms": 80.1}}, "metrics without speculative_decoding"),
        ({"metrics": {"speculative_decoding": []}}, "speculative_decoding null"),
        ({"metrics": [1]}, "no metrics object"),
        ({}, "no metrics object"),
    ],
)
def test_missing_and_null_are_told_apart_and_never_taken_for_zero(change: dict[str, Any], reason: str) -> None:
    body = {name: value for name, value in events("draft-detailed.chat.json")[0].items() if name != "metrics"}
    reading = read([body | change], k=4)
    assert (reading.counters, reading.reason) == (None, reason)


def test_each_request_has_a_salt_of_its_own() -> None:
    salts = [Vllm().extra_body()["cache_salt"] for _ in range(100)]
    assert len(set(salts)) == 100
    assert all(isinstance(salt, str) and len(salt) >= 16 for salt in salts)


def test_warm_cache_sends_no_salt() -> None:
    assert Vllm().extra_body(cold_cache=False) == {}


# Through the chat driver, as a run reads them.

STREAM = (
    b": keep-alive comment\n\n"
    + b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\r\n\r\n'
    + 'data: {"choices":[{"index":0,"delta":{"reasoning_content":"想 🤔"}}]}\n\n'.encode()
    + 'data: {"choices":[{"index":0,"delta":{"content":"naïve — 答案\u2028是 7 ✅"}}]}\n\n'.encode()
    + b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop","stop_reason":null}]}\n\n'
    + b'data: {"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":20,'
    + b'"completion_tokens_details":{"reasoning_tokens":4}},"metrics":{"speculative_decoding":{"acceptance_histogram":'
    + b'[2,1,4],"num_spec_steps":7,"num_accepted_draft_tokens":9,"num_draft_tokens":14,"num_spec_tokens":2}}}\n\n'
    + b"data: [DONE]\n\n"
)


def test_pieces_of_seven_bytes_lose_neither_text_nor_counters() -> None:
    answer = Answer(MetricsReader(None, nominal_drafts=False))
    for clock, start in enumerate(range(0, len(STREAM), 7), 1):
        answer.feed(STREAM[start : start + 7], clock)
    answer.close()
    assert ("".join(answer.reasoning), "".join(answer.text)) == ("想 🤔", "naïve — 答案\u2028是 7 ✅")
    # the first token is the first reasoning piece: its last byte arrives in this piece
    reasoning_ends = STREAM.index(b"\n\n", STREAM.index(b"reasoning_content")) + 2
    assert answer.first_token_ns == -(-reasoning_ends // 7)
    assert (answer.finish_reason, answer.count("completion_tokens")) == ("stop", 20)
    counters = answer.reader.reading().counters
    assert counters is not None
    assert (counters.steps, counters.accepted, counters.drafted, counters.k) == (7, 9, 14, 2)


async def asked(reply: Reply) -> tuple[Outcome, dict[str, Any]]:
    with LlamaCppServer(lambda _: reply) as running:
        async with open_client(Endpoint(running.root), Vllm(), k=None, concurrency=1) as client:
            result = await client.ask(ChatRequest("smol", ({"role": "user", "content": "Why?"},), {}))
        return result, running.asks[0].body


async def test_counters_in_the_last_chunk_without_choices_are_read() -> None:
    result, body = await asked(Reply(stream=STREAM, piece=7))
    assert (result.failure, result.finish_reason, result.text) == (None, "stop", "naïve — 答案\u2028是 7 ✅")
    assert (result.prompt_tokens, result.completion_tokens, result.reasoning_tokens) == (9, 20, 4)
    assert result.reading is not None
    assert result.reading.counters is not None
    assert (result.reading.counters.steps, result.reading.counters.accepted) == (7, 9)
    assert body["stream_options"] == {"include_usage": True}
    assert len(body["cache_salt"]) >= 16


HEAD = b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"part"}}]}\n\n'


@pytest.mark.parametrize(
    ("stream", "failure"),
    [
        (HEAD + b'data: {"object":"chat.completion.chunk","choices":[{"ind', "stream ended before [DONE]"),
        (
            HEAD + b'data: {"error":{"message":"engine died","code":500}}\n\ndata: [DONE]\n\n',
            "server error: engine died",
        ),
        (b"", "empty body"),
    ],
)
async def test_streams_that_end_badly_are_failures(stream: bytes, failure: str) -> None:
    result, _ = await asked(Reply(stream=stream))
    assert (result.failure, result.reading) == (failure, None)


async def test_stream_that_ends_without_usage_is_an_answer_without_counters() -> None:
    result, _ = await asked(Reply(stream=HEAD + b"data: [DONE]\n\n"))
    assert (result.failure, result.text) == (None, "part")
    assert result.reading is not None
    assert result.reading.counters is None
    assert "stream_options.include_usage" in str(result.reading.reason)


def test_body_is_not_changed_by_reading_it() -> None:
    body = events("draft-detailed.chat.json")[0]
    before = copy.deepcopy(body)
    read([body])
    assert body == before
