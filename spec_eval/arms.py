"""A throughput run as an arm of a comparison: a point for each level of concurrency, under a name of its own.

X is AIPerf's `output_token_throughput_per_user.avg`, Y its `output_token_throughput.avg`; repeats are averaged with
equal weight. A level without figures is a hole: null, and never a zero.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spec_eval.store.windows import (
    OK,
    WindowCell,
    WindowFolder,
    WindowManifest,
    WindowPlan,
    WindowSession,
)

X_METRIC, Y_METRIC = "output_token_throughput_per_user", "output_token_throughput"
NO_DRAFTER = "none"
_WHEN = re.compile(r"\d{8}-\d{6}")


@dataclass(frozen=True)
class Spread:
    """Equal-weight mean over repeats, with the smallest and the largest. n: repeats that have a figure."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Point:
    """One level of an arm. x, y: null in a hole, whose reasons are in `holes`, one a repeat without figures.

    server: tokens a second by the server's own counter. dropped: share, and of what. acceptance_length: of the
    answers that the windows completed, 1 + ΣA / ΣS over the repeats. cells: with figures; lost: tried without.
    """

    concurrency: int
    x: Spread | None
    y: Spread | None
    server: Spread | None
    dropped: Spread | None
    dropped_of: str | None
    dispatched: int | None
    completed: int | None
    failed: int | None
    acceptance_length: float | None
    holes: tuple[str, ...]
    cells: tuple[WindowCell, ...]
    lost: tuple[WindowCell, ...]


@dataclass(frozen=True, eq=False)
class Arm:
    """One run. label: its drafter, and where drafters are equal what tells them apart. points: by concurrency."""

    plan: WindowPlan
    manifest: WindowManifest | None
    sessions: tuple[WindowSession, ...]
    label: str
    points: tuple[Point, ...]

    @property
    def drafts(self) -> bool | None:
        """Whether a drafter is named; null where nothing tells."""
        target, told = self.plan.target, self.server_fact("speculative")
        if not target.drafts or target.drafter == NO_DRAFTER:
            return False
        return True if target.drafter is not None else told if isinstance(told, bool) else None

    @property
    def k(self) -> int | None:
        """Draft tokens a step; null where there is no drafter, or nobody says."""
        k = self.server_fact("k") or self.plan.target.k
        return k if isinstance(k, int) and self.drafts is not False else None

    @property
    def cells(self) -> list[WindowCell]:
        """Those with figures."""
        return [cell for point in self.points for cell in point.cells]

    @property
    def adaptive(self) -> bool | None:
        """Whether only some drafts are verified: as the user or the recipe says, else the server; null: nobody."""
        if (chosen := self.plan.target.adaptive) is not None:
            return chosen
        told = self.server_fact("adaptive")
        return told if isinstance(told, bool) else None

    @property
    def by_level(self) -> dict[int, Point]:
        """Points that have figures."""
        return {point.concurrency: point for point in self.points if point.x is not None and point.y is not None}

    @property
    def marks(self) -> list[str]:
        """What its figures are not, in a word or two."""
        found = {
            "synthetic": self.plan.synthetic is not None,
            "stand-in rows": self.plan.prompts.standin,
            "incomplete": self.manifest is None,
            "holes": any(point.holes for point in self.points),
            "warm cache": any(cell.prefix_cache and cell.prefix_cache.hits for cell in self.cells),
            "failures": any(cell.fails_more_than(self.plan.max_failures) for cell in self.cells),
        }
        return [mark for mark, there in found.items() if there]

    @property
    def server(self) -> dict[str, Any] | None:
        """What the server said of itself, last of all; null where none was asked yet."""
        if self.manifest is not None:
            return self.manifest.server
        return self.sessions[-1].server if self.sessions else None

    def server_fact(self, name: str) -> Any:
        """One thing of that; null where it does not say."""
        return (self.server or {}).get(name)

    def server_facts(self, name: str) -> tuple[Any, ...]:
        """One thing as the server said it in each session, without what is not known: several where it changed."""
        told = [*(session.server.get(name) for session in self.sessions), self.server_fact(name)]
        return tuple(value for i, value in enumerate(told) if value is not None and value not in told[:i])

    @property
    def aiperf_versions(self) -> tuple[str, ...]:
        """As planned, and as the cells with figures name it where that is another one."""
        told = [cell.aiperf_version for cell in self.cells]
        return tuple(dict.fromkeys([self.plan.aiperf.version, *(version for version in told if version is not None)]))


