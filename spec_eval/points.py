"""Figures of points: what another tool kept of a server's totals, pooled like everything else."""

from collections.abc import Sequence
from dataclasses import replace

from spec_eval import acceptance
from spec_eval.acceptance import Figures, Outcome
from spec_eval.engines.server_wide import NO_COUNTERS
from spec_eval.store import Point

NOT_TOLD = "reason not told"


def outcome(points: Sequence[Point]) -> Outcome:
    """Requests of all `points`; none has counters of its own, and a point without figures says why."""
    no_counters: dict[str, int] = {}
    invalid: dict[str, int] = {}
    for point in points:
        table = invalid if point.broken else no_counters
        reason = point.no_figure or NO_COUNTERS
        table[reason] = table.get(reason, 0) + point.ok
    ok, failed = sum(point.ok for point in points), sum(point.failed for point in points)
    planned = sum(point.planned for point in points)
    unknown = planned - ok - failed
    return Outcome(
        planned=planned,
        not_sent_by={NOT_TOLD: unknown} if unknown else {},
        failed_by={NOT_TOLD: failed} if failed else {},
        no_counters_by={reason: n for reason, n in sorted(no_counters.items()) if n},
        invalid_by={reason: n for reason, n in sorted(invalid.items()) if n},
        ok=ok,
        measured=0,
        zero_steps=0,
        length=0,
    )


def figures(points: Sequence[Point]) -> Figures:
    """Of the points that have any: sums divided once. A position is Σ share x S / ΣS, where all of them know it."""
    found = [point for point in points if point.steps and point.accepted is not None]
    if not found:
        return acceptance.figures(())
    steps = [point.steps or 0 for point in found]
    drafts = [point.drafted for point in found]
    longest = max(len(point.positions or ()) for point in found)
    rows = [[*(point.positions or ()), *[0.0] * (longest - len(point.positions or ()))] for point in found]
    shares = [sum(n * row[i] for n, row in zip(steps, rows, strict=True)) / sum(steps) for i in range(longest)]
    pooled = acceptance.server_wide(
        steps=sum(steps),
        drafted=None if None in drafts else sum(n or 0 for n in drafts),
        accepted=sum(point.accepted or 0 for point in found),
        positions=(),
        k=longest or None,
        requests=sum(point.ok for point in found),
    )
    whole = all(point.positions for point in found)
    return replace(pooled, positions=tuple(map(acceptance.bare, shares)) if whole else None)
