"""Steps into tokens, worked out by hand."""

from typing import Any

import pytest

from spec_eval.emulator import answers, asks
from spec_eval.emulator.answers import Answer

STEPS = (2, 0, 3)  # 1 + (3 + 1 + 4) = 9 tokens


def made(steps: tuple[int, ...] = STEPS, *, k: int = 3, verified: tuple[int, ...] | None = None, **body: Any) -> Answer:
    ask = asks.parse({"messages": [{"role": "user", "content": "hi"}], **body}, chat=True, context=1000)
    return answers.make(ask, steps, k, "who", verified=verified)


def test_tokens_are_the_first_one_and_each_steps_accepted_and_bonus() -> None:
    found = made(max_tokens=100)
    assert (found.ends, found.tokens, found.finish) == ((1, 4, 5, 9), 9, "stop")
    assert (found.accepted, found.drafted, found.histogram) == ((2, 0, 3), (3, 3, 3), [1, 0, 1, 1])
    assert "".join(found.pieces(0, 9)).count(" ") == 8


@pytest.mark.parametrize(
    ("limit", "ends", "accepted", "finish"),
    [
        (9, (1, 4, 5, 9), (2, 0, 3), "stop"),
        (8, (1, 4, 5, 8), (2, 0, 3), "length"),
        (5, (1, 4, 5), (2, 0), "length"),
        (4, (1, 4), (2,), "length"),
        (2, (1, 2), (2,), "length"),
        (1, (1,), (), "length"),
    ],
)
def test_limit_clips_the_tokens_and_not_the_step(
    limit: int, ends: tuple[int, ...], accepted: tuple[int, ...], finish: str
) -> None:
    found = made(max_tokens=limit)
    assert (found.ends, found.accepted, found.finish) == (ends, accepted, finish)


def test_an_end_that_is_ignored_plays_the_steps_again() -> None:
    found = made(max_tokens=14, ignore_eos=True)
    assert (found.accepted, found.ends, found.finish) == ((2, 0, 3, 2, 0, 3), (1, 4, 5, 9, 12, 13, 14), "length")
    assert made(max_tokens=100, min_tokens=11).ends == (1, 4, 5, 9, 12)


def test_a_step_accepts_no_more_than_it_verified_and_counts_what_it_scheduled() -> None:
    found = made(verified=(1, 3, 2), max_tokens=100)
    assert (found.accepted, found.drafted, found.tokens) == ((1, 0, 2), (3, 3, 3), 7)


def test_no_step_is_an_answer_of_one_token() -> None:
    found = made((), max_tokens=100)
    assert (found.ends, found.accepted, found.histogram) == ((1,), (), [0, 0, 0, 0])
