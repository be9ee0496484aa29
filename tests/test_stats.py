import numpy as np
import numpy.typing as npt
import pytest

from spec_eval.stats import Estimate, change, holm, ratio, ratios, value, values

Floats = npt.NDArray[np.float64]


def clusters(rng: np.random.Generator, n: int, k: int = 4) -> tuple[Floats, Floats, Floats]:
    """(accepted, steps, acceptance) of n conversations: capped lognormal lengths, acceptance rising with length."""
    z = rng.standard_normal(n)
    steps = np.minimum(np.ceil(np.exp(4.0 + 0.8 * z)), 256.0)
    acceptance = 1 / (1 + np.exp(-(-0.2 + 0.5 * z + 0.5 * rng.standard_normal(n))))
    accepted = rng.binomial((k * steps).astype(np.int64), acceptance).astype(np.float64)
    return accepted, steps, acceptance


def bootstrap_t(y: Floats, x: Floats, rng: np.random.Generator, rounds: int = 4000) -> tuple[float, float, float]:
    """(low, high, standard error) from resampled conversations: the studentised interval."""
    n, value = len(x), y.sum() / x.sum()

    def error(ys: Floats, xs: Floats) -> Floats:
        r = ys.sum(axis=-1, keepdims=True) / xs.sum(axis=-1, keepdims=True)
        residual = ys - r * xs
        return np.asarray(np.sqrt((residual**2).sum(axis=-1) * n / (n - 1)) / xs.sum(axis=-1))

    rows = rng.integers(0, n, (rounds, n))
    ys, xs = y[rows], x[rows]
    ratios = ys.sum(axis=1) / xs.sum(axis=1)
    t = (ratios - value) / error(ys, xs)
    own = float(error(y, x))
    low, high = np.quantile(t, [0.025, 0.975])
    return float(value - high * own), float(value - low * own), float(ratios.std(ddof=1))


def test_value_is_sum_over_sum_with_its_offset() -> None:
    estimate = ratio([3, 0, 9], [2, 4, 6], offset=1.0)
    assert estimate == Estimate(value=2.0, low=None, high=None, n=3)


def test_nothing_to_divide_by_is_none() -> None:
    assert ratio([], []) is None
    assert ratio([0, 0], [0, 0]) is None


def test_conversations_without_a_step_are_left_out() -> None:
    with_empty = ratio([1, 0, 0, 1] * 10, [2, 0, 2, 2] * 10)
    without = ratio([1, 0, 1] * 10, [2, 2, 2] * 10)
    assert with_empty == without
    assert with_empty is not None
    assert with_empty.n == 30


@pytest.mark.parametrize(
    ("n", "has_interval", "approximate"),
    [(1, False, False), (2, False, False), (19, False, False), (20, True, True), (79, True, True), (80, True, False)],
)
def test_interval_needs_twenty_conversations_and_is_approximate_under_eighty(
    n: int, has_interval: bool, approximate: bool
) -> None:
    estimate = ratio([float(i % 3) for i in range(n)], [2.0] * n)
    assert estimate is not None
    assert estimate.n == n
    assert (estimate.low is not None) is has_interval
    assert (estimate.high is not None) is has_interval
    assert estimate.approximate is approximate


def test_interval_of_twenty_coin_flips_by_hand() -> None:
    # R = 1/2, u = ±1/2, sd = 0.5 sqrt(20/19) = 0.512989, SE = 0.114708, t(19) = 2.093024, half = 0.240086.
    estimate = ratio([0, 1] * 10, [1] * 20, offset=1.0)
    assert estimate is not None
    assert estimate.value == 1.5
    assert estimate.low == pytest.approx(1.5 - 0.240086, abs=1e-6)
    assert estimate.high == pytest.approx(1.5 + 0.240086, abs=1e-6)


def test_interval_with_unequal_lengths_by_hand() -> None:
    # Ten conversations (y, x) = (1, 1), ten (1, 3): R = 20/40, mean x = 2, u = ±(1 - 1/2)/2 = ±1/4: half of the above.
    estimate = ratio([1, 1] * 10, [1, 3] * 10)
    assert estimate is not None
    assert estimate.value == 0.5
    assert estimate.high == pytest.approx(0.5 + 0.240086 / 2, abs=1e-6)


