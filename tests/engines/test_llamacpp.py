import json
from typing import Any

import pytest

from spec_eval.acceptance import figures
from spec_eval.engines.base import Reading
from spec_eval.engines.llamacpp import LlamaCpp, TimingsReader
from spec_eval.records import breach
from spec_eval.stats import value, values
from tests.factories import DATA, answered

RECORDED = DATA / "llamacpp"


def recorded(name: str) -> list[dict[str, Any]]:
    lines = (RECORDED / name).read_bytes().split(b"\n")
    return [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: {")]


def chunk(token: int, drafted: object = None, accepted: object = None) -> dict[str, Any]:
    timings: dict[str, object] = {"predicted_n": token}
    if drafted is not None:
        timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
    return {"object": "chat.completion.chunk", "choices": [], "timings": timings}


def whole(**timings: object) -> dict[str, Any]:
    return {"object": "chat.completion", "choices": [], "timings": timings}


def read(events: list[dict[str, Any]], k: int | None = None) -> Reading:
    reader = TimingsReader(k)
    for event in events:
        reader.event(event)
    return reader.reading()


def steps_of(reading: Reading) -> list[tuple[int, int]]:
    assert reading.counters is not None
    drafted, accepted = reading.counters.per_step_drafted, reading.counters.per_step_accepted
    assert drafted is not None
    assert accepted is not None
    return list(zip(drafted, accepted, strict=True))


def test_recorded_stream_of_a_perfect_draft_model() -> None:
    # draft_n goes 5, 10, … 45, 49 and draft_n_accepted with it; 60 tokens = 1 + 10 steps + 49 accepted.
    reading = read(recorded("draft.chat.stream.tpt.txt"), k=5)
    counters = reading.counters
    assert counters is not None
    assert (counters.steps, counters.accepted, counters.drafted, counters.k) == (10, 49, 49, 5)
    assert counters.histogram == (0, 0, 0, 0, 1, 9)
    assert counters.per_step_drafted == (5, 5, 5, 5, 5, 5, 5, 5, 5, 4)
    assert counters.exact
    assert counters.source == "timings"
    assert breach(counters, completion_tokens=60) is None
    assert reading.raw == {"predicted_n": 60, "draft_n": 49, "draft_n_accepted": 49}


def test_recorded_stream_of_an_ngram_drafter_with_variable_drafts() -> None:
    # draft_n goes 8, 11, 14, 22, 25, 28, 31, 39, 47, 50, 58, 61, 65, 68; only the first step accepted, 4 tokens.
    reading = read(recorded("ngram-simple.chat.stream.tpt.txt"), k=8)
    counters = reading.counters
    assert counters is not None
    assert counters.per_step_drafted == (8, 3, 3, 8, 3, 3, 3, 8, 8, 3, 8, 3, 4, 3)
    assert counters.per_step_accepted == (4, *[0] * 13)
    assert (counters.steps, counters.accepted, counters.drafted) == (14, 4, 68)
    assert counters.histogram == (13, 0, 0, 0, 1, 0, 0, 0, 0)
    assert counters.exact
    assert breach(counters, completion_tokens=60) is None


def test_recorded_stream_read_as_figures() -> None:
    got = figures([answered(read(recorded("ngram-simple.chat.stream.tpt.txt"), k=8).counters)])
    assert got.acceptance_length is not None
    assert got.acceptance_length.value == pytest.approx(1 + 4 / 14)
    assert value(got.acceptance_rate) == pytest.approx(4 / 68)
    assert values(got.positions) == pytest.approx((1 / 14,) * 4 + (0.0,) * 4)
    # 14 steps drafted at least 3, 6 at least 4, 5 at least 5 to 8.
    assert got.conditional_positions == pytest.approx((1 / 14, 1 / 14, 1 / 14, 1 / 6, 0.0, 0.0, 0.0, 0.0))


@pytest.mark.parametrize(("name", "rate"), [("draft.chat.json", "100.00%"), ("ngram-simple.chat.json", "25.00%")])
def test_recorded_whole_answer_knows_the_rate_and_no_steps(name: str, rate: str) -> None:
    body = json.loads((RECORDED / name).read_text(encoding="utf-8"))
    reading = read([body], k=8)
    assert reading.counters is None
    assert reading.reason is not None
    assert reading.reason.startswith("steps not reported: ")
    assert rate in reading.reason
    assert reading.raw["draft_n"] == {"draft.chat.json": 20, "ngram-simple.chat.json": 8}[name]


def test_plain_tokens_between_steps_are_no_steps() -> None:
    events = [chunk(1), chunk(2), chunk(3, 4, 1), chunk(4, 4, 1), chunk(5, 4, 1), chunk(6, 6, 1), chunk(7, 6, 1)]
    reading = read(events, k=4)
    assert steps_of(reading) == [(4, 1), (2, 0)]
    assert reading.counters is not None
    assert reading.counters.exact


def test_steps_right_after_each_other_that_accept_nothing() -> None:
    reading = read([chunk(1), chunk(2, 3, 0), chunk(3, 6, 0), chunk(4, 9, 0)], k=3)
    assert steps_of(reading) == [(3, 0), (3, 0), (3, 0)]
    assert reading.counters is not None
    assert reading.counters.exact
    assert reading.counters.histogram == (3, 0, 0, 0)


def test_last_step_whose_first_token_ends_the_answer() -> None:
    # Tokens 2 to 4 are the first step's; the second one's first token is the end token, which has no text:
    # its counters come on the closing chunk.
    reading = read([chunk(1), chunk(2, 3, 2), chunk(3, 3, 2), chunk(4, 3, 2), chunk(5, 6, 2)], k=3)
    assert steps_of(reading) == [(3, 2), (3, 0)]
    assert reading.counters is not None
    assert reading.counters.exact


def test_last_step_told_without_a_further_token() -> None:
    reading = read([chunk(1), chunk(2, 3, 2), chunk(3, 3, 2), chunk(4, 3, 2), chunk(4, 6, 2)], k=3)
    assert steps_of(reading) == [(3, 2), (3, 0)]
    assert reading.counters is not None
    assert reading.counters.exact


def test_chunk_held_back_inside_a_known_step_stays_exact() -> None:
    # Step of tokens 2 to 6; 3 to 5 are held back; the next step begins at 7.
    reading = read([chunk(1), chunk(2, 4, 4), chunk(6, 4, 4), chunk(7, 8, 5)], k=4)
    assert steps_of(reading) == [(4, 4), (4, 1)]
    assert reading.counters is not None
    assert reading.counters.exact


def test_chunk_held_back_up_to_the_next_boundary_stays_exact() -> None:
    # Tokens 4 to 6 are held back; the chunk of token 7, first of the next step, is the next one seen.
    reading = read([chunk(1), chunk(2, 4, 4), chunk(3, 4, 4), chunk(7, 8, 5), chunk(8, 8, 5)], k=4)
    assert steps_of(reading) == [(4, 4), (4, 1)]
    assert reading.counters is not None
    assert reading.counters.exact


def test_chunk_held_back_over_a_boundary_is_inexact() -> None:
    # Tokens 2 and 3 are one step's; 4 is held back, 5 tells of 4 more drafts: one step at 4, or two.
    reading = read([chunk(1), chunk(2, 4, 1), chunk(3, 4, 1), chunk(5, 8, 1)], k=4)
    assert reading.counters is not None
    assert not reading.counters.exact
    assert breach(reading.counters, completion_tokens=5) == "steps may be merged"


def test_plain_tokens_held_back_without_a_step_stay_exact() -> None:
    reading = read([chunk(1), chunk(4), chunk(5, 3, 0)], k=3)
    assert steps_of(reading) == [(3, 0)]
    assert reading.counters is not None
    assert reading.counters.exact


def test_two_steps_told_at_once_are_not_taken_for_one() -> None:
    reading = read([chunk(1), chunk(2, 3, 0), chunk(5, 9, 1)], k=3)
    assert reading.counters is not None
    assert not reading.counters.exact


@pytest.mark.parametrize("events", [[chunk(1), chunk(2), chunk(3)], [whole(predicted_n=3)]])
def test_no_draft_fields_mean_that_nothing_was_proposed(events: list[dict[str, Any]]) -> None:
    counters = read(events, k=4).counters
    assert counters is not None
    assert (counters.steps, counters.accepted, counters.drafted) == (0, 0, 0)
    assert counters.histogram == (0, 0, 0, 0, 0)
    assert breach(counters, completion_tokens=3) is None


@pytest.mark.parametrize("events", [[], [{"object": "chat.completion.chunk", "choices": []}], [{"timings": None}]])
def test_no_timings_is_no_counters(events: list[dict[str, Any]]) -> None:
    reading = read(events, k=4)
    assert reading.counters is None
    assert reading.reason == "no timings in the answer"
    assert reading.raw is None


@pytest.mark.parametrize("bad", [2.5, "3", True, None, -1, float("nan"), [3]])
@pytest.mark.parametrize("field", ["draft_n", "draft_n_accepted", "predicted_n"])
def test_timings_that_are_not_counts_are_refused(field: str, bad: object) -> None:
    event = chunk(4, 6, 3)
    event["timings"][field] = bad
    reading = read([chunk(1), event], k=6)
    assert reading.counters is None
    assert reading.reason == "timings are not counts"


def test_timings_that_are_not_counts_are_kept_as_sent() -> None:
    reading = read([chunk(1), chunk(4, 6.5, 3)], k=6)
    assert reading.raw == {"predicted_n": 4, "draft_n": 6.5, "draft_n_accepted": 3}


@pytest.mark.parametrize("back", [chunk(3, 2, 1), chunk(3, 8, 0)])
def test_timings_that_go_down_are_refused(back: dict[str, Any]) -> None:
    reading = read([chunk(1), chunk(2, 4, 1), back], k=4)
    assert reading.counters is None
    assert reading.reason == "timings are not counts"


def test_without_k_the_longest_draft_stands_for_it() -> None:
    counters = read([chunk(1), chunk(2, 2, 1), chunk(3, 2, 1), chunk(4, 7, 1)]).counters
    assert counters is not None
    assert counters.k == 5
    assert counters.histogram == (1, 1, 0, 0, 0, 0)


def test_step_longer_than_the_declared_k_is_left_for_the_identities() -> None:
    counters = read([chunk(1), chunk(2, 6, 6)], k=4).counters
    assert counters is not None
    assert counters.k == 4
    assert breach(counters, completion_tokens=8) == "accepted > k x steps"


def test_adapter_asks_for_timings_on_every_chunk() -> None:
    assert LlamaCpp().extra_body() == {"timings_per_token": True, "cache_prompt": False}
    assert (LlamaCpp().name, LlamaCpp().metrics_prefix) == ("llamacpp", "llamacpp:")
    reader = LlamaCpp().reader(3)
    reader.event(chunk(1))
    reading = reader.reading()
    assert reading.counters is not None
    assert reading.counters.k == 3


def test_native_body_becomes_a_chat_answer() -> None:
    native = {
        "content": "ok",
        "stop_type": "limit",
        "tokens_evaluated": 31,
        "tokens_predicted": 20,
        "timings": {"predicted_n": 20, "draft_n": 24, "draft_n_accepted": 9},
    }
    body = LlamaCpp().normalised(native)
    assert body["choices"] == [{"index": 0, "message": {"content": "ok"}, "finish_reason": "length"}]
    assert body["usage"] == {"prompt_tokens": 31, "completion_tokens": 20}
    assert "37.50%" in str(read([body]).reason)  # 9 of 24; no step count
    assert LlamaCpp().normalised(body) is body
