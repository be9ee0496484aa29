"""What keeps the figures of a run from being the whole truth: decided and worded here alone.

Every verb that shows a run's figures ends with the exit code of what is found here, or marks what it shows with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

from spec_eval import counting
from spec_eval.errors import NoVerdict, RunNotWhole, SpecEvalError
from spec_eval.loaded import LoadedRun
from spec_eval.rules import LEAST_COVERAGE
from spec_eval.store.windows import OK, WindowFolder


class Cause(StrEnum):
    """Every way to fall short, the gravest first."""

    UNFINISHED = "unfinished"
    LOST_RECORDS = "lost_records"
    HOLES = "holes"
    FAILURES = "failures"
    LOW_COVERAGE = "low_coverage"
    NO_DRAFTER = "no_drafter"
    NO_STEP = "no_step"
    NO_CELL = "no_cell"


# Not everything planned was driven to its end, or not all of it is there any more.
NOT_WHOLE = frozenset({Cause.UNFINISHED, Cause.LOST_RECORDS})
# Driven to its end, with too few requests to rest a figure on.
PARTIAL = frozenset({Cause.HOLES, Cause.FAILURES, Cause.LOW_COVERAGE})
# There is no figure at all: of acceptance, or of a window.
NO_FIGURE = frozenset({Cause.NO_DRAFTER, Cause.NO_STEP, Cause.NO_CELL})


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One of the ways in which a run falls short: where, what, and what to do about it."""

    cause: Cause
    where: Path
    what: str
    remedy: str

    def error(self, remedy: str | None = None) -> SpecEvalError:
        """What a verb ends with: exit code 3 where there is no figure, 5 where it is not the whole truth."""
        kind = NoVerdict if self.cause in NO_FIGURE else RunNotWhole
        return kind(f"{self.where}: {self.what}; {self.remedy if remedy is None else remedy}")


def shortfalls(run: LoadedRun) -> tuple[Shortfall, ...]:
    """All that hold for it, the gravest first; none of a run that is what was planned.

    A run that counts nothing by request covers none of its answers, and falls short of nothing by that.
    """
    plan, outcome = run.plan, run.outcome
    imported = plan.origin == "imported"
    resume = f"`spec-eval run --resume {run.path}`"
    whole = "import it again" if imported else f"go on with {resume}"
    found = []
    if run.manifest is None:
        done = outcome.planned - outcome.not_sent
        found.append((Cause.UNFINISHED, f"not whole: {done} of {outcome.planned} requests so far", whole))
    if run.lost:
        found.append((Cause.LOST_RECORDS, f"not whole: {run.lost} records are missing from requests.jsonl", whole))
    # Both sides are floats: the allowance was written in decimals, which a fraction of its float would not equal.
    if outcome.sent and outcome.failed / outcome.sent > plan.max_failures:
        allowed = f"more than --max-failures {100 * plan.max_failures:g}% allows"
        again = "import it with a higher one if that is right" if imported else f"ask them again with {resume}"
        found.append((Cause.FAILURES, f"{outcome.failed} of {outcome.sent} requests failed, {allowed}", again))
    if counting.counts_by_request(plan) and is_low(outcome.measured, outcome.ok):
        counted = f"{outcome.measured} of {outcome.ok} answers have usable counters"
        what = f"coverage {floored(outcome.measured, outcome.ok)} is below {float(LEAST_COVERAGE):.0%}: {counted}"
        anew = "record it anew" if imported else "start a new run"
        found.append((Cause.LOW_COVERAGE, what, f"its warnings say why: mend that and {anew}"))
    if not plan.target.drafts:
        what = "the run had no drafter, so there is no acceptance figure"
        found.append((Cause.NO_DRAFTER, what, "the requests table tells how it went"))
    elif not run.stepped:
        what = "no verification step was measured, so there is no figure"
        found.append((Cause.NO_STEP, what, "the requests table says why"))
    return tuple(Shortfall(cause, run.path, what, remedy) for cause, what, remedy in found)


def window_shortfalls(folder: WindowFolder) -> tuple[Shortfall, ...]:
    """The same for a throughput run: cells that were not tried, cells without figures, cells with too many failures."""
    plan, cells = folder.plan(), folder.cells()
    planned = plan.window.cells()
    resume = f"`spec-eval run --resume {folder.path}`"
    good = [cells[key] for key in planned if key in cells and cells[key].outcome == OK]
    tried = [cells[key] for key in planned if key in cells]
    holes = [f"{cell.name} {cell.outcome}" for cell in tried if cell.outcome != OK]
    failing = [f"{cell.name} {cell.requests.failed}" for cell in good if cell.fails_more_than(plan.max_failures)]
    lost = f"{len(holes)} of {len(planned)} cells have no figures ({', '.join(holes)})"
    found = []
    if not good:
        what = lost if holes else "no cell has figures yet"
        why = "the .out files in its folder cells say why; try again" if holes else "go on"
        found.append((Cause.NO_CELL, what, f"{why} with {resume}"))
    if not folder.is_whole:
        what = f"not whole: {len(tried)} of {len(planned)} cells so far"
        found.append((Cause.UNFINISHED, what, f"go on with {resume}"))
    if holes:
        found.append((Cause.HOLES, lost, f"they stay holes, or try them again with {resume}"))
    if failing:
        allowed = f"more than --max-failures {100 * plan.max_failures:g}% allows"
        again = "their .out files and records say why: mend that and start a new run"
        found.append((Cause.FAILURES, f"requests failed in {', '.join(failing)}, {allowed}", again))
    return tuple(Shortfall(cause, folder.path, what, remedy) for cause, what, remedy in found)


def first(found: Sequence[Shortfall], but: frozenset[Cause] = frozenset()) -> Shortfall | None:
    """The gravest that is not one of `but`, or None."""
    return next((one for one in found if one.cause not in but), None)


def is_low(measured: int, ok: int) -> bool:
    """Whether too few of the answers have usable counters; never of no answers."""
    return ok > 0 and Fraction(measured, ok) < LEAST_COVERAGE


def floored(part: int, whole: int) -> str:
    """A percentage with one decimal, cut and not rounded: what is short of a bound is never printed as the bound."""
    return f"{1000 * part // whole / 10:.1f}%"
