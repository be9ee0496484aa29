"""The ratio estimator: how sure a pooled ratio is, and a change between two, with the conversation as the unit.

`docs/design/statistics.md` explains the choice and cites it. Closed form, O(n), no random numbers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FEWEST_FOR_INTERVAL = 20
FEWEST_FOR_EXACT = 80


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95% interval; `low` and `high` are null under 20 conversations.

    n: conversations that the value rests on. approximate: 20 to 79 of them.
    """

    value: float
    low: float | None
    high: float | None
    n: int

    @property
    def approximate(self) -> bool:
        """Whether the interval rests on so few conversations that its coverage is only near 95%."""
        return self.low is not None and self.n < FEWEST_FOR_EXACT


def value(estimate: Estimate | None) -> float | None:
    """Without its interval."""
    return None if estimate is None else estimate.value


def values(estimates: Iterable[Estimate] | None) -> tuple[float, ...] | None:
    """Of several figures."""
    return None if estimates is None else tuple(one.value for one in estimates)


def ratio(
    numerators: npt.ArrayLike, denominators: npt.ArrayLike, *, offset: float = 0.0, level: float = 0.95
) -> Estimate | None:
    """`offset` + Σ numerators / Σ denominators, one entry per conversation; None where Σ denominators is 0.

    Formula (linearised ratio; Cochran, Sampling Techniques, 3rd ed., section 6.3): with R = Σy / Σx,
    u_i = (y_i - R x_i) / mean(x), SE = sd(u) / sqrt(n), interval R ± t(n - 1) SE.
    Conversations with x_i = 0 carry no information about R and are left out.
    """
    y = np.asarray(numerators, dtype=np.float64)
    found = ratios(y[:, np.newaxis], denominators, offset=offset, level=level)
    return found[0] if found else None


def ratios(
    numerators: npt.NDArray[np.float64], denominators: npt.ArrayLike, *, offset: float = 0.0, level: float = 0.95
) -> tuple[Estimate, ...]:
    """As `ratio`, for each column of `numerators` (conversations x figures); empty where Σ denominators is 0."""
    x = np.asarray(denominators, dtype=np.float64)
    y, x = numerators[x > 0], x[x > 0]
    n = len(x)
    if n == 0:
        return ()
    values = y.sum(axis=0) / x.sum()
    if n < FEWEST_FOR_INTERVAL:
        return tuple(Estimate(offset + float(value), None, None, n) for value in values)
    halves = _t_quantile(0.5 + level / 2, n - 1) * _linearised(y, x, values).std(axis=0, ddof=1) / np.sqrt(n)
    return tuple(
        Estimate(offset + float(value), offset + float(value - half), offset + float(value + half), n)
        for value, half in zip(values, halves, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Change:
    """A ratio of one run against the same ratio of another, over conversations measured in both.

    value: ln(R_b / R_a), or R_b - R_a. se: its standard error; null for a single pair.
    n: pairs. correlation: of the two runs' linearised values; null where either does not vary.
    """

    value: float
    se: float | None
    n: int
    correlation: float | None

    def low(self, confidence: float) -> float | None:
        """One-sided lower bound, which the true change exceeds with this confidence; null for a single pair."""
        return None if self.se is None else self.value - _t_quantile(confidence, self.n - 1) * self.se

    def high(self, confidence: float) -> float | None:
        """One-sided upper bound."""
        return None if self.se is None else self.value + _t_quantile(confidence, self.n - 1) * self.se

    def chance(self) -> float | None:
        """Of a value as low as this or lower, were there no change: a one-sided p-value; null for a single pair."""
        from scipy.special import stdtr

        if self.se is None:
            return None
        if self.se == 0:
            return 0.0 if self.value < 0 else 1.0
        return float(stdtr(self.n - 1, self.value / self.se))


def change(
    before: tuple[npt.ArrayLike, npt.ArrayLike], after: tuple[npt.ArrayLike, npt.ArrayLike], *, log: bool
) -> Change | None:
    """How a pooled ratio changed; both are (numerators, denominators), entry i of each being the same conversation.

    Formula: with R = Σy / Σx and u_i = (y_i - R x_i) / mean(x) of each run, the change is R_b - R_a and
    SE = sd(u_b - u_a) / sqrt(n); for the logarithm each u is divided by its R first (delta method).
    Pairs without a denominator in either run are left out. None where a denominator sums to 0, or a ratio is not
    positive and its logarithm is asked for.
    """
    (ya, xa), (yb, xb) = ((np.asarray(a, dtype=np.float64) for a in side) for side in (before, after))
    there = (xa > 0) | (xb > 0)
    ya, xa, yb, xb = ya[there], xa[there], yb[there], xb[there]
    n = len(xa)
    if n == 0 or not xa.sum() or not xb.sum():
        return None
    ra, rb = float(ya.sum() / xa.sum()), float(yb.sum() / xb.sum())
    if log and min(ra, rb) <= 0:
        return None
    ua, ub = _linearised(ya, xa, ra), _linearised(yb, xb, rb)
    if log:
        ua, ub = ua / ra, ub / rb
    value = float(np.log(rb / ra)) if log else rb - ra
    if n == 1:
        return Change(value, None, 1, None)
    se = float((ub - ua).std(ddof=1)) / float(np.sqrt(n))
    varies = bool(ua.std() > 0 and ub.std() > 0)
    return Change(value, se, n, float(np.corrcoef(ua, ub)[0, 1]) if varies else None)


def holm(chances: Sequence[float]) -> list[float]:
    """p-values of several tests, adjusted so that together they err as rarely as one would.

    Holm's step-down (Scandinavian Journal of Statistics 6, 1979): the j-th smallest of m is multiplied by m - j + 1,
    and none may be smaller than the one before it.
    """
    adjusted = [0.0] * len(chances)
    highest = 0.0
    for j, i in enumerate(sorted(range(len(chances)), key=lambda i: chances[i])):
        highest = max(highest, min(1.0, (len(chances) - j) * chances[i]))
        adjusted[i] = highest
    return adjusted


def _linearised(
    y: npt.NDArray[np.float64], x: npt.NDArray[np.float64], value: npt.NDArray[np.float64] | float
) -> npt.NDArray[np.float64]:
    """u_i = (y_i - R x_i) / mean(x), column by column where y has columns."""
    expected = np.multiply.outer(x, value)
    return np.asarray((y - expected) / x.mean())


def _t_quantile(confidence: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, confidence))
