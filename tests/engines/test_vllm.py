import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from spec_eval.drivers.answer import Answer
from spec_eval.drivers.chat import ChatRequest, ChatResult, open_client
from spec_eval.engines.base import Reading
from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.scrape import Totals, delta, parse
from spec_eval.engines.vllm import MetricsReader, Vllm
from spec_eval.records import SpecCounters, breach
from tests.factories import DATA
from tests.llamacpp_server import LlamaCppServer, Reply

RECORDED = DATA / "vllm"


def events(name: str) -> list[dict[str, Any]]:
    """A recorded body, or the events of a recorded stream."""
    text = (RECORDED / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        return [json.loads(text)]
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]


def read(given: list[dict[str, Any]], k: int | None = None, *, nominal_drafts: bool = False) -> Reading:
    reader = Vllm().reader(k, nominal_drafts=nominal_drafts)
    for event in given:
        reader.event(event)
    return reader.reading()


def completion_tokens(given: list[dict[str, Any]]) -> int | None:
    found = [event["usage"]["completion_tokens"] for event in given if event.get("usage")]
    return int(found[-1]) if found else None


def counted(given: list[dict[str, Any]], **options: Any) -> SpecCounters:
    """Counters that keep every identity."""
    reading = read(given, **options)
    assert reading.reason is None
    assert reading.counters is not None
    assert breach(reading.counters, completion_tokens(given)) is None
    return reading.counters


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


def body_with(**fields: Any) -> dict[str, Any]:
    """A chat body with k 2: three steps that accepted 0, 1 and 2 of six drafts; `fields` change its counters."""
    counters: dict[str, Any] = {
        "mean_acceptance_length": 2.0,
        "draft_acceptance_rate": 0.5,
        "acceptance_histogram": [1, 1, 1],
        "num_spec_steps": 3,
        "num_accepted_draft_tokens": 3,
        "num_draft_tokens": 6,
        "num_spec_tokens": 2,
        "per_step_accepted": [0, 1, 2],
        "per_step_drafted": [2, 2, 2],
    }
    counters |= fields
    counters = {name: value for name, value in counters.items() if value is not ...}
    choice = {"index": 0, "message": {"content": "ok"}, "finish_reason": "stop", "stop_reason": None}
    usage = {"prompt_tokens": 5, "completion_tokens": 7}
    return {"choices": [choice], "usage": usage, "metrics": {"speculative_decoding": counters}}


def verdict(**fields: Any) -> str | None:
    reading = read([body_with(**fields)])
    assert reading.counters is not None
    return breach(reading.counters, 7)


def test_made_body_keeps_every_identity() -> None:
    assert verdict() is None


def test_older_body_without_k_takes_the_given_one() -> None:
    old = body_with(num_spec_tokens=..., acceptance_histogram=[1, 1, 1])
    assert counted([old], k=4).k == 4
    assert counted([old], k=4).histogram == (1, 1, 1, 0, 0)
    null = body_with(num_spec_tokens=None)
    assert counted([null], k=4).k == 4


def test_older_body_without_k_and_none_given_takes_the_histograms() -> None:
    assert counted([body_with(num_spec_tokens=...)]).k == 2


@pytest.mark.parametrize("histogram", [..., None, [], "many"])
def test_k_that_nobody_names_is_asked_for(histogram: object) -> None:
    body = body_with(num_spec_tokens=..., acceptance_histogram=histogram)
    reading = read([body])
    assert (reading.counters, reading.reason) == (None, "k not in the answer: give --k")
    assert reading.raw == body["metrics"]["speculative_decoding"]
    assert read([body], k=2).counters is not None


def test_k_in_the_answer_wins_over_the_given_one() -> None:
    assert counted([body_with()], k=5).k == 2


def test_key_that_nobody_knows_is_kept_as_sent() -> None:
    newer = {"acceptance_histogram_by_draft_length": {"2": [1, 1, 1]}}
    reading = read([body_with(**newer)])
    assert reading.counters == read([body_with()]).counters
    assert reading.raw["acceptance_histogram_by_draft_length"] == {"2": [1, 1, 1]}
    assert reading.raw["mean_acceptance_length"] == 2.0


def test_short_histogram_is_padded_with_zeros() -> None:
    counters = counted([body_with(num_spec_tokens=5)])
    assert (counters.k, counters.histogram) == (5, (1, 1, 1, 0, 0, 0))


