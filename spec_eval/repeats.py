"""Several repeats of the same prompts: each pooled by itself, then their equal-weight mean, with the extremes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spec_eval import acceptance
from spec_eval.records import RequestRecord
from spec_eval.stats import Estimate


@dataclass(frozen=True, slots=True)
class Spread:
    """Equal-weight mean over repeats, and the smallest and largest of them."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Repeats:
    """Figures of `number` repeats, as in `acceptance.Figures`; null where any repeat has none.

    The spread is over repeats of the same prompts: it tells nothing about other prompts, as an interval does.
    """

    number: int
    acceptance_length: Spread | None
    acceptance_length_request_mean: Spread | None
    acceptance_rate: Spread | None
    positions: tuple[Spread, ...] | None
    positions_request_mean: tuple[Spread, ...] | None


def of(records: Sequence[RequestRecord], planned: int) -> Repeats | None:
    """Over `planned` repeats; None for a single one, where the pooled figures say it all."""
    if planned < 2:
        return None
    each = [acceptance.figures(r for r in records if r.repeat == repeat) for repeat in range(planned)]
    return Repeats(
        number=planned,
        acceptance_length=_spread(f.acceptance_length for f in each),
        acceptance_length_request_mean=_spread(f.acceptance_length_request_mean for f in each),
        acceptance_rate=_spread(f.acceptance_rate for f in each),
        positions=_positions([f.positions for f in each]),
        positions_request_mean=_positions([f.positions_request_mean for f in each]),
    )


def _spread(estimates: Iterable[Estimate | None]) -> Spread | None:
    found = list(estimates)
    known = [one.value for one in found if one is not None]
    return Spread(sum(known) / len(known), min(known), max(known)) if len(known) == len(found) else None


def _positions(rows: Sequence[tuple[Estimate, ...] | None]) -> tuple[Spread, ...] | None:
    known = [row for row in rows if row is not None]
    if len(known) < len(rows) or len({len(row) for row in known}) != 1:
        return None
    spreads = [_spread(column) for column in zip(*known, strict=True)]
    return tuple(one for one in spreads if one is not None)
