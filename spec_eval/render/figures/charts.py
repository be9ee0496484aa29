"""What the figures show: points with their intervals, out of the rows of reports. Nothing is pooled or drawn here."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from spec_eval import counting, tables
from spec_eval.errors import UsageError
from spec_eval.loaded import load
from spec_eval.render import words
from spec_eval.stats import FEWEST_FOR_EXACT, FEWEST_FOR_INTERVAL, Estimate
from spec_eval.store import Cell, RunFolder
from spec_eval.tables import BEYOND, BINS, NO_LENGTH, SERVER_WIDE, Row, RunReport
from spec_eval.verdict import PARTIAL

MOST_RUNS = 7
MOST_GROUPS = 100
LONGEST_LABEL = 60
OVERALL = "overall, pooled"
EMPTY, NO_INTERVAL, APPROXIMATE = "empty", "no interval", "approximate interval"
NO_STEP = f"{EMPTY}: no verification step was measured"
NO_POSITIONS = f"{EMPTY}: positions are not known"
NO_LENGTHS = f"{EMPTY}: prompt lengths are not known"
BIN_SHOWN = {f"{low}-{high}": f"{low // 1024}k–{high // 1024}k" if low else f"≤{high // 1024}k" for low, high in BINS}
BIN_SHOWN |= {BEYOND: f">{BINS[-1][1] // 1024}k", NO_LENGTH: "not known"}
THROUGHPUT = "throughput"
_CONFIG = re.compile(r"speed-bench-throughput-(\d+)k")


@dataclass(frozen=True, eq=False)
class Arm:
    """One run in a figure. label: its drafter, and its run id where drafters are equal. number: of its style."""

    report: RunReport
    by_length: RunReport
    label: str
    number: int

    @property
    def marks(self) -> list[str]:
        """As every report has them; `partial` where too many requests failed or too few have counters."""
        short = any(one.cause in PARTIAL for one in self.report.shortfalls)
        return [*words.labels(self.report), *(["partial"] if short else [])]


@dataclass(frozen=True)
class Group:
    """What stands together over all arms: a row of the report, or a cell. heading: of its table, or null.

    titled: whether `name` has the title of a simple suite in it, which says itself that rows are made up.
    """

    heading: str | None
    dataset: str | None
    name: str
    titled: bool = False

    @property
    def overall(self) -> bool:
        """Whether it is the pooled one, which no data set stands behind."""
        return self.dataset is None


@dataclass(frozen=True)
class Point:
    """One dot. at: its place along the axis by name, or null where a group has a single dot; rank: in order.

    estimate: null for an empty group; note: why it is empty, or has no interval, or an approximate one.
    """

    arm: Arm
    row: Row
    group: Group
    estimate: Estimate | None
    note: str | None
    rank: int = 0
    at: str | None = None

    @property
    def why(self) -> tuple[str, str]:
        """Its note as (kind, reason)."""
        kind, _, reason = (self.note or "").partition(": ")
        return kind, reason


@dataclass(frozen=True)
class Chart:
    """A figure before it is drawn. name: of its files. along: what `at` of its points is, or null."""

    name: str
    title: str
    subtitle: str
    along: str | None
    points: tuple[Point, ...]

    @property
    def drawn(self) -> list[Point]:
        """Those that have a value."""
        return [p for p in self.points if p.estimate is not None]

    @property
    def arms(self) -> list[Arm]:
        """That have anything to draw."""
        found = {p.arm.number: p.arm for p in self.drawn}
        return [found[number] for number in sorted(found)]

    @property
    def groups(self) -> list[Group]:
        """That any arm has a value for: tables together, in the order of the plans, the pooled one last."""
        found = [*dict.fromkeys(p.group for p in self.points)]
        headings = [*dict.fromkeys(g.heading for g in found)]
        there = {p.group for p in self.drawn}
        return sorted((g for g in found if g in there), key=lambda g: (g.overall, headings.index(g.heading)))

    @property
    def missing(self) -> list[tuple[Arm, str]]:
        """Arms without anything to draw, and why."""
        there = self.arms
        return [*{p.arm.number: (p.arm, p.why[1]) for p in self.points if p.arm not in there}.values()]

    @property
    def empty(self) -> list[str]:
        """Names of what no arm has a value for, with its place along the axis."""
        there = {(p.group, p.at) for p in self.drawn} | {(p.group, None) for p in self.drawn}
        arms = self.arms
        gaps = [p for p in self.points if p.arm in arms and (p.group, p.at) not in there]
        lone = len({p.group for p in self.points if p.arm in arms}) == 1
        return [*dict.fromkeys(_name_of(p, lone=lone) for p in gaps)]

    def shown(self, group: Group) -> str:
        """Its name, with what a reader must know of its rows in any arm."""
        rows = [p.row for p in self.points if p.group == group]
        # The pooled ones have the word in the figure's title.
        told = group.overall or group.titled
        marks = {"stand-in": any(r.standin for r in rows) and not told, "partial": any(r.partial for r in rows)}
        return words.marked(group.name, [mark for mark, there in marks.items() if there])


def read(folders: Sequence[RunFolder]) -> list[Arm]:
    """Arms in the order given; UsageError for a run given twice, or more runs than there are styles."""
    if len(folders) > MOST_RUNS:
        raise UsageError(
            f"{len(folders)} runs: at most {MOST_RUNS} can be told apart in one figure; plot fewer at once"
        )
    pairs = [_views(folder) for folder in folders]
    ids = [report.plan.run_id for report, _ in pairs]
    if twice := next((i for i in ids if ids.count(i) > 1), None):
        raise UsageError(f"{twice}: the run is given twice; give each run once")
    drafters = [_short(words.printable(report.plan.target.drafter or "drafter not named")) for report, _ in pairs]
    labels = [f"{d} ({i})" if drafters.count(d) > 1 else d for d, i in zip(drafters, ids, strict=True)]
    return [Arm(*pair, label, n) for n, (pair, label) in enumerate(zip(pairs, labels, strict=True))]


def _views(folder: RunFolder) -> tuple[RunReport, RunReport]:
    """As the suite lays it out, and by prompt length."""
    run = load(folder)
    report, by_length = tables.views(run, None, "dataset" if _configs(run.plan.cells) else "bin")
    return report, by_length


def all_of(arms: Sequence[Arm]) -> tuple[list[Chart], list[str]]:
    """The figures that have anything to draw, and one line for each thing that is missing from them."""
    charts, notes = [], []
    missing: dict[tuple[str, str], list[str]] = {}
    for chart in (positions(arms), categories(arms), lengths(arms)):
        for arm, why in chart.missing:
            missing.setdefault((arm.report.plan.run_id, why), []).append(chart.name)
        if len(chart.groups) > MOST_GROUPS:
            notes.append(f"{chart.name}: {len(chart.groups)} groups, a figure holds {MOST_GROUPS}; use `report`")
        elif chart.drawn:
            charts.append(chart)
    return charts, [f"{run_id}: {why}; not in {', '.join(names)}" for (run_id, why), names in missing.items()] + notes


def positions(arms: Sequence[Arm]) -> Chart:
    """Share of steps that accepted at least i drafts, i = 1 … k, by category."""
    points = []
    for arm, row, group in _rows(arms):
        shares = row.figures.positions
        if not shares:
            points.append(Point(arm, row, group, None, NO_POSITIONS if row.figures.steps else NO_STEP))
        for i, share in enumerate(shares or (), 1):
            points.append(Point(arm, row, group, share, _note(row, share), i, str(i)))
    return Chart(
        name="positions",
        title="acceptance by position",
        subtitle="Share of verification steps that accepted at least i draft tokens.",
        along="position",
        points=tuple(points),
    )


def categories(arms: Sequence[Arm]) -> Chart:
    """Acceptance length of each category, and of all requests pooled."""
    found = [(arm, row, group, row.figures.acceptance_length) for arm, row, group in _rows(arms)]
    return Chart(
        name="acceptance-by-category",
        title="acceptance length by category",
        subtitle="Acceptance length = 1 + accepted draft tokens / verification steps, pooled over requests.",
        along=None,
        points=tuple(Point(arm, row, group, one, _note(row, one)) for arm, row, group, one in found),
    )


def lengths(arms: Sequence[Arm]) -> Chart:
    """Acceptance length by prompt length: SPEED-Bench's throughput sets where a run has them, else the bins."""
    suffixed = _ambiguous([arm.by_length for arm in arms])
    points: list[Point] = []
    for arm in arms:
        if counting.is_server_wide(arm.report.plan) or not arm.report.overall.figures.steps:
            points += _no_length(arm)
        elif configs := _configs(arm.by_length.plan.cells):
            points += _by_config(arm, configs, suffixed=suffixed)
        else:
            points += _by_bin(arm, suffixed=suffixed)
    return Chart(
        name="acceptance-by-length",
        title="acceptance length by prompt length",
        subtitle="Acceptance length = 1 + accepted draft tokens / verification steps, pooled over requests.",
        along="prompt_length",
        points=tuple(points),
    )


