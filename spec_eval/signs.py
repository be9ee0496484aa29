"""Signs in the records that a figure may not mean what its reader takes it for."""

from collections.abc import Sequence
from dataclasses import dataclass

from spec_eval.acceptance import measured
from spec_eval.records import RequestRecord, SpecCounters

# A loop: the answer ends in one stretch of at most so many characters, said at least four times over.
_LONGEST_STRETCH = 200
_TIMES = 4
_SHORTEST_LOOP = 120
# Steps in a row without an accepted draft, which chance would give less often than this.
_SILENT_STEPS = 64
_BY_CHANCE = 1e-9
_SILENT_PROMPTS = 3


def loops(text: str) -> bool:
    """Whether an answer ends in a loop: the same stretch at least four times in a row, 120 characters or more."""
    end = text[-_LONGEST_STRETCH * _TIMES :]
    for period in range(1, _LONGEST_STRETCH + 1):
        length = max(period * _TIMES, _SHORTEST_LOOP)
        if length > len(end):
            return False
        tail = end[-length:]
        if tail[period:] == tail[:-period]:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Silence:
    """Where a drafter stopped being accepted: after so many prompt tokens, or in so many answers half-way."""

    prompt_tokens: int | None
    prompts: int
    answers: int


def silence(records: Sequence[RequestRecord]) -> Silence | None:
    """A drafter beyond its context: from a point on not one draft is accepted.

    Either every prompt longer than some length has no accepted draft, or answers go silent and stay so. Both are
    told only where chance would hardly do it, were each step to accept nothing as often as steps do overall.
    """
    pairs = [(r, c) for r, c in measured(records) if c.steps and c.histogram is not None]
    steps, nothing = sum(c.steps for _, c in pairs), sum((c.histogram or (0,))[0] for _, c in pairs)
    if not steps or nothing in (0, steps):
        return None
    tokens, prompts = _silent_prompts(pairs, steps, nothing)
    answers = sum(_goes_silent(c, nothing / steps) for _, c in pairs)
    return Silence(tokens, prompts, answers) if prompts or answers else None


def _silent_prompts(
    pairs: Sequence[tuple[RequestRecord, SpecCounters]], steps: int, nothing: int
) -> tuple[int | None, int]:
    """(shortest of the longest prompts that accepted nothing, their number); the others give the odds."""
    known = [(r.prompt_tokens, c) for r, c in pairs if r.prompt_tokens is not None]
    if not known or max(tokens for tokens, _ in known) < 2 * min(tokens for tokens, _ in known):
        return None, 0  # prompts of about one length: it can be no cause
    silent: list[tuple[int, SpecCounters]] = []
    for tokens, counters in sorted(known, key=lambda pair: pair[0], reverse=True):
        if counters.accepted:
            break
        silent.append((tokens, counters))
    quiet = sum(c.steps for _, c in silent)
    others = steps - quiet
    if len(silent) < _SILENT_PROMPTS or not others:
        return None, 0
    odds = max(nothing - quiet, 0.5) / others
    return (silent[-1][0], len(silent)) if odds**quiet < _BY_CHANCE else (None, 0)


def _goes_silent(counters: SpecCounters, odds: float) -> bool:
    accepted = counters.per_step_accepted or ()
    quiet = next((i for i, a in enumerate(reversed(accepted)) if a), len(accepted))
    return bool(_SILENT_STEPS <= quiet < len(accepted) and odds**quiet < _BY_CHANCE)
