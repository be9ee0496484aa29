import pytest

from spec_eval import repeats
from spec_eval.repeats import Spread
from tests.factories import answered, failed, from_histogram

# Repeat 0: S = 10, A = 10, AL 2; repeat 1: S = 2, A = 4, AL 3. Pooled they would be 1 + 14/12 = 2.1667.
FIRST = [answered(from_histogram((5, 0, 5)), prompt_id="a", repeat=0)]
SECOND = [answered(from_histogram((0, 0, 2)), prompt_id="a", repeat=1)]


def test_each_repeat_is_pooled_by_itself_and_weighs_the_same() -> None:
    got = repeats.of([*FIRST, *SECOND], 2)
    assert got is not None
    assert got.number == 2
    assert got.acceptance_length == Spread(2.5, 2.0, 3.0)
    assert got.acceptance_rate == Spread(0.75, 0.5, 1.0)
    assert got.positions == (Spread(0.75, 0.5, 1.0), Spread(0.75, 0.5, 1.0))


def test_request_means_are_averaged_over_repeats_too() -> None:
    # Repeat 0 has two requests, AL 2 and 3: mean 2.5, pooled 1 + 14/12. Repeat 1 has one, AL 1.
    records = [
        *FIRST,
        answered(from_histogram((0, 0, 2)), prompt_id="b", repeat=0),
        answered(from_histogram((4, 0, 0)), prompt_id="a", repeat=1),
    ]
    got = repeats.of(records, 2)
    assert got is not None
    assert got.acceptance_length_request_mean == Spread(1.75, 1.0, 2.5)
    assert got.acceptance_length is not None
    assert got.acceptance_length.high == pytest.approx(1 + 14 / 12)
    assert got.positions_request_mean == (Spread(0.375, 0.0, 0.75), Spread(0.375, 0.0, 0.75))


def test_one_repeat_is_no_mean() -> None:
    assert repeats.of(FIRST, 1) is None


def test_a_repeat_without_figures_leaves_a_gap_not_a_mean_of_the_rest() -> None:
    got = repeats.of([*FIRST, failed(prompt_id="a", repeat=1)], 2)
    assert got is not None
    assert (got.number, got.acceptance_length, got.acceptance_rate, got.positions) == (2, None, None, None)