def _by_config(arm: Arm, configs: dict[str, int], *, suffixed: bool) -> Iterator[Point]:
    """Of cells that are throughput sets; what a run has beside them has no length of its own."""
    for cell, row in zip(arm.by_length.plan.cells, arm.by_length.rows, strict=True):
        if cell.cell_id in configs:
            name = words.printable(cell.table or "SPEED-Bench throughput") + (_setting(row) * suffixed)
            tokens, estimate = configs[cell.cell_id], row.figures.acceptance_length
            yield Point(arm, row, Group(None, THROUGHPUT, name), estimate, _note(row, estimate), tokens, f"{tokens}k")


def _by_bin(arm: Arm, *, suffixed: bool) -> Iterator[Point]:
    rows = arm.by_length.rows
    places = [*BIN_SHOWN]
    if not any(row.label in places and row.label != NO_LENGTH and row.figures.steps for row in rows):
        yield from _no_length(arm)
        return
    lone = len(arm.by_length.plan.cells) == 1
    for row in rows:
        name = words.printable(row.title) + (_setting(row) * suffixed)
        rank = places.index(row.label) if row.label in places else len(places)
        estimate = row.figures.acceptance_length
        group = Group(None if lone else row.table, row.dataset, name, titled=row.table is None)
        yield Point(arm, row, group, estimate, _note(row, estimate), rank, row.label)


