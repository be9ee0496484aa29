"""Throughput runs as curves: an arm for each run, a point for each level of concurrency, and what drafting gains.

X is AIPerf's `output_token_throughput_per_user.avg`, Y its `output_token_throughput.avg`; repeats are averaged with
equal weight. A level without figures is a hole: null, and never a zero.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spec_eval.errors import UsageError
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
_DIGEST = 64  # characters of a SHA-256


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
        """Whether only some drafts are verified; null where nobody says."""
        told = self.server_fact("adaptive")
        return told if isinstance(told, bool) else self.plan.target.adaptive

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


@dataclass(frozen=True)
class Gain:
    """An arm against the baseline at one level: ratios of Y and of X, null where either has a hole."""

    arm: Arm
    concurrency: int
    y_ratio: float | None
    x_ratio: float | None


@dataclass(frozen=True)
class Comparison:
    """All arms of one data set. baseline: the one that was named, else the only one without a drafter, or null.

    bare: run ids of the arms without a drafter; several of them are no baseline until one is named.
    stops: for each other arm the lowest level where its Y ratio is below 1; null where none was measured.
    """

    dataset: str
    title: str
    arms: tuple[Arm, ...]
    baseline: Arm | None
    bare: tuple[str, ...]
    gains: tuple[Gain, ...]
    stops: dict[str, int | None] = field(default_factory=dict)
    differences: tuple[str, ...] = ()

    @property
    def lacks_baseline(self) -> bool:
        """Whether there are arms to compare, and nothing to compare them with."""
        return len(self.arms) > 1 and self.baseline is None


def read(folders: Sequence[WindowFolder], baseline: WindowFolder | None = None) -> list[Comparison]:
    """A comparison for each data set, in the order given; UsageError for a run, or a copy of it, given twice."""
    paths = [folder.path.resolve() for folder in folders]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise UsageError(f"{twice}: the run is given twice; give each run once")
    if baseline is not None and baseline.path.resolve() not in paths:
        raise UsageError(f"--baseline {baseline.path}: is none of the runs; give it among them too")
    plans = [folder.plan() for folder in folders]
    ids = [plan.run_id for plan in plans]
    if copy := next((path for i, path in enumerate(paths) if ids[i] in ids[:i]), None):
        raise UsageError(f"{copy}: a copy of run {ids[paths.index(copy)]}, which is given too; give each run once")
    groups: dict[str, list[int]] = {}
    for i, plan in enumerate(plans):
        groups.setdefault(plan.dataset, []).append(i)
    chosen = paths.index(baseline.path.resolve()) if baseline is not None else None
    found = []
    for members in groups.values():
        arms = _labelled([_arm(folders[i], plans[i]) for i in members])
        found.append(_compared(arms, arms[members.index(chosen)] if chosen in members else None))
    return found


def drafter(plan: WindowPlan) -> str:
    """Its name, for people."""
    return (plan.target.drafter or "drafter not named") if plan.target.drafts else "no drafter"


def _labelled(arms: Sequence[Arm]) -> list[Arm]:
    """Each under the name of its drafter, and with what tells arms of one drafter apart, at last with its run id."""
    labels = [_label(arm, [one for one in arms if one.label == arm.label]) for arm in arms]
    return [
        replace(arm, label=label if labels.count(label) == 1 else f"{arm.label} ({arm.plan.run_id})")
        for arm, label in zip(arms, labels, strict=True)
    ]


def _label(arm: Arm, alike: Sequence[Arm]) -> str:
    """alike: the arms of its name, itself among them."""
    if len(alike) == 1:
        return arm.label
    for of in _TELLING:
        told = [of(one) for one in alike]
        if None not in told and len(set(told)) == len(told):
            return f"{arm.label}, {of(arm)}"
    return f"{arm.label} ({arm.plan.run_id})"


def _told_k(arm: Arm) -> str | None:
    return None if arm.k is None else f"k {arm.k}"


def _told_adaptive(arm: Arm) -> str | None:
    return None if arm.adaptive is None else f"adaptive {_shown(arm.adaptive)}"


def _told_both(arm: Arm) -> str | None:
    both = (_told_k(arm), _told_adaptive(arm))
    return None if None in both else ", ".join(filter(None, both))


_TELLING = (_told_k, _told_adaptive, _told_both)


def _arm(folder: WindowFolder, plan: WindowPlan) -> Arm:
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


def _compared(arms: Sequence[Arm], named: Arm | None) -> Comparison:
    bare = [arm for arm in arms if arm.drafts is False]
    base = named or (bare[0] if len(bare) == 1 else None)
    others = [arm for arm in arms if arm is not base] if base is not None else []
    gains = [gain for arm in others if base is not None for gain in _gains(arm, base)]
    stops = {arm.label: _stop(gain for gain in gains if gain.arm is arm) for arm in others}
    plan = arms[0].plan
    ids = tuple(arm.plan.run_id for arm in bare)
    differences = (*_differences(arms), *_changes(arms))
    return Comparison(plan.dataset, plan.title, tuple(arms), base, ids, tuple(gains), stops, differences)


def _gains(arm: Arm, base: Arm) -> list[Gain]:
    """At every level that both planned."""
    ours, theirs = arm.by_level, base.by_level
    levels = sorted({p.concurrency for p in arm.points} & {p.concurrency for p in base.points})
    return [
        Gain(arm, level, _ratio(ours.get(level), theirs.get(level), lambda p: p.y),
             _ratio(ours.get(level), theirs.get(level), lambda p: p.x))
        for level in levels
    ]  # fmt: skip


def _ratio(ours: Point | None, theirs: Point | None, of: Callable[[Point], Spread | None]) -> float | None:
    above, below = (of(point) if point is not None else None for point in (ours, theirs))
    return above.mean / below.mean if above is not None and below is not None and below.mean else None


def _stop(gains: Iterable[Gain]) -> int | None:
    return min((g.concurrency for g in gains if g.y_ratio is not None and g.y_ratio < 1), default=None)


def _differences(arms: Sequence[Arm]) -> list[str]:
    """What else than the drafter differs between arms, so that the curves do not isolate it; one sentence each.

    Values are compared as they are, and shortened for the sentence alone.
    """
    found = []
    for name, of in _FACTS.items():
        values = [of(arm) for arm in arms]
        if all(value == values[0] for value in values):
            continue
        shown = [_shown(value) for value in values]
        told = "; ".join(f"{arm.label}: {text}" for arm, text in zip(arms, shown, strict=True))
        found.append(f"Arms differ in {name} ({told}).")
    return found


def _changes(arms: Sequence[Arm]) -> list[str]:
    """What changed inside an arm, from one session of its run to the next."""
    return [
        f"{arm.label}: {name} changed while the run was measured ({_shown(values)})."
        for arm in arms
        for name, fact in _SERVER.items()
        if len(values := arm.server_facts(fact)) > 1
    ]


def _chosen(arm: Arm) -> str:
    """How many prompts, and which: their names in order, as a digest."""
    names = "\n".join(prompt_id for prompt_id, _, _ in arm.plan.prompts.units)
    return f"{len(arm.plan.prompts.units)} of them, {hashlib.sha256(names.encode()).hexdigest()[:8]}"


def _said(fact: str) -> Callable[[Arm], Any]:
    return lambda arm: arm.server_facts(fact)


_SERVER = {
    "server version": "engine_version",
    "tensor parallelism": "tensor_parallelism",
    "prefix caching": "prefix_caching",
    "chat template": "chat_template_sha256",
    "adaptive verification": "adaptive",
}
_FACTS: dict[str, Callable[[Arm], Any]] = {
    "engine": lambda a: a.plan.target.engine,
    "model": lambda a: a.server_fact("model") or a.plan.target.model,
    **{name: _said(fact) for name, fact in _SERVER.items()},
    "hardware": lambda a: (a.plan.target.hardware or {}).get("name"),
    "what makes them synthetic": lambda a: a.plan.synthetic or "nothing",
    "window": lambda a: _seconds(a.plan.window.duration_s),
    "warm-up": lambda a: _seconds(a.plan.window.warmup_s),
    "grace": lambda a: _seconds(a.plan.window.grace_s),
    "repeats": lambda a: a.plan.window.repeats,
    "order of cells": lambda a: a.plan.window.order,
    "sampling": lambda a: a.plan.sampling.model_dump(exclude_none=True),
    "prompts": lambda a: (a.plan.prompts.sha256 or "")[:12] or None,
    "chosen prompts": _chosen,
    "seed": lambda a: a.plan.seed,
    "AIPerf": lambda a: a.aiperf_versions,
    "spec-eval": lambda a: " ".join(filter(None, (a.plan.spec_eval_version, (a.plan.spec_eval_commit or "")[:12]))),
}


def _seconds(value: float) -> str:
    """Short where that says all."""
    short = f"{value:g}"
    return f"{short if float(short) == value else repr(value)} s"


def _shown(value: Any) -> str:
    if value is None or value == ():
        return "not known"
    if isinstance(value, tuple):
        return ", then ".join(map(_shown, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value)
    return text[:12] if len(text) == _DIGEST and text.isalnum() else text