def test_tail_of_zeros_past_k_is_cut() -> None:
    assert counted([body_with(acceptance_histogram=[1, 1, 1, 0, 0])]).histogram == (1, 1, 1)


def test_tail_past_k_that_is_not_zero_is_invalid() -> None:
    # one step is said to have accepted 3 of at most 2 drafts
    tail = {"acceptance_histogram": [2, 0, 0, 1], "per_step_accepted": None}
    assert verdict(**tail) == "histogram is not k + 1 long"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"num_accepted_draft_tokens": 5, "num_draft_tokens": 4}, "accepted > drafted"),
        ({"num_accepted_draft_tokens": 7}, "accepted > k x steps"),
        ({"num_draft_tokens": 2, "num_accepted_draft_tokens": 2}, "steps > drafted"),
        ({"num_draft_tokens": 7}, "drafted > k x steps"),
        ({"num_spec_steps": 8, "num_draft_tokens": 16}, "steps > completion tokens"),
        ({"acceptance_histogram": [2, 1, 1]}, "histogram sum != steps"),
        ({"acceptance_histogram": [0, 1, 2]}, "histogram weight != accepted"),
        ({"per_step_accepted": [1, 1, 1]}, "per-step accepted does not give the histogram"),
        ({"per_step_accepted": [0, 1]}, "per-step accepted does not add up"),
        ({"per_step_drafted": [2, 2, 1]}, "per-step drafted does not add up"),
        (
            {"per_step_drafted": [2, 0, 2], "num_draft_tokens": 4},
            "a step drafted more than k",
        ),
        (
            {"per_step_accepted": [0, 2, 1], "per_step_drafted": [2, 1, 2], "num_draft_tokens": 5},
            "a step accepted more",
        ),
    ],
)
def test_counters_that_contradict_themselves_are_invalid_by_name(fields: dict[str, Any], name: str) -> None:
    found = verdict(**fields)
    assert found is not None
    assert found.startswith(name)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, 3.0, -1, "3"])
@pytest.mark.parametrize(
    "field", ["num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens", "num_spec_tokens"]
)
def test_what_is_no_count_is_invalid_by_name(field: str, value: object) -> None:
    assert verdict(**{field: value}) == "not an integer count"


@pytest.mark.parametrize("value", [float("nan"), True, 1.0, -1, "1", None])
@pytest.mark.parametrize("field", ["acceptance_histogram", "per_step_accepted", "per_step_drafted"])
def test_what_is_no_count_within_a_list_is_invalid_by_name(field: str, value: object) -> None:
    changed = [1, value, 1] if field == "acceptance_histogram" else [value, 1, 2]
    assert verdict(**{field: changed}) == "not an integer count"


@pytest.mark.parametrize("field", ["num_spec_steps", "num_accepted_draft_tokens"])
@pytest.mark.parametrize("value", [None, ...])
def test_missing_sum_is_no_counters(field: str, value: object) -> None:
    reading = read([body_with(**{field: value})])
    assert (reading.counters, reading.reason) == (None, f"no {field} in the answer")


def test_both_missing_sums_are_named() -> None:
    reading = read([body_with(num_spec_steps=None, num_accepted_draft_tokens=None)])
    assert reading.reason == "no num_spec_steps and no num_accepted_draft_tokens in the answer"


def test_nominal_drafts_are_not_kept() -> None:
    # adaptive verification: the server verified fewer drafts than it counts
    counters = counted([body_with(num_draft_tokens=2)], nominal_drafts=True)
    assert (counters.steps, counters.accepted, counters.drafted, counters.per_step_drafted) == (3, 3, None, None)
    assert counters.per_step_accepted == (0, 1, 2)


def test_missing_drafts_are_null_and_not_zero() -> None:
    assert counted([body_with(num_draft_tokens=..., per_step_drafted=...)]).drafted is None


def test_each_request_has_a_salt_of_its_own() -> None:
    salts = [Vllm().extra_body()["cache_salt"] for _ in range(100)]
    assert len(set(salts)) == 100
    assert all(isinstance(salt, str) and len(salt) >= 16 for salt in salts)


def test_warm_cache_sends_no_salt() -> None:
    assert Vllm().extra_body(cold_cache=False) == {}


def test_recorded_metrics_are_the_servers_totals() -> None:
    text = (RECORDED / "metrics.txt").read_text(encoding="utf-8")
    totals = parse(text, "vllm:")
    assert totals == Totals(steps=147, drafted=588, accepted=473, positions=(119, 118, 118, 118))
    assert totals.consistent


