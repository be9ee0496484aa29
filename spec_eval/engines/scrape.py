"""Speculative-decoding totals out of a server's Prometheus text.

The families are the same for every engine but for their prefix: `<prefix>spec_decode_num_drafts[_total]`,
`_num_draft_tokens`, `_num_accepted_tokens` and `_num_accepted_tokens_per_pos{position="0"…}`. Series are summed over
every label but position (a data-parallel server has one per engine). `_created` samples are time stamps.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from spec_eval.records import MOST_DRAFTS

_STEPS, _DRAFTED, _ACCEPTED, _POSITIONS = (
    "num_drafts",
    "num_draft_tokens",
    "num_accepted_tokens",
    "num_accepted_tokens_per_pos",
)
# Looked for in this order. SGLang is named although its gauges are averages: a later one may count totals too.
PREFIXES = ("vllm:", "sglang:", "llamacpp:")


@dataclass(frozen=True, slots=True)
class Totals:
    """S, D, A and, for positions 1, 2, …, the steps that accepted at least that many drafts."""

    steps: int
    drafted: int
    accepted: int
    positions: tuple[int, ...]

    def position(self, index: int) -> int:
        """A position without a series has accepted nothing yet."""
        return self.positions[index] if index < len(self.positions) else 0

    @property
    def consistent(self) -> bool:
        """Whether the positions add up to the accepted drafts, and AL = 1 + Σ positions with them."""
        return sum(self.positions) == self.accepted


def added(one: Totals, other: Totals) -> Totals:
    """Of two stretches."""
    longest = max(len(one.positions), len(other.positions))
    return Totals(
        one.steps + other.steps,
        one.drafted + other.drafted,
        one.accepted + other.accepted,
        tuple(one.position(i) + other.position(i) for i in range(longest)),
    )


class CounterReset(ValueError):
    """A counter went down: the server was started anew in between."""


def parse(text: str, prefix: str) -> Totals | None:
    """Totals in `text`, or None where it has none; ValueError where it is not Prometheus text."""
    sums, positions = _read(text, prefix)
    steps, drafted, accepted = (_total(sums, name) for name in (_STEPS, _DRAFTED, _ACCEPTED))
    if steps is None or drafted is None or accepted is None:
        return None
    places = positions.get(f"{_POSITIONS}_total", positions.get(_POSITIONS, {}))
    row = tuple(_whole(places.get(i, 0.0)) for i in range(max(places, default=-1) + 1))
    return Totals(_whole(steps), _whole(drafted), _whole(accepted), row)


def drafts(text: str, prefix: str) -> tuple[int, int] | None:
    """(drafted, accepted) where a server counts these two at least; a rate may be had from them, and no AL."""
    sums, _ = _read(text, prefix)
    drafted, accepted = (_total(sums, name) for name in (_DRAFTED, _ACCEPTED))
    return None if drafted is None or accepted is None else (_whole(drafted), _whole(accepted))


def find(text: str) -> tuple[str, Totals] | None:
    """The first of the known families that has totals in `text`, by its prefix."""
    found = ((prefix, parse(text, prefix)) for prefix in PREFIXES)
    return next(((prefix, totals) for prefix, totals in found if totals is not None), None)


def _total(sums: Mapping[str, float], name: str) -> float | None:
    """Both spellings, with and without `_total`, occur in the wild; the one with it wins where both stand."""
    return sums.get(f"{name}_total", sums.get(name))


def _read(text: str, prefix: str) -> tuple[dict[str, float], dict[str, dict[int, float]]]:
    """Sums by name, and those of the positions by name and place."""
    # The parser renames a typed counter `x` to `x_total`; without type lines, names stay as the server wrote them.
    text = "\n".join(line for line in text.removeprefix("\ufeff").split("\n") if not line.startswith("#"))
    sums: dict[str, float] = {}
    positions: dict[str, dict[int, float]] = {}
    start = f"{prefix}spec_decode_"
    for family in text_string_to_metric_families(text):
        if not family.name.startswith(start):
            continue
        for sample in family.samples:
            name = sample.name.removeprefix(start)
            if name.removesuffix("_total") == _POSITIONS:
                place = _place(sample.labels.get("position", ""))
                by_place = positions.setdefault(name, {})
                by_place[place] = by_place.get(place, 0.0) + sample.value
            else:
                sums[name] = sums.get(name, 0.0) + sample.value
    return sums, positions


def delta(before: Totals, after: Totals) -> Totals:
    """What happened in between; CounterReset where a counter went down."""
    longest = max(len(before.positions), len(after.positions))
    result = Totals(
        after.steps - before.steps,
        after.drafted - before.drafted,
        after.accepted - before.accepted,
        tuple(after.position(i) - before.position(i) for i in range(longest)),
    )
    if min(result.steps, result.drafted, result.accepted, *result.positions) < 0:
        raise CounterReset("a counter went down between the two scrapes")
    return result


def _place(label: str) -> int:
    """From 0. A row as long as any number would fill the memory, and one that is left out would not be missed."""
    if not (label.isascii() and label.isdigit() and len(label) <= len(str(MOST_DRAFTS)) and int(label) < MOST_DRAFTS):
        raise ValueError(f"{label!r} is no position of a draft token")
    return int(label)


def _whole(value: float) -> int:
    if not value.is_integer() or value < 0:
        raise ValueError(f"counter value {value} is not a whole number from 0 up")
    return int(value)