def test_other_levels_use_their_own_quantile() -> None:
    # t(19) at 90% is 1.729133.
    estimate = ratio([0, 1] * 10, [1] * 20, level=0.90)
    assert estimate is not None
    assert estimate.high == pytest.approx(0.5 + 0.114708 * 1.729133, abs=1e-5)


def test_equal_data_has_an_interval_of_no_width() -> None:
    estimate = ratio([3.0] * 25, [2.0] * 25, offset=1.0)
    assert estimate is not None
    assert estimate.low == pytest.approx(2.5, abs=1e-12)
    assert estimate.high == pytest.approx(2.5, abs=1e-12)
    proportional = ratio([0.3 * i for i in range(1, 31)], list(range(1, 31)))
    assert proportional is not None
    assert proportional.low == pytest.approx(0.3, abs=1e-12)


def test_nothing_accepted_is_a_value_not_a_gap() -> None:
    estimate = ratio([0] * 30, [5] * 30, offset=1.0)
    assert estimate == Estimate(value=1.0, low=1.0, high=1.0, n=30)


def test_interval_agrees_with_a_bootstrap() -> None:
    rng = np.random.default_rng(20300102)
    y, x, _ = clusters(rng, 160)
    low, high, error = bootstrap_t(y, x, rng)
    estimate = ratio(y, x)
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    # t(159) at 95% is 1.9750.
    assert (estimate.high - estimate.low) / (2 * 1.9750) == pytest.approx(error, rel=0.08)
    width = high - low
    assert estimate.high - estimate.low == pytest.approx(width, rel=0.15)
    assert abs(estimate.low - low) < 0.15 * width
    assert abs(estimate.high - high) < 0.15 * width


@pytest.mark.parametrize(("n", "least"), [(24, 0.88), (160, 0.92), (880, 0.92)])
def test_interval_covers_the_truth_where_a_step_wise_one_does_not(n: int, least: float) -> None:
    runs, k = 4000, 4
    rng = np.random.default_rng(n)
    y, x, p = clusters(rng, 2_000_000)
    truth = float((k * x * p).sum() / x.sum())
    covered = covered_by_steps = 0
    for _ in range(runs):
        y, x, p = clusters(rng, n)
        estimate = ratio(y, x)
        assert estimate is not None
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= truth <= estimate.high
        # Every step taken as a draw of its own: variance within and between answers, over all steps.
        variance = float((x * (k * p * (1 - p) + (k * p - estimate.value) ** 2)).sum() / x.sum())
        covered_by_steps += abs(estimate.value - truth) <= 1.96 * float(np.sqrt(variance / x.sum()))
    assert covered / runs >= least
    assert covered_by_steps / runs < 0.60


def test_columns_are_ratios_of_their_own() -> None:
    y = np.array([[0.0, 1.0], [1.0, 1.0]] * 10)
    coin, whole = ratios(y, [1.0] * 20)
    assert (coin.value, whole.value) == (0.5, 1.0)
    assert coin.high == pytest.approx(0.5 + 0.240086, abs=1e-6)  # the twenty coin flips above
    assert (whole.low, whole.high) == (1.0, 1.0)
    assert ratios(y, [0.0] * 20) == ()


def test_value_and_values_pass_gaps_on() -> None:
    one = Estimate(1.5, None, None, 3)
    assert (value(one), value(None)) == (1.5, None)
    assert (values([one, one]), values(None)) == ((1.5, 1.5), None)


# R_a = 1.5 with u_a = -+1/2, R_b = 2 with u_b = 0, twenty pairs: sd of the differences is 0.5 sqrt(20/19).
BEFORE, AFTER, ONES = [1, 2] * 10, [2, 2] * 10, [1] * 20


def test_difference_of_two_ratios_by_hand() -> None:
    got = change((BEFORE, ONES), (AFTER, ONES), log=False)
    assert got is not None
    assert (got.value, got.n, got.correlation) == (0.5, 20, None)
    assert got.se == pytest.approx(0.114708, abs=1e-6)
    # t(19) at 98%, one-sided, is 2.204701.
    assert got.low(0.98) == pytest.approx(0.5 - 2.204701 * 0.114708, abs=1e-5)
    assert got.high(0.98) == pytest.approx(0.5 + 2.204701 * 0.114708, abs=1e-5)


