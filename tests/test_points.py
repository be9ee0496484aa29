import pytest

from spec_eval import points, stats
from spec_eval.store import Point


def point(**changes: object) -> Point:
    """S 400, D 1200, A 700 over 50 requests, of which two failed."""
    values: dict[str, object] = {
        "planned": 50,
        "ok": 48,
        "failed": 2,
        "steps": 400,
        "drafted": 1200,
        "accepted": 700,
        "positions": (0.8, 0.55, 0.4),
    }
    return Point.model_validate(values | changes)


NONE = {"steps": None, "drafted": None, "accepted": None, "positions": None}


def test_one_point_is_its_own_ratio() -> None:
    got = points.figures([point()])
    assert (got.steps, got.drafted, got.accepted, got.k, got.drafts_per_step) == (400, 1200, 700, 3, 3.0)
    assert got.acceptance_length == stats.Estimate(2.75, None, None, 0)
    assert stats.value(got.acceptance_rate) == pytest.approx(700 / 1200)
    assert stats.values(got.positions) == pytest.approx((0.8, 0.55, 0.4))
    assert (got.acceptance_length_request_mean, got.positions_request_mean, got.full_steps) == (None, None, None)


def test_points_are_pooled_by_their_steps() -> None:
    got = points.figures([point(), point(steps=100, drafted=200, accepted=50, positions=(0.4, 0.1)), point(**NONE)])
    # S 500, D 1400, A 750; position 1: (320 + 40) / 500, 2: (220 + 10) / 500, 3: 160 / 500
    assert (got.steps, got.drafted, got.accepted, got.k) == (500, 1400, 750, 3)
    assert stats.value(got.acceptance_length) == pytest.approx(2.5)
    assert stats.value(got.acceptance_rate) == pytest.approx(750 / 1400)
    assert stats.values(got.positions) == pytest.approx((0.72, 0.46, 0.32))


def test_positions_that_one_point_lacks_are_none_of_the_whole() -> None:
    got = points.figures([point(), point(positions=None)])
    assert (got.positions, got.steps) == (None, 800)


def test_drafts_that_one_point_does_not_know_are_none_of_the_whole() -> None:
    got = points.figures([point(), point(drafted=None)])
    assert (got.drafted, got.acceptance_rate, got.steps, got.accepted) == (None, None, 800, 1400)


def test_accepted_drafts_that_are_not_known_are_not_zero() -> None:
    got = points.figures([point(), point(accepted=None)])
    assert (got.steps, got.accepted, stats.value(got.acceptance_length)) == (400, 700, 2.75)
    assert points.figures([point(accepted=None)]).acceptance_length is None


def test_without_any_figure_there_is_none() -> None:
    got = points.figures([point(**NONE)])
    assert (got.steps, got.acceptance_length, got.acceptance_rate, got.positions, got.k) == (0, None, None, None, None)


def test_requests_are_summed_and_counted_by_reason() -> None:
    got = points.outcome(
        [
            point(),
            point(**NONE, no_figure="zero drafts"),
            point(**NONE, no_figure="accepted > drafted", broken=True, planned=60),
        ]
    )
    assert (got.planned, got.sent, got.not_sent, got.ok, got.failed, got.measured) == (160, 150, 10, 144, 6, 0)
    assert got.no_counters_by == {"server-wide counters only": 48, "zero drafts": 48}
    assert got.invalid_by == {"accepted > drafted": 48}
    assert (got.failed_by, got.not_sent_by) == ({"reason not told": 6}, {"reason not told": 10})