def _no_length(arm: Arm) -> list[Point]:
    row = arm.report.overall
    return [Point(arm, row, Group(None, None, OVERALL), None, NO_LENGTHS if row.figures.steps else NO_STEP)]


def _configs(cells: Sequence[Cell]) -> dict[str, int]:
    """By cell: thousands of tokens in the prompts of a throughput set."""
    found = {cell.cell_id: _CONFIG.fullmatch(cell.member or cell.dataset) for cell in cells}
    return {cell_id: int(match[1]) for cell_id, match in found.items() if match}


def _rows(arms: Sequence[Arm]) -> Iterator[tuple[Arm, Row, Group]]:
    """Rows as the plans lay them out, each arm's pooled one last."""
    reports = [arm.report for arm in arms]
    bare = len({row.title for r in reports for row in r.rows if row is not r.overall and row.table is None}) == 1
    suffixed = _ambiguous(reports)
    for arm in arms:
        for row in arm.report.rows:
            if row is not arm.report.overall:
                name = _name(row, bare=bare) + (_setting(row) * suffixed)
                titled = row.table is None and not (bare and row.label)
                yield arm, row, Group(row.table, row.dataset, name, titled)
        yield arm, arm.report.overall, Group(None, None, OVERALL)


def _name(row: Row, *, bare: bool) -> str:
    """As in the report; without the title of a lone data set, which stands over the figure."""
    return words.printable((row.label or row.title) if bare and row.table is None else words.row_name(row))


def _setting(row: Row) -> str:
    known = (("T", row.temperature), ("c", row.concurrency))
    return "".join(f", {name}={value:g}" for name, value in known if value is not None)


def _ambiguous(reports: Iterable[RunReport]) -> bool:
    """Whether any run has cells that only their settings tell apart."""
    names = [[(c.table, c.dataset, c.title) for c in report.plan.cells] for report in reports]
    return any(len(set(each)) < len(each) for each in names)


def _note(row: Row, estimate: Estimate | None) -> str | None:
    if estimate is None:
        return NO_STEP
    if estimate.low is None:
        own = "the server's own totals" if row.label == SERVER_WIDE else f"under {FEWEST_FOR_INTERVAL} conversations"
        return f"{NO_INTERVAL}: {own}"
    if estimate.approximate:
        return f"{APPROXIMATE}: {FEWEST_FOR_INTERVAL} to {FEWEST_FOR_EXACT - 1} conversations"
    return None


def _name_of(gap: Point, *, lone: bool) -> str:
    if gap.at is None:
        return gap.group.name
    length = BIN_SHOWN.get(gap.at, gap.at)
    return length if lone else f"{gap.group.name} {length}"


def _short(text: str) -> str:
    """Cut in the middle: names of drafters differ at both ends."""
    half = (LONGEST_LABEL - 1) // 2
    return text if len(text) <= LONGEST_LABEL else f"{text[:half]}…{text[-half:]}"
