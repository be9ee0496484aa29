"""Whether a row of a card can be true: the identities of acceptance figures, within the digits that are printed.

With p_i the share of steps that accept at least i of k drafts: AL = 1 + Σ p_i; p_1 ≥ p_2 ≥ …; 0 ≤ p_i ≤ 1;
1 ≤ AL ≤ k + 1; and rate = (AL − 1) / k where every step drafted k. docs/design/cards.md has the reasons.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise

from spec_eval.cards.numbers import Printed
from spec_eval.cards.tables import Row

_MOST_DRAFTS = 64


class Verdict(StrEnum):
    """Of a row."""

    HOLDS = "holds"
    IMPOSSIBLE = "cannot be true"
    UNCHECKED = "not enough printed to check"


@dataclass(frozen=True, slots=True)
class Judged:
    """reasons: why it cannot be true, with the numbers. k: drafts a step that its figures fit, or null."""

    row: Row
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    k: int | None = None


@dataclass(frozen=True, slots=True)
class Drafts:
    """What is known of a row's k beside its own cells.

    candidates: numbers that the rest of the card gives. other: a number that is none of them may be right too.
    vary: the drafter proposes as many as it finds, so that a rate may lie above (AL − 1) / k.
    """

    candidates: tuple[int, ...] = ()
    other: bool = True
    vary: bool = False


def judge(row: Row, drafts: Drafts) -> Judged:
    """A row by itself."""
    positions = _with_own_drafts(row)
    known = [p for p in positions if p is not None]
    ks = _own_k(row, positions)
    k = ks[-1] if ks else None
    reasons = [*_in_range(row), *_falling(positions), *_sum(row, positions, ks, drafts)]
    if row.length is not None and ks and row.length.low > ks[-1] + 1:
        reasons.append(f"acceptance length {row.length.text} is above {ks[-1] + 1}: {ks[-1]} drafts and one token more")
    if any(p is not None and p.low > 0 for p in row.positions[len(positions) :]):
        reasons.append(f"positions behind its own {row.drafts} drafts accept tokens")
    related = len(known) > 1 or (row.length is not None and bool(known))
    if row.rate is not None and (row.length is not None or (ks and known and None not in positions)):
        related = True
        k, odd = _rate(row, row.rate, positions, ks, drafts)
        reasons += odd
    if reasons:
        return Judged(row, Verdict.IMPOSSIBLE, tuple(reasons), k)
    return Judged(row, Verdict.HOLDS if related else Verdict.UNCHECKED, (), k)


def fits(row: Row, k: int) -> bool:
    """Whether the row's length and rate go with k drafts in every step."""
    return row.length is not None and row.rate is not None and _meets(row.rate, *_over(row.length, k))


def _with_own_drafts(row: Row) -> tuple[Printed | None, ...]:
    """As many positions as the row has drafts, where a column of its own gives their number."""
    if row.drafts is None or not row.positions:
        return row.positions
    return (*row.positions, *[None] * row.drafts)[: row.drafts]


def _own_k(row: Row, positions: Sequence[Printed | None]) -> list[int]:
    """The drafts a step that the row itself leaves open: empty columns at its end may stand for shorter drafts."""
    if row.drafts is not None:
        return [row.drafts]
    if len(positions) < 2:
        return []
    last = max((i for i, p in enumerate(positions, start=1) if p is not None and p.value != 0), default=1)
    return list(range(last, len(positions) + 1))


def _in_range(row: Row) -> list[str]:
    reasons = []
    if row.length is not None and row.length.high < 1:
        reasons.append(f"acceptance length {row.length.text} is below 1: a step gives at least one token")
    shares = [("acceptance rate", row.rate), *((f"position {i}", p) for i, p in enumerate(row.positions, start=1))]
    for name, share in shares:
        if share is not None and share.low > 1:
            reasons.append(f"{name} {_as_printed(share)} is above 100%")
        if share is not None and share.high < 0:
            reasons.append(f"{name} {_as_printed(share)} is below 0%")
    return reasons


def _falling(positions: Sequence[Printed | None]) -> list[str]:
    known = [(i, p) for i, p in enumerate(positions, start=1) if p is not None]
    return [
        f"position {j} ({_as_printed(later)}) is above position {i} ({_as_printed(earlier)}): "
        f"a step that accepts {j} drafts accepts {i} too"
        for (i, earlier), (j, later) in pairwise(known)
        if later.low > earlier.high
    ]