def test_logarithm_of_two_ratios_by_hand() -> None:
    # Each u is divided by its ratio: -+1/3, so SE = sqrt(20/19) / 3 / sqrt(20) = 0.0764719; ln(4/3) = 0.2876821.
    got = change((BEFORE, ONES), (AFTER, ONES), log=True)
    assert got is not None
    assert got.value == pytest.approx(0.2876821, abs=1e-7)
    assert got.se == pytest.approx(0.0764719, abs=1e-7)


def test_pairs_that_move_together_show_a_change_exactly() -> None:
    got = change((BEFORE, ONES), ([2, 4] * 10, ONES), log=True)
    assert got is not None
    assert got.value == pytest.approx(0.6931472, abs=1e-7)
    assert got.se == pytest.approx(0.0, abs=1e-15)
    assert got.correlation == pytest.approx(1.0)


def test_same_data_twice_has_no_change_at_all() -> None:
    got = change((BEFORE, ONES), (BEFORE, ONES), log=True)
    assert got is not None
    assert (got.value, got.se, got.low(0.98), got.high(0.98)) == (0.0, 0.0, 0.0, 0.0)


def test_opposite_pairs_are_told_by_their_correlation() -> None:
    got = change((BEFORE, ONES), ([2, 1] * 10, ONES), log=False)
    assert got is not None
    assert got.value == 0.0
    assert got.correlation == pytest.approx(-1.0)


def test_pairs_without_a_step_in_either_run_are_left_out() -> None:
    with_empty = change(([*BEFORE, 0], [*ONES, 0]), ([*AFTER, 0], [*ONES, 0]), log=True)
    assert with_empty == change((BEFORE, ONES), (AFTER, ONES), log=True)
    assert with_empty is not None
    assert with_empty.n == 20


def test_a_single_pair_has_a_value_without_an_error() -> None:
    got = change(([3], [2]), ([4], [2]), log=False)
    assert got is not None
    assert (got.value, got.se, got.n, got.low(0.98), got.high(0.98)) == (0.5, None, 1, None, None)


def test_no_change_where_a_run_took_no_step_or_a_logarithm_does_not_exist() -> None:
    assert change(([0, 0], [0, 0]), ([1, 1], [1, 1]), log=False) is None
    assert change(([], []), ([], []), log=False) is None
    assert change(([0, 0], [1, 1]), ([1, 1], [1, 1]), log=True) is None


def test_error_of_a_change_agrees_with_resampled_pairs() -> None:
    rng = np.random.default_rng(20300103)
    ya, xa, p = clusters(rng, 160)
    xb = xa
    yb = rng.binomial((4 * xb).astype(np.int64), np.clip(p * 0.95, 0, 1)).astype(np.float64)
    got = change((ya + xa, xa), (yb + xb, xb), log=True)
    assert got is not None
    rows = rng.integers(0, 160, (4000, 160))
    lengths = [1 + y[rows].sum(axis=1) / x[rows].sum(axis=1) for y, x in ((ya, xa), (yb, xb))]
    drawn = np.log(lengths[1] / lengths[0])
    assert got.se is not None
    assert got.se == pytest.approx(float(drawn.std(ddof=1)), rel=0.08)
    unpaired = float(np.hypot(np.log(lengths[0]).std(ddof=1), np.log(lengths[1]).std(ddof=1)))
    assert got.se < unpaired / 3  # the same prompts, nearly the same drafter: pairing is what shows a small loss


def test_chance_of_a_loss_by_hand() -> None:
    # d = -0.5, SE = 0.114708 as above: t = -4.358899 with 19 degrees of freedom, one-sided p = 0.000169.
    got = change((AFTER, ONES), (BEFORE, ONES), log=False)
    assert got is not None
    chance = got.chance()
    assert chance == pytest.approx(0.000169, abs=1e-6)
    back = change((BEFORE, ONES), (AFTER, ONES), log=False)
    assert back is not None
    assert back.chance() == pytest.approx(1 - 0.000169, abs=1e-6)


def test_chance_where_nothing_varies() -> None:
    same = change((BEFORE, ONES), (BEFORE, ONES), log=True)
    lower = change(([2] * 20, ONES), ([1] * 20, ONES), log=True)
    single = change(([3], [2]), ([4], [2]), log=False)
    assert same is not None
    assert lower is not None
    assert single is not None
    assert (same.chance(), lower.chance(), single.chance()) == (1.0, 0.0, None)


def test_holm_by_hand() -> None:
    # Smallest first: 3 x 0.01, then 2 x 0.03, then 1 x 0.04, which may not be below the 0.06 before it.
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []
