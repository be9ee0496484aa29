"""The ratio estimator: how sure a pooled ratio is, with the conversation as the sampling unit.

`docs/design/statistics.md` explains the choice and cites it. Closed form, O(n), no random numbers.
"""

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


def ratio(
    numerators: npt.ArrayLike, denominators: npt.ArrayLike, *, offset: float = 0.0, level: float = 0.95
) -> Estimate | None:
    """`offset` + Σ numerators / Σ denominators, one entry per conversation; None where Σ denominators is 0.

    Formula (linearised ratio; Cochran, Sampling Techniques, 3rd ed., section 6.3): with R = Σy / Σx,
    u_i = (y_i - R x_i) / mean(x), SE = sd(u) / sqrt(n), interval R ± t(n - 1) SE.
    Conversations with x_i = 0 carry no information about R and are left out.
    """
    y, x = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    y, x = y[x > 0], x[x > 0]
    n = len(x)
    if n == 0:
        return None
    value = float(y.sum() / x.sum())
    if n < FEWEST_FOR_INTERVAL:
        return Estimate(offset + value, None, None, n)
    u = (y - value * x) / x.mean()
    half = _t_quantile(level, n - 1) * float(u.std(ddof=1)) / float(np.sqrt(n))
    return Estimate(offset + value, offset + value - half, offset + value + half, n)


def _t_quantile(level: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + level / 2))