def _total(positions: Sequence[Printed | None]) -> tuple[Fraction, Fraction]:
    """The least and the most that the positions sum to; one that is not printed lies between its neighbours."""
    low = high = Fraction(0)
    for i, position in enumerate(positions):
        if position is not None:
            low, high = low + position.low, high + position.high
            continue
        above = next((p.high for p in reversed(positions[:i]) if p is not None), Fraction(1))
        below = next((p.low for p in positions[i + 1 :] if p is not None), Fraction(0))
        low, high = low + min(below, above), high + max(below, above)
    return low, high


def _sum(row: Row, positions: Sequence[Printed | None], ks: Sequence[int], drafts: Drafts) -> list[str]:
    known = [p for p in positions if p is not None]
    if row.length is None or not known:
        return []
    low, high = (1 + total for total in _total(positions))
    # One column may be the first of several: only the card can say that there is no second draft.
    open_end = not ks and set(drafts.candidates) != {1}
    if row.length.high >= low and (open_end or row.length.low <= high):
        return []
    told = f"printed is {row.length.text}"
    if len(known) < len(positions) or open_end:
        return [f"1 + the sum of positions is {_span(low, None if open_end else high)}, {told}"]
    total = sum((p.value for p in known), Fraction(1))
    return [
        f"1 + the sum of positions is {_decimal(total)} ({_span(low, high)} before rounding), {told}{_hint(row, known)}"
    ]


def _hint(row: Row, known: Sequence[Printed]) -> str:
    """Two ways of printing that are no slip of the pen."""
    assert row.length is not None
    low, high = _total(known)
    if _meets(row.length, low, high):
        return "; it fits if the token that the target adds to each step was left out"
    product, total_low, total_high = (Fraction(1), Fraction(1)), Fraction(1), Fraction(1)
    for p in known:
        product = (product[0] * p.low, product[1] * p.high)
        total_low, total_high = total_low + product[0], total_high + product[1]
    if len(known) > 1 and _meets(row.length, total_low, total_high):
        return "; it fits if each position is a share of the steps that accepted the one before"
    return ""


def _rate(
    row: Row, rate: Printed, positions: Sequence[Printed | None], ks: Sequence[int], drafts: Drafts
) -> tuple[int | None, list[str]]:
    """The k that the rate fits, and what is wrong with it where none does."""
    candidates = list(ks) or list(drafts.candidates)
    if not candidates or (not ks and drafts.other and not any(fits(row, k) for k in candidates)):
        candidates = list(range(1, _MOST_DRAFTS + 1))
    bases: list[tuple[str, Fraction, Fraction, Fraction]] = []
    if row.length is not None:
        length = row.length
        bases.append(("(acceptance length − 1)", length.value - 1, length.low - 1, length.high - 1))
    known = [p for p in positions if p is not None]
    if ks and known and len(known) == len(positions):
        bases.append(("the sum of positions", sum((p.value for p in known), Fraction(0)), *_total(known)))
    fitting = [k for k in candidates if all(_meets(rate, low / k, high / k) for _, _, low, high in bases)]
    if fitting:
        return (fitting[0] if len(fitting) == 1 else None), []
    if drafts.vary and all(rate.high >= low / max(candidates) for _, _, low, _ in bases):
        return None, []
    if len(candidates) == _MOST_DRAFTS:
        return None, [
            f"no whole number of drafts a step gives rate {_as_printed(rate)} "
            f"with acceptance length {row.length.text if row.length else ''}: "
            f"(length − 1) / rate is {_decimal(bases[0][1] / rate.value) if rate.value else 'without end'}"
        ]
    k = max(candidates)
    return k, [
        f"{name} / {k} is {_percent(value / k)} ({_percent(low / k)} to {_percent(high / k)} before rounding), "
        f"printed rate is {_as_printed(rate)}"
        for name, value, low, high in bases
        if not _meets(rate, low / k, high / k)
    ]


def _over(length: Printed, k: int) -> tuple[Fraction, Fraction]:
    return (length.low - 1) / k, (length.high - 1) / k


def _meets(figure: Printed, low: Fraction, high: Fraction) -> bool:
    return figure.low <= high and low <= figure.high


def _as_printed(share: Printed) -> str:
    return share.text if "%" in share.text else f"{share.text} ({_percent(share.value)})"


def _decimal(value: Fraction) -> str:
    """At least four decimals, and as many as the bounds of a sum need."""
    whole, _, decimals = f"{float(value):.7f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(4, '0')}"


def _percent(value: Fraction) -> str:
    return f"{float(value * 100):.3f}".rstrip("0").rstrip(".") + "%"


def _span(low: Fraction, high: Fraction | None) -> str:
    return f"at least {_decimal(low)}" if high is None else f"{_decimal(low)} to {_decimal(high)}"