def test_metrics_of_two_engines_are_summed() -> None:
    first = (RECORDED / "metrics.txt").read_text(encoding="utf-8")
    samples = [line for line in first.splitlines() if not line.startswith("#")]
    second = [line.replace('engine="0"', 'engine="1"') for line in samples]
    both = parse(first + "\n".join(second) + "\n", "vllm:")
    assert both == Totals(steps=294, drafted=1176, accepted=946, positions=(238, 236, 236, 236))


def exposition(*engines: tuple[int, int, int, tuple[int, ...]]) -> str:
    lines = []
    for number, (steps, drafted, accepted, positions) in enumerate(engines):
        label = f'engine="{number}",model_name="org/model"'
        for name, value in (("drafts", steps), ("draft_tokens", drafted), ("accepted_tokens", accepted)):
            lines.append(f"vllm:spec_decode_num_{name}_total{{{label}}} {value}.0")
            lines.append(f"vllm:spec_decode_num_{name}_created{{{label}}} 1.788e+09")
        for place, value in enumerate(positions):
            name = "vllm:spec_decode_num_accepted_tokens_per_pos"
            lines.append(f'{name}_total{{{label},position="{place}"}} {value}.0')
            lines.append(f'{name}_created{{{label},position="{place}"}} 1.788e+09')
    return "\n".join(lines) + "\n"


def test_label_zero_is_position_one_and_engines_are_summed_before_the_difference() -> None:
    before, after = (
        parse(exposition((10, 30, 12, (7, 4, 1)), (20, 60, 30, (15, 9, 6))), "vllm:"),
        parse(exposition((50, 150, 72, (37, 24, 11)), (80, 240, 130, (65, 39, 26))), "vllm:"),
    )
    assert before is not None
    assert after is not None
    found = delta(before, after)
    # 40 + 60 steps, 120 + 180 drafts; positions 30 + 50, 20 + 30, 10 + 20
    assert found == Totals(steps=100, drafted=300, accepted=160, positions=(80, 50, 30))
    assert found.consistent
    assert 1 + found.accepted / found.steps == pytest.approx(1 + sum(found.positions) / found.steps)


# What the server says of itself.


@pytest.fixture
def server() -> Iterator[LlamaCppServer]:
    pages = {
        "/v1/models": (200, "application/json", (RECORDED / "models.json").read_text(encoding="utf-8")),
        "/version": (200, "application/json", '{"version":"0.32.0"}'),
        "/server_info": (200, "application/json", (RECORDED / "server-info.json").read_text(encoding="utf-8")),
    }
    with LlamaCppServer(pages=pages) as running:
        yield running


def test_server_in_development_mode_tells_everything(server: LlamaCppServer) -> None:
    found = Vllm().identify(Endpoint(server.root))
    assert (found.models, found.version, found.context) == (("smol",), "0.32.0", 2048)
    assert (found.speculative, found.k, found.adaptive, found.draft_sampling) == (True, 4, False, "greedy")
    assert (found.prefix_caching, found.tensor_parallelism) == (True, 1)
    assert found.details == {"model_root": "/models/SmolLM2-135M-Instruct", "method": "draft_model"}


@pytest.mark.parametrize("info", [(404, "application/json", '{"detail":"Not Found"}'), (200, "text/html", "<html>")])
def test_server_outside_of_it_leaves_the_rest_open(server: LlamaCppServer, info: tuple[int, str, str]) -> None:
    server.pages["/server_info"] = info
    found = Vllm().identify(Endpoint(server.root))
    assert (found.models, found.version, found.context) == (("smol",), "0.32.0", 2048)
    assert (found.speculative, found.k, found.adaptive, found.prefix_caching) == (None, None, None, None)


def test_server_without_a_drafter_says_so(server: LlamaCppServer) -> None:
    info = json.loads(server.pages["/server_info"][2])
    info["vllm_config"]["speculative_config"] = None
    server.pages["/server_info"] = (200, "application/json", json.dumps(info))
    found = Vllm().identify(Endpoint(server.root))
    assert (found.speculative, found.k) == (False, None)


def test_prompt_is_counted_by_the_server(server: LlamaCppServer) -> None:
    messages = [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "three"}]
    assert Vllm().count_prompt(Endpoint(server.root), "smol", messages) == 3
    server.tokenizer = False
    assert Vllm().count_prompt(Endpoint(server.root), "smol", messages) is None


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


async def asked(reply: Reply) -> tuple[ChatResult, dict[str, Any]]:
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
