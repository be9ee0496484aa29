"""Conversations of two runs, matched: their integers, summed over turns and repeats.

A conversation is one prompt of one cell. Overall figures join the cells of a prompt again, since the prompt is what
was drawn (`docs/design/statistics.md`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from spec_eval import acceptance, stats
from spec_eval.records import RequestRecord
from spec_eval.stats import Change
from spec_eval.store import Plan

# A bound of its own beside the coverage of a run: exact, like every share that is held against a bound.
LEAST_PAIRED = Fraction(95, 100)


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over requests: S, A, D, and for i = 1, 2, … the steps that accepted at least i drafts.

    drafted and reached are null where any of the requests does not tell.
    """

    steps: int = 0
    accepted: int = 0
    drafted: int | None = 0
    reached: tuple[int, ...] | None = ()

    def __add__(self, other: "Tally") -> "Tally":
        known = self.reached is not None and other.reached is not None
        return Tally(
            self.steps + other.steps,
            self.accepted + other.accepted,
            None if self.drafted is None or other.drafted is None else self.drafted + other.drafted,
            tuple(map(sum, zip_longest(self.reached or (), other.reached or (), fillvalue=0))) if known else None,
        )

    def position(self, i: int) -> int | None:
        """Steps that accepted at least i drafts; null where not known."""
        if self.reached is None:
            return None
        return self.reached[i - 1] if i <= len(self.reached) else 0


@dataclass(frozen=True, slots=True)
class Conversation:
    """tally: over the requests of it that were measured. full: whether those are all of its turns and repeats."""

    cell_id: str
    dataset: str
    prompt_id: str
    category: str
    tally: Tally
    full: bool

    @property
    def key(self) -> tuple[str, str]:
        """What it is matched by."""
        return self.cell_id, self.prompt_id


@dataclass(frozen=True)
class Side:
    """One of two that are compared.

    settings: by cell, what must be equal. facts: what may differ, and is shown.
    measured, ok: requests, for the coverage. problem: why it can be compared with nothing, or null.
    """

    name: str
    settings: dict[str, dict[str, Any]]
    facts: dict[str, Any]
    conversations: tuple[Conversation, ...] = ()
    measured: int = 0
    ok: int = 0
    problem: str | None = None


def conversations(plan: Plan, records: Iterable[RequestRecord]) -> tuple[Conversation, ...]:
    """Every planned conversation: cells, their categories and their prompts each in the order of the plan."""
    found = {record.unit: (record, counters) for record, counters in acceptance.measured(records)}
    result = []
    for cell in plan.cells:
        categories = {prompt_id: category for prompt_id, category, _ in cell.prompts.units}
        order = {category: i for i, category in enumerate(dict.fromkeys(categories.values()))}
        tallies = dict.fromkeys(categories, Tally())
        missing = set()
        for unit in cell.units():
            prompt_id = unit[1]
            if unit not in found:
                missing.add(prompt_id)
                continue
            c = found[unit][1]
            if c.steps:
                reached = None if c.histogram is None else tuple(acceptance.at_least(c, c.k))
                tallies[prompt_id] += Tally(c.steps, c.accepted, c.drafted, reached)
        result += [
            Conversation(cell.cell_id, cell.dataset, prompt_id, category, tallies[prompt_id], prompt_id not in missing)
            for prompt_id, category in sorted(categories.items(), key=lambda item: order[item[1]])
        ]
    return tuple(result)


@dataclass(frozen=True)
class Pairs:
    """Conversations measured whole in both, entry i of `before` and `after` being the same prompt.

    used, left_out: conversations of both sides that are in it, and that are not.
    """

    before: tuple[Tally, ...]
    after: tuple[Tally, ...]
    used: int
    left_out: int

    @property
    def share(self) -> float | None:
        """used / all; null where there are none."""
        everything = self.used + self.left_out
        return self.used / everything if everything else None

    @property
    def enough(self) -> bool:
        """Whether at least 95% could be paired."""
        return self.used > 0 and self.used >= LEAST_PAIRED * (self.used + self.left_out)

    def acceptance_length(self) -> Change | None:
        """By its logarithm."""
        return self._change(lambda t: t.steps + t.accepted, lambda t: t.steps, log=True)

    def acceptance_rate(self) -> Change | None:
        """By difference."""
        return self._change(lambda t: t.accepted, lambda t: t.drafted)

    def position(self, i: int) -> Change | None:
        """Of the share of steps that accepted at least i drafts, by difference."""
        return self._change(lambda t: t.position(i), lambda t: t.steps)

    @property
    def k(self) -> int:
        """Positions that both sides have."""
        return min(max((len(t.reached or ()) for t in side), default=0) for side in (self.before, self.after))

    def _change(self, numerator: "Reading", denominator: "Reading", *, log: bool = False) -> Change | None:
        sides = []
        for side in (self.before, self.after):
            y = [value for t in side if (value := numerator(t)) is not None]
            x = [value for t in side if (value := denominator(t)) is not None]
            if len(y) < len(side) or len(x) < len(side):
                return None
            sides.append((y, x))
        return stats.change(sides[0], sides[1], log=log)


Reading = Callable[[Tally], int | None]


def pair(a: Sequence[Conversation], b: Sequence[Conversation]) -> Pairs:
    """Match by cell and prompt; the cells of one prompt are then joined."""
    left, right = ({one.key: one for one in side} for side in (a, b))
    joined: dict[tuple[str, str], tuple[Tally, Tally]] = {}
    used = left_out = 0
    for key in dict.fromkeys((*left, *right)):
        one, other = left.get(key), right.get(key)
        if one is None or other is None or not (one.full and other.full):
            left_out += 1
            continue
        used += 1
        before, after = joined.get((one.dataset, one.prompt_id), (Tally(), Tally()))
        joined[one.dataset, one.prompt_id] = before + one.tally, after + other.tally
    return Pairs(tuple(x for x, _ in joined.values()), tuple(y for _, y in joined.values()), used, left_out)


def within(
    a: Sequence[Conversation], b: Sequence[Conversation], place: str | None
) -> tuple[list[Conversation], list[Conversation]]:
    """Those of one category, or of one cell where no category is called so; all of them for null.

    A prompt is of the category that `a` puts it in.
    """
    if place is None:
        return list(a), list(b)
    categories = {one.key: one.category for one in (*b, *a)}
    chosen = {key for key, category in categories.items() if category == place}
    chosen = chosen or {key for key in categories if key[0] == place}
    left, right = ([one for one in side if one.key in chosen] for side in (a, b))
    return left, right


def total(tallies: Iterable[Tally]) -> Tally:
    """All together."""
    return sum(tallies, Tally())


def grouped(
    a: Sequence[Conversation], b: Sequence[Conversation], key: Callable[[Conversation], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Pairs]]:
    """Pairs of each group, in the order in which they appear; a prompt is of the group that `a` puts it in."""
    places = {one.key: key(one) for one in reversed((*a, *b))}
    for group in dict.fromkeys(places[one.key] for one in (*a, *b)):
        yield group, pair(*([one for one in side if places[one.key] == group] for side in (a, b)))
