from dataclasses import replace

import pytest

from spec_eval.whatif import Shorter, shorter
from tests.factories import answered, from_histogram, from_steps

# k = 3, ten steps: at least 1: 6, at least 2: 3, at least 3: 1.
COUNTERS = from_histogram((4, 3, 2, 1))


def test_shorter_drafts_keep_the_first_positions_of_the_same_steps() -> None:
    got = shorter([answered(COUNTERS)])
    assert got == (Shorter(1, 1.6, 0.6), Shorter(2, 1.9, 9 / 20))


def test_requests_are_pooled_before_the_division() -> None:
    # Two more steps that accept everything: at least 1: 8 of 12, at least 2: 5 of 12.
    got = shorter([answered(COUNTERS), answered(from_histogram((0, 0, 0, 2)), prompt_id="b")])
    assert [one.acceptance_length for one in got] == pytest.approx([1 + 8 / 12, 1 + 13 / 12])


def test_a_step_that_the_engine_clipped_counts_what_it_drafted() -> None:
    # Steps (drafted, accepted): k' = 2 drafts 2 + 2 + 1 and accepts 2 + 0 + 1.
    got = shorter([answered(from_steps([(3, 3), (3, 0), (1, 1)], k=3))])
    assert got == (Shorter(1, 1 + 2 / 3, 2 / 3), Shorter(2, 2.0, 3 / 5))


def test_nothing_is_said_of_a_drafter_that_chooses_its_lengths() -> None:
    assert shorter([answered(from_steps([(1, 1), (2, 0), (1, 0), (3, 3)], k=3))]) == ()
    assert shorter([answered(from_histogram((4, 3, 2, 1), drafted=24))]) == ()  # ten steps, not 30 drafts


def test_nothing_is_said_without_a_histogram_an_exact_count_or_one_k() -> None:
    assert shorter([]) == ()
    assert shorter([answered(replace(COUNTERS, histogram=None))]) == ()
    assert shorter([answered(replace(COUNTERS, drafted=None))]) == ()
    assert shorter([answered(COUNTERS), answered(from_histogram((1, 1)), prompt_id="b")]) == ()
    assert shorter([answered(from_histogram((1, 1)))]) == ()  # k = 1 has nothing below it
