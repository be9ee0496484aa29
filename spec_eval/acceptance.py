"""Pooled acceptance figures: sum first, divide once, last.

A mean of ratios weighs a ten-token answer like a thousand-token one; sums do not. The per-request means are kept
beside, under their own names, because published cards use both.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypedDict

import numpy as np

from spec_eval import stats
from spec_eval.records import RequestRecord, SpecCounters, breach
from spec_eval.stats import Estimate

# The counts of an outcome in the order in which every format shows them.
COUNTS = (
    *("planned", "sent", "not_sent", "ok", "failed"),
    *("measured", "length", "no_counters", "zero_steps", "invalid"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the planned requests.

    planned = sent + not_sent; sent = ok + failed; ok = measured + no_counters + invalid;
    zero_steps of the measured ones took no verification step; length of the ok ones hit the token limit.
    The `_by` tables count reasons.
    """

    planned: int
    not_sent_by: dict[str, int]
    failed_by: dict[str, int]
    no_counters_by: dict[str, int]
    invalid_by: dict[str, int]
    ok: int
    measured: int
    zero_steps: int
    length: int

    @property
    def not_sent(self) -> int:
        """Planned, and never sent."""
        return sum(self.not_sent_by.values())

    @property
    def failed(self) -> int:
        """Sent, without an answer that can be used."""
        return sum(self.failed_by.values())

    @property
    def sent(self) -> int:
        """Requests that reached for the server."""
        return self.ok + self.failed

    @property
    def no_counters(self) -> int:
        """Answered, without counters."""
        return sum(self.no_counters_by.values())

    @property
    def invalid(self) -> int:
        """Answered, with counters that break an identity."""
        return sum(self.invalid_by.values())

    @property
    def coverage(self) -> float | None:
        """measured / ok."""
        return self.measured / self.ok if self.ok else None


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one group of requests. Fractions; null where there is nothing to divide, never 0 or NaN.

    steps, accepted, drafted: S, A, D. drafted is null where any request only knows a nominal figure.
    acceptance_length: 1 + ΣA / ΣS. acceptance_length_request_mean: mean over requests with S > 0 of 1 + A / S.
    acceptance_rate: ΣA / ΣD. drafts_per_step: ΣD / ΣS.
    positions[i - 1]: Σ_{j >= i} h[j] / ΣS, for i = 1 … k; positions_request_mean: mean over requests with S > 0.
    conditional_positions[i - 1]: steps that accepted >= i / steps that drafted >= i.
    k: the largest of the requests' k, or null where there are none.
    full_steps: as the others, over the steps that drafted exactly k; null where no step tells what it drafted.
    delivered_per_step: Σ(C - 1) / ΣS, completion tokens after the first per verification step; not an AL, and null
    where steps without drafts delivered tokens too.
    undelivered: verified tokens past the end of an answer, at least: Σ max(0, 1 + S + A - C).
    unexplained: tokens beyond 1 + S + A, from steps without drafts: Σ max(0, C - 1 - S - A).
    inferred: whether any request's counters were worked out from an average instead of counted.
    """

    conversations: int
    requests: int
    steps: int
    accepted: int
    drafted: int | None
    k: int | None
    acceptance_length: Estimate | None
    acceptance_length_request_mean: Estimate | None
    acceptance_rate: Estimate | None
    drafts_per_step: float | None
    positions: tuple[Estimate, ...] | None
    positions_request_mean: tuple[Estimate, ...] | None
    conditional_positions: tuple[float | None, ...] | None
    full_steps: "FullSteps | None"
    delivered_per_step: Estimate | None
    undelivered: int | None
    unexplained: int | None
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class FullSteps:
    """Steps that drafted exactly k: engines clip drafts near the token limit, which lowers AL over all steps."""

    steps: int
    acceptance_length: float
    positions: tuple[float, ...]


def outcome(records: Iterable[RequestRecord], planned: int) -> Outcome:
    """Count the fates of `planned` requests; those without a record were not sent, because the run stopped."""
    not_sent, failed, no_counters, invalid = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    ok = measured = zero_steps = length = seen = 0
    for record in records:
        seen += 1
        if record.status == "not_sent":
            not_sent[kind(record.failure_reason)] += 1
            continue
        if record.status == "failed":
            failed[kind(record.failure_reason)] += 1
            continue
        ok += 1
        length += record.finish_reason == "length"
        if record.counters is None:
            no_counters[kind(record.no_counters_reason)] += 1
        elif broken := breach(record.counters, record.completion_tokens):
            invalid[broken] += 1
        else:
            measured += 1
            zero_steps += record.counters.steps == 0
    if planned > seen:
        not_sent["stopped"] += planned - seen
    return Outcome(
        planned=planned,
        not_sent_by=dict(sorted(not_sent.items())),
        failed_by=dict(sorted(failed.items())),
        no_counters_by=dict(sorted(no_counters.items())),
        invalid_by=dict(sorted(invalid.items())),
        ok=ok,
        measured=measured,
        zero_steps=zero_steps,
        length=length,
    )


def kind(reason: str | None) -> str:
    """The countable part of a reason: what stands before its first ": "."""
    return (reason or "unknown").partition(": ")[0]


def measured(records: Iterable[RequestRecord]) -> list[tuple[RequestRecord, SpecCounters]]:
    """Requests whose counters are there and keep every identity."""
    return [
        (r, r.counters)
        for r in records
        if r.status == "ok" and r.counters is not None and breach(r.counters, r.completion_tokens) is None
    ]


def figures(records: Iterable[RequestRecord]) -> Figures:
    """Pool the measured requests among `records`."""
    pairs = measured(records)
    stepped = [(record, counters) for record, counters in pairs if counters.steps > 0]
    counters = [c for _, c in stepped]
    steps, accepted = sum(c.steps for c in counters), sum(c.accepted for c in counters)
    drafts = [c.drafted for c in counters]
    drafted = None if None in drafts else sum(d for d in drafts if d is not None)
    k = max((c.k for _, c in pairs), default=None)
    return Figures(
        conversations=len({(r.dataset, r.prompt_id) for r, _ in pairs}),
        requests=len(pairs),
        steps=steps,
        accepted=accepted,
        drafted=drafted if counters else (0 if pairs else None),
        k=k,
        acceptance_length=_clustered(stepped, lambda c: c.accepted, lambda c: c.steps, offset=1.0),
        acceptance_length_request_mean=_clustered(stepped, lambda c: c.accepted / c.steps, lambda _: 1, offset=1.0),
        acceptance_rate=_clustered(stepped, lambda c: c.accepted, lambda c: c.drafted or 0) if drafted else None,
        drafts_per_step=drafted / steps if drafted is not None and steps else None,
        positions=_positions(stepped, k, lambda c: c.steps),
        positions_request_mean=_positions(stepped, k, lambda _: 1),
        conditional_positions=_conditional(counters, k),
        full_steps=_full_steps(counters, k),
        **_delivery([pair for pair in pairs if pair[1].source != "inferred"]),
        inferred=any(c.source == "inferred" for c in counters),
    )


def server_wide(
    steps: int, drafted: int | None, accepted: int, positions: Sequence[int], k: int | None, requests: int
) -> Figures:
    """Figures of a server's own totals: pooled, without an interval and without anything by request.

    positions: steps that accepted at least 1, 2, … drafts; they are kept where they add up to `accepted`. k may be
    larger than their number, since a position without an acceptance may have no series.
    """
    longest = max(len(positions), k or 0) or None
    shares = [n / steps for n in (*positions, *[0] * ((longest or 0) - len(positions)))] if steps else []
    return Figures(
        conversations=0,
        requests=requests,
        steps=steps,
        accepted=accepted,
        drafted=drafted,
        k=longest,
        acceptance_length=bare(1 + accepted / steps) if steps else None,
        acceptance_length_request_mean=None,
        acceptance_rate=bare(accepted / drafted) if drafted else None,
        drafts_per_step=drafted / steps if drafted is not None and steps else None,
        positions=tuple(map(bare, shares)) if shares and sum(positions) == accepted else None,
        positions_request_mean=None,
        conditional_positions=None,
        full_steps=None,
        delivered_per_step=None,
        undelivered=None,
        unexplained=None,
    )


def bare(value: float) -> Estimate:
    """Of totals that no conversation stands behind."""
    return Estimate(value, None, None, 0)


def _clustered(
    pairs: Sequence[tuple[RequestRecord, SpecCounters]],
    numerator: Callable[[SpecCounters], float],
    denominator: Callable[[SpecCounters], int],
    *,
    offset: float = 0.0,
) -> Estimate | None:
    """`offset` + Σ numerator / Σ denominator, conversations being the units."""
    found = _clustered_rows(pairs, lambda c: [numerator(c)], denominator, width=1, offset=offset)
    return found[0] if found else None


def _clustered_rows(
    pairs: Sequence[tuple[RequestRecord, SpecCounters]],
    numerators: Callable[[SpecCounters], Sequence[float]],
    denominator: Callable[[SpecCounters], int],
    *,
    width: int,
    offset: float = 0.0,
) -> tuple[Estimate, ...]:
    """`width` ratios over one denominator; turns and repeats of a conversation are summed first."""
    sums: dict[tuple[str, str], list[float]] = {}
    for record, counters in pairs:
        entry = sums.setdefault((record.dataset, record.prompt_id), [0.0] * (width + 1))
        for i, value in enumerate((*numerators(counters), denominator(counters))):
            entry[i] += value
    table = np.array(list(sums.values()), dtype=np.float64).reshape(len(sums), width + 1)
    return stats.ratios(table[:, :width], table[:, width], offset=offset)


def at_least(counters: SpecCounters, k: int) -> list[int]:
    """Steps that accepted at least 1, …, k drafts."""
    reached = list(accumulate(reversed(counters.histogram or ())))[::-1]
    return [reached[i] if i < len(reached) else 0 for i in range(1, k + 1)]


def _positions(
    pairs: Sequence[tuple[RequestRecord, SpecCounters]], k: int | None, weight: Callable[[SpecCounters], int]
) -> tuple[Estimate, ...] | None:
    """Shares of steps, each request weighing `weight`: its steps for pooled figures, 1 for a mean over requests."""
    if not k or not pairs or any(c.histogram is None for _, c in pairs):
        return None
    return _clustered_rows(pairs, lambda c: [n * weight(c) / c.steps for n in at_least(c, k)], weight, width=k)


def _conditional(counters: Sequence[SpecCounters], k: int | None) -> tuple[float | None, ...] | None:
    if k is None or not counters or any(c.per_step_accepted is None or c.per_step_drafted is None for c in counters):
        return None
    accepted = Counter(a for c in counters for a in c.per_step_accepted or ())
    drafted = Counter(d for c in counters for d in c.per_step_drafted or ())
    reached = [
        (sum(accepted[j] for j in range(i, k + 1)), sum(drafted[j] for j in range(i, k + 1))) for i in range(1, k + 1)
    ]
    return tuple(a / d if d else None for a, d in reached)


def _full_steps(counters: Sequence[SpecCounters], k: int | None) -> FullSteps | None:
    if k is None or any(c.per_step_accepted is None or c.per_step_drafted is None for c in counters):
        return None
    pairs = (pair for c in counters for pair in zip(c.per_step_accepted or (), c.per_step_drafted or (), strict=True))
    accepted = [a for a, d in pairs if d == k]
    if not accepted:
        return None
    n = len(accepted)
    return FullSteps(n, 1 + sum(accepted) / n, tuple(sum(a >= i for a in accepted) / n for i in range(1, k + 1)))


class _Delivery(TypedDict):
    delivered_per_step: Estimate | None
    undelivered: int | None
    unexplained: int | None


def _delivery(pairs: Sequence[tuple[RequestRecord, SpecCounters]]) -> _Delivery:
    """What became of verified tokens. C = 1 + S + A + Z - X: Z plain steps, X tokens past the end.

    An answer of one token took no step and delivers none; a longer one without steps is all plain steps.
    """
    steps = sum(c.steps for _, c in pairs)
    if not steps or any(record.completion_tokens is None for record, _ in pairs):
        return {"delivered_per_step": None, "undelivered": None, "unexplained": None}
    excess = [max(record.completion_tokens or 0, 1) - 1 - c.steps - c.accepted for record, c in pairs]
    sums: dict[tuple[str, str], list[int]] = {}
    for record, c in pairs:
        entry = sums.setdefault((record.dataset, record.prompt_id), [0, 0])
        entry[0] += max(record.completion_tokens or 0, 1) - 1
        entry[1] += c.steps
    delivered = stats.ratio([y for y, _ in sums.values()], [x for _, x in sums.values()])
    return {
        "delivered_per_step": delivered if max(excess) <= 0 else None,
        "undelivered": sum(max(0, -n) for n in excess),
        "unexplained": sum(max(0, n) for n in excess),
    }