def drafter(plan: WindowPlan) -> str:
    """Its name, for people."""
    return (plan.target.drafter or "drafter not named") if plan.target.drafts else "no drafter"


def labelled(arms: Sequence[Arm]) -> list[Arm]:
    """Each under the name of its drafter, and with what tells arms of one drafter apart, at last with its run id."""
    labels = [_label(arm, [one for one in arms if one.label == arm.label]) for arm in arms]
    starts = [_start(arm) for arm in arms]
    ids = [start if starts.count(start) == 1 else arm.plan.run_id for arm, start in zip(arms, starts, strict=True)]
    return [
        replace(arm, label=label if label is not None and labels.count(label) == 1 else f"{arm.label} ({name})")
        for arm, label, name in zip(arms, labels, ids, strict=True)
    ]


def _start(arm: Arm) -> str:
    """Of its run id, which begins with when it was; all of an id of another form."""
    found = _WHEN.match(arm.plan.run_id)
    return found[0] if found else arm.plan.run_id


def _label(arm: Arm, alike: Sequence[Arm]) -> str | None:
    """alike: the arms of its name, itself among them. None where nothing but their ids tells them apart."""
    if len(alike) == 1:
        return arm.label
    for of in _TELLING:
        told = [of(one) for one in alike]
        if None not in told and len(set(told)) == len(told):
            return f"{arm.label}, {of(arm)}"
    return None


def _told_k(arm: Arm) -> str | None:
    return None if arm.k is None else f"k {arm.k}"


def _told_adaptive(arm: Arm) -> str | None:
    return None if arm.adaptive is None else f"adaptive {'on' if arm.adaptive else 'off'}"


def _told_both(arm: Arm) -> str | None:
    both = (_told_k(arm), _told_adaptive(arm))
    return None if None in both else ", ".join(filter(None, both))


_TELLING = (_told_k, _told_adaptive, _told_both)


def arm_of(folder: WindowFolder, plan: WindowPlan) -> Arm:
    """Of a run folder and its plan, under the name of its drafter."""
    cells = folder.cells()
    points = [
        _point(level, [cells.get((level, repeat)) for repeat in range(1, plan.window.repeats + 1)])
        for level in sorted(plan.window.concurrency)
    ]
    return Arm(plan, folder.manifest(), folder.sessions(), drafter(plan), tuple(points))


def _point(level: int, tried: Sequence[WindowCell | None]) -> Point:
    good = [cell for cell in tried if cell is not None and _has_figures(cell)]
    drops = [cell.dropped for cell in good if cell.dropped is not None]
    # Shares of tokens and of requests are different things, and are not averaged; none of either is none of both.
    bases = {drop.basis for drop in drops if drop.share > 0} or {drop.basis for drop in drops}
    alike = drops if len(bases) == 1 and len(drops) == len(good) else []
    counters = [cell.drafts for cell in good if cell.drafts is not None]
    steps, accepted = sum(d.steps for d in counters), sum(d.accepted for d in counters)
    return Point(
        concurrency=level,
        x=_spread(cell.average(X_METRIC) for cell in good),
        y=_spread(cell.average(Y_METRIC) for cell in good),
        server=_spread(cell.server_window.tokens_per_second for cell in good),
        dropped=_spread(drop.share for drop in alike),
        dropped_of=min(bases) if alike else None,
        dispatched=_total(cell.requests.dispatched for cell in good),
        completed=_total(cell.requests.completed for cell in good),
        failed=_total(cell.requests.failed for cell in good),
        acceptance_length=1 + accepted / steps if steps else None,
        holes=tuple(_hole(cell, repeat) for repeat, cell in enumerate(tried, 1) if cell not in good),
        cells=tuple(good),
        lost=tuple(cell for cell in tried if cell is not None and cell not in good),
    )


def _has_figures(cell: WindowCell) -> bool:
    return cell.average(X_METRIC) is not None and cell.average(Y_METRIC) is not None


def _hole(cell: WindowCell | None, repeat: int) -> str:
    outcome = "not measured" if cell is None else "without figures" if cell.outcome == OK else cell.outcome
    return f"repeat {repeat}: {outcome}"


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(sum(known) / len(known), min(known), max(known), len(known)) if known else None


def _total(values: Iterable[int | None]) -> int | None:
    known = [*values]
    return None if not known or None in known else sum(value or 0 for value in known)
