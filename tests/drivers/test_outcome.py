from typing import Any

import pytest

from spec_eval.drivers.answer import Answer
from spec_eval.drivers.outcome import Outcome, http_failure, outcome, record
from spec_eval.engines import ENGINES, Reading
from spec_eval.records import RequestRecord, SpecCounters

COUNTERS = {
    "acceptance_histogram": [1, 2, 1],
    "num_spec_steps": 4,
    "num_accepted_draft_tokens": 4,
    "num_draft_tokens": 8,
    "num_spec_tokens": 2,
}
READ = SpecCounters(steps=4, accepted=4, drafted=8, histogram=(1, 2, 1), k=2)
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


def answer(**changes: Any) -> Answer:
    choice = {"index": 0, "message": {"content": "yes", "reasoning": "hm"}, "finish_reason": "length"}
    made = Answer(ENGINES["vllm"].reader(None))
    made.whole_object({"choices": [choice], "usage": USAGE, "metrics": {"speculative_decoding": COUNTERS}} | changes)
    return made


def placed(found: Outcome) -> RequestRecord:
    return record(found, cell_id="cell", dataset="set", prompt_id="p", category="c", turn=1, repeat=2, seed_sent=11)


def test_everything_that_an_answer_tells_is_in_its_record() -> None:
    found = outcome(answer(), None, attempt=3, start_ns=5, end_ns=8)
    assert placed(found) == RequestRecord(
        cell_id="cell",
        dataset="set",
        prompt_id="p",
        category="c",
        subcategory=None,
        turn=1,
        repeat=2,
        seed_sent=11,
        attempt=3,
        status="ok",
        failure_reason=None,
        finish_reason="length",
        start_ns=5,
        first_token_ns=None,
        end_ns=8,
        prompt_tokens=7,
        cached_tokens=2,
        completion_tokens=9,
        reasoning_tokens=3,
        text="yes",
        reasoning_text="hm",
        counters=READ,
        no_counters_reason=None,
        raw_counters=COUNTERS,
    )
    assert (found.connected, found.emulated) == (True, False)


def test_failed_answer_keeps_its_words_and_not_its_counters() -> None:
    got = placed(outcome(answer(), "connection lost: gone"))
    assert (got.status, got.failure_reason) == ("failed", "connection lost: gone")
    assert (got.text, got.reasoning_text, got.finish_reason, got.completion_tokens) == ("yes", "hm", "length", 9)
    assert (got.counters, got.no_counters_reason, got.raw_counters) == (None, None, None)


def test_failure_without_a_word_has_no_text_and_an_answer_without_one_has_an_empty_text() -> None:
    silent = answer(choices=[{"index": 0, "message": {"content": None}, "finish_reason": "stop"}])
    assert outcome(silent, None).text == ""
    assert outcome(silent, "timeout: silent").text is None
    never_read = Answer(ENGINES["vllm"].reader(None))
    assert outcome(never_read, None).text is None


def test_answer_without_counters_says_why() -> None:
    got = placed(outcome(answer(metrics=None), None))
    assert (got.status, got.counters, got.no_counters_reason) == ("ok", None, "metrics null")


def test_counters_beside_the_answer_stand_in_for_its_own() -> None:
    kept = Reading(None, "not kept", {"raw": 1})
    got = placed(outcome(answer(), None, counted=kept))
    assert (got.counters, got.no_counters_reason, got.raw_counters) == (None, "not kept", {"raw": 1})


@pytest.mark.parametrize(("usage", "tokens"), [(USAGE, 7), ({}, 99), ({"prompt_tokens": 0}, 0)])
def test_given_count_of_the_prompt_stands_in_where_the_server_gave_none(usage: dict[str, Any], tokens: int) -> None:
    assert outcome(answer(usage=usage), None, prompt_tokens=99).prompt_tokens == tokens


def test_positions_of_trees_are_not_kept() -> None:
    reading = outcome(answer(), None, chain=False).reading
    assert reading is not None
    assert reading.counters == SpecCounters(steps=4, accepted=4, drafted=8, histogram=None, k=2)


def test_request_without_an_attempt_was_not_sent() -> None:
    got = placed(Outcome(failure="earlier turn failed", prompt_tokens=4))
    assert (got.status, got.failure_reason, got.attempt, got.prompt_tokens) == ("not_sent", "earlier turn failed", 0, 4)
    assert (got.text, got.counters, got.no_counters_reason, got.start_ns, got.end_ns) == (None, None, None, None, None)


def test_mark_of_an_emulator_is_told() -> None:
    assert outcome(answer(id="chatcmpl-emulated00000001"), None).emulated


@pytest.mark.parametrize(
    ("status", "text", "failure"),
    [
        (503, "busy", "http 503: busy"),
        (422, "", "http 422: "),
        (400, "beyond the context length", "context limit: beyond the context length"),
    ],
)
def test_status_is_a_failure_by_its_number_or_by_what_the_server_says(status: int, text: str, failure: str) -> None:
    assert http_failure(status, text) == failure
