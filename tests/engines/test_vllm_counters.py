"""Counters that a server might send: each odd one alone, in a body that is right but for it."""

from typing import Any

import pytest

from spec_eval.records import breach
from tests.engines.vllm_answers import counted, read


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
    assert (reading.counters, reading.reason) == (None, "k not in the answer, give --k")
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
