"""Throughput runs as curves: an arm for each run, a point for each level of concurrency, and what drafting gains.

X is AIPerf's `output_token_throughput_per_user.avg`, Y its `output_token_throughput.avg`; repeats are averaged with
equal weight. A level without figures is a hole: null, and never a zero.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spec_eval.errors import UsageError
from spec_eval.store.windows import OK, WindowCell, WindowFolder, WindowManifest, WindowPlan

X_METRIC, Y_METRIC = "output_token_throughput_per_user", "output_token_throughput"
NO_DRAFTER = "none"


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
    answers that the windows completed, 1 + ΣA / ΣS over the repeats.
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


@dataclass(frozen=True, eq=False)
class Arm:
    """One run. label: its drafter, and its run id where drafters are equal. points: in order of concurrency."""

    plan: WindowPlan
    manifest: WindowManifest | None
    label: str
    points: tuple[Point, ...]

    @property
    def drafts(self) -> bool | None:
        """Whether a drafter is named; null where nothing tells."""
        return _drafts(self.plan, self.manifest)

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
        }
        return [mark for mark, there in found.items() if there]

    def server_fact(self, name: str) -> Any:
        """What the server says of itself; null where it does not, or the run has no end yet."""
        return self.manifest.server.get(name) if self.manifest else None


@dataclass(frozen=True)
class Gain:
    """An arm against the baseline at one level: ratios of Y and of X, null where either has a hole."""

    arm: Arm
    concurrency: int
    y_ratio: float | None
    x_ratio: float | None


@dataclass(frozen=True)
class Comparison:
    """All arms of one data set. baseline: the arm without a drafter, or null.

    stops: for each other arm the lowest level where its Y ratio is below 1; null where none was measured.
    """

    dataset: str
    title: str
    arms: tuple[Arm, ...]
    baseline: Arm | None
    gains: tuple[Gain, ...]
    stops: dict[str, int | None] = field(default_factory=dict)
    differences: tuple[str, ...] = ()


def read(folders: Sequence[WindowFolder], baseline: WindowFolder | None = None) -> list[Comparison]:
    """A comparison for each data set, in the order given; UsageError for a run given twice or two baselines."""
    paths = [folder.path.resolve() for folder in folders]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise UsageError(f"{twice}: the run is given twice; give each run once")
    if baseline is not None and baseline.path.resolve() not in paths:
        raise UsageError(f"--baseline {baseline.path}: is none of the runs; give it among them too")
    plans = [folder.plan() for folder in folders]
    groups: dict[str, list[int]] = {}
    for i, plan in enumerate(plans):
        groups.setdefault(plan.dataset, []).append(i)
    chosen = paths.index(baseline.path.resolve()) if baseline is not None else None
    found = []
    for members in groups.values():
        names = [drafter(plans[i]) for i in members]
        labels = [f"{n} ({plans[i].run_id})" if names.count(n) > 1 else n for n, i in zip(names, members, strict=True)]
        arms = [_arm(folders[i], plans[i], label) for i, label in zip(members, labels, strict=True)]
        found.append(_compared(arms, arms[members.index(chosen)] if chosen in members else None))
    return found


def drafter(plan: WindowPlan) -> str:
    """Its name, for people."""
    return (plan.target.drafter or "drafter not named") if plan.target.drafts else "no drafter"


def _arm(folder: WindowFolder, plan: WindowPlan, label: str) -> Arm:
    cells = folder.cells()
    points = [
        _point(level, [cells.get((level, repeat)) for repeat in range(1, plan.window.repeats + 1)])
        for level in sorted(plan.window.concurrency)
    ]
    return Arm(plan, folder.manifest(), label, tuple(points))


def _point(level: int, tried: Sequence[WindowCell | None]) -> Point:
    good = [cell for cell in tried if cell is not None and cell.outcome == OK]
    drops = [cell.dropped for cell in good if cell.dropped is not None]
    # Shares of tokens and of requests are different things: only where all repeats tell of tokens, they count.
    bases = {drop.basis for drop in drops if drop.share > 0} or {"tokens"}
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
        holes=tuple(_hole(cell, repeat) for repeat, cell in enumerate(tried, 1) if cell is None or cell.outcome != OK),
        cells=tuple(good),
    )


def _hole(cell: WindowCell | None, repeat: int) -> str:
    return f"repeat {repeat}: {cell.outcome if cell is not None else 'not measured'}"


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(sum(known) / len(known), min(known), max(known), len(known)) if known else None


def _total(values: Iterable[int | None]) -> int | None:
    known = [*values]
    return None if not known or None in known else sum(value or 0 for value in known)


def _compared(arms: Sequence[Arm], named: Arm | None) -> Comparison:
    bare = [arm for arm in arms if arm.drafts is False]
    if named is None and len(bare) > 1:
        ids = ", ".join(arm.plan.run_id for arm in bare)
        raise UsageError(f"{ids}: several runs without a drafter; choose one with --baseline RUN")
    base = named or (bare[0] if bare else None)
    others = [arm for arm in arms if arm is not base] if base is not None else []
    gains = [gain for arm in others if base is not None for gain in _gains(arm, base)]
    stops = {arm.label: _stop(gain for gain in gains if gain.arm is arm) for arm in others}
    plan = arms[0].plan
    return Comparison(plan.dataset, plan.title, tuple(arms), base, tuple(gains), stops, tuple(_differences(arms)))


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


def _drafts(plan: WindowPlan, manifest: WindowManifest | None) -> bool | None:
    if not plan.target.drafts or plan.target.drafter == NO_DRAFTER:
        return False
    if plan.target.drafter is not None:
        return True
    told = manifest.server.get("speculative") if manifest else None
    return told if isinstance(told, bool) else None


def _differences(arms: Sequence[Arm]) -> list[str]:
    """What else than the drafter differs between arms, so that the curves do not isolate it; one sentence each."""
    facts: dict[str, Callable[[Arm], Any]] = {
        "engine": lambda a: a.plan.target.engine,
        "server version": lambda a: a.server_fact("engine_version"),
        "model": lambda a: a.server_fact("model") or a.plan.target.model,
        "hardware": lambda a: (a.plan.target.hardware or {}).get("name"),
        "tensor parallelism": lambda a: a.server_fact("tensor_parallelism"),
        "prefix caching": lambda a: a.server_fact("prefix_caching"),
        "adaptive verification": lambda a: a.server_fact("adaptive"),
        "window": lambda a: f"{a.plan.window.duration_s:g} s",
        "warm-up": lambda a: f"{a.plan.window.warmup_s:g} s",
        "grace": lambda a: f"{a.plan.window.grace_s:g} s",
        "repeats": lambda a: a.plan.window.repeats,
        "sampling": lambda a: a.plan.sampling.model_dump(exclude_none=True),
        "prompts": lambda a: (a.plan.prompts.sha256 or "")[:12] + f", {len(a.plan.prompts.units)} of them",
        "seed": lambda a: a.plan.seed,
        "AIPerf": lambda a: a.plan.aiperf.version,
        "spec-eval": lambda a: " ".join(filter(None, (a.plan.spec_eval_version, (a.plan.spec_eval_commit or "")[:12]))),
    }
    found = []
    for name, of in facts.items():
        values = [_shown(of(arm)) for arm in arms]
        if len(set(values)) > 1:
            told = "; ".join(f"{arm.label}: {value}" for arm, value in zip(arms, values, strict=True))
            found.append(f"Arms differ in {name} ({told}).")
    return found


def _shown(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
