"""What shorter drafts would have given: the first k' drafts of the very steps that were measured.

A step that accepted j drafts would have accepted min(j, k') of its first k'. That is what a smaller k does to these
steps; it is no forecast of a run, whose steps would begin elsewhere, and whose drafter may draft otherwise.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from spec_eval.acceptance import at_least, measured
from spec_eval.records import RequestRecord


@dataclass(frozen=True, slots=True)
class Shorter:
    """At `k` drafts a step: acceptance length and rate, both pooled."""

    k: int
    acceptance_length: float
    acceptance_rate: float


def shorter(records: Iterable[RequestRecord]) -> tuple[Shorter, ...]:
    """One entry for each k' from 1 to k - 1; empty unless every request drafted with one fixed k.

    Formula: AL(k') = 1 + Σ_{i <= k'} position i; rate(k') = Σ_{i <= k'} steps accepting >= i / Σ min(drafted, k'),
    where a step drafted k unless its own count says that the engine clipped it.
    """
    counters = [c for _, c in measured(records) if c.steps]
    ks = {c.k for c in counters}
    if len(ks) != 1 or any(c.histogram is None or c.drafted is None for c in counters):
        return ()
    k = ks.pop()
    if any(c.per_step_drafted is None and c.drafted != c.k * c.steps for c in counters):
        return ()
    # A drafter that chooses its own lengths has no k to lower: more than a clipped step or two an answer is that.
    short = sum(sum(d < k for d in c.per_step_drafted) for c in counters if c.per_step_drafted is not None)
    if short > 2 * len(counters):
        return ()
    steps = sum(c.steps for c in counters)
    reached = [sum(column) for column in zip(*(at_least(c, k) for c in counters), strict=True)]
    found = []
    for fewer in range(1, k):
        accepted = sum(reached[:fewer])
        drafted = sum(
            c.steps * fewer if c.per_step_drafted is None else sum(min(d, fewer) for d in c.per_step_drafted)
            for c in counters
        )
        found.append(Shorter(fewer, 1 + accepted / steps, accepted / drafted))
    return tuple(found)
