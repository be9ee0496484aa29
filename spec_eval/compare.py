"""Two runs side by side: what their settings are, and how far their acceptance differs, conversation by conversation.

`docs/design/compare.md` says how to read it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import expm1
from typing import Any, Literal

from spec_eval import comparability
from spec_eval.comparability import Comparability
from spec_eval.pairs import Conversation, Pairs, Side, Tally, grouped, pair, total
from spec_eval.stats import FEWEST_FOR_INTERVAL, Change

By = Literal["category", "dataset"]
_CONFIDENCE = 0.975  # one-sided, so 95% between the two


class State(StrEnum):
    """What the interval of the acceptance length says."""

    HIGHER = "higher"
    LOWER = "lower"
    NOT_SHOWN = "no difference shown"


@dataclass(frozen=True, slots=True)
class Delta:
    """b against a, with its 95% interval; low and high are null under 20 pairs.

    a, b, and their difference are null where there is nothing to divide. For the acceptance length value, low and
    high are relative: b / a - 1; else they are b - a. n: conversations.
    """

    a: float | None
    b: float | None
    value: float | None
    low: float | None
    high: float | None
    n: int
    correlation: float | None


@dataclass(frozen=True)
class Row:
    """cell, category: null where the row joins several. state: null where nothing could be tested: too few pairs."""

    cell: str | None
    category: str | None
    used: int
    left_out: int
    enough: bool
    acceptance_length: Delta
    acceptance_rate: Delta
    positions: tuple[Delta, ...]

    @property
    def state(self) -> State | None:
        """Higher or lower where the whole interval is."""
        length = self.acceptance_length
        if not self.enough or length.low is None:
            return None
        if length.low is not None and length.low > 0:
            return State.HIGHER
        if length.high is not None and length.high < 0:
            return State.LOWER
        return State.NOT_SHOWN


@dataclass(frozen=True)
class Comparison:
    """overall is null where the two may not be compared."""

    a: Side
    b: Side
    comparability: Comparability
    rows: tuple[Row, ...] = ()
    overall: Row | None = None

    @property
    def facts(self) -> list[tuple[str, Any, Any]]:
        """(name, of a, of b) of what may differ, where either knows it."""
        a, b = (dict(_flat(side.facts)) for side in (self.a, self.b))
        found = [(name, a.get(name), b.get(name)) for name in dict.fromkeys((*a, *b))]
        return [one for one in found if one[1:] != (None, None)]


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Tables within tables under dotted names."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def compare(a: Side, b: Side, *, by: By = "category", allow: Iterable[str] = ()) -> Comparison:
    """Settings first; figures only where these allow it."""
    problems = tuple(dict.fromkeys(side.problem for side in (a, b) if side.problem is not None))
    judged = comparability.judge(a.settings, b.settings, allow=allow, problems=problems)
    if not judged.comparable:
        return Comparison(a, b, judged)
    rows = tuple(
        _row(place[0], place[1] if len(place) > 1 else None, pairs)
        for place, pairs in grouped(a.conversations, b.conversations, _key(by))
    )
    return Comparison(a, b, judged, rows, _row(None, None, pair(a.conversations, b.conversations)))


def _key(by: By) -> Callable[[Conversation], tuple[str, ...]]:
    return (lambda one: (one.cell_id,)) if by == "dataset" else (lambda one: (one.cell_id, one.category))


def _row(cell: str | None, category: str | None, pairs: Pairs) -> Row:
    a, b = total(pairs.before), total(pairs.after)
    return Row(
        cell=cell,
        category=category,
        used=pairs.used,
        left_out=pairs.left_out,
        enough=pairs.enough,
        acceptance_length=_delta(_length(a), _length(b), pairs.acceptance_length(), relative=True),
        acceptance_rate=_delta(_share(a.accepted, a.drafted), _share(b.accepted, b.drafted), pairs.acceptance_rate()),
        positions=tuple(
            _delta(_share(a.position(i), a.steps), _share(b.position(i), b.steps), pairs.position(i))
            for i in range(1, pairs.k + 1)
        ),
    )


def _length(tally: Tally) -> float | None:
    return 1 + tally.accepted / tally.steps if tally.steps else None


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def _delta(a: float | None, b: float | None, change: Change | None, *, relative: bool = False) -> Delta:
    if change is None:
        return Delta(a, b, None, None, None, 0, None)
    ends: list[float | None] = [change.value, None, None]
    if change.n >= FEWEST_FOR_INTERVAL:
        ends = [change.value, change.low(_CONFIDENCE), change.high(_CONFIDENCE)]
    value, low, high = (expm1(x) if relative and x is not None else x for x in ends)
    return Delta(a, b, value, low, high, change.n, change.correlation)
