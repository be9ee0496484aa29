"""Arms of one data set beside each other: what drafting gains at equal concurrency, and what else differs."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spec_eval.arms import Arm, Point, Spread, arm_of, labelled
from spec_eval.errors import UsageError
from spec_eval.store.windows import WindowFolder

_DIGEST = 64  # characters of a SHA-256


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
        arms = labelled([arm_of(folders[i], plans[i]) for i in members])
        found.append(_compared(arms, arms[members.index(chosen)] if chosen in members else None))
    return found


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
    "adaptive verification": lambda a: a.adaptive,
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
