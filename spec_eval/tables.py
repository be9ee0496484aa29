"""Records into the rows of a report. Every figure in it comes from `acceptance`; nothing is pooled here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from spec_eval import acceptance, counting, guards, points, repeats, verdict, whatif
from spec_eval.acceptance import Figures, Outcome
from spec_eval.errors import UsageError
from spec_eval.loaded import LoadedRun, load
from spec_eval.records import RequestRecord, Unit
from spec_eval.repeats import Repeats
from spec_eval.store import Cell, Manifest, Plan, Point, Reconciliation, RunFolder
from spec_eval.verdict import NOT_WHOLE, Shortfall
from spec_eval.whatif import Shorter

N = TypeVar("N")
Grades = Mapping[Unit, Mapping[str, Any]]
By = Literal["category", "dataset", "turn", "bin", "official-bin"]
# Prompt lengths in tokens of the server's own count, edges included, as model cards bin them.
BINS = ((0, 8192), (8193, 16384), (16385, 32768), (32769, 65536), (65537, 131072))
# MRCR's own: o200k_base tokens of prompt and answer together, upper edges.
OFFICIAL_EDGES = (4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
NO_LENGTH = "length not known"
SERVER_WIDE = "server-wide"
BEYOND = f">{BINS[-1][1]}"


@dataclass(frozen=True)
class Row:
    """One line of a table: the requests of one cell, or of one category, turn or bin of it.

    title: of the cell. label: what the row stands for within it, or null. table: heading it goes under, or null.
    cell_id: of that cell; null for all cells together. grade: mean over the graded answers, or null.
    repeats: the mean of repeats where there are several. shorter: what fewer drafts a step would have given, where k
    was fixed.
    """

    run_id: str
    table: str | None
    dataset: str
    title: str
    label: str | None
    temperature: float | None
    concurrency: int | None
    outcome: Outcome
    figures: Figures
    grade: float | None = None
    standin: bool = False
    repeats: Repeats | None = None
    shorter: tuple[Shorter, ...] = ()
    cell_id: str | None = None

    @property
    def partial(self) -> bool:
        """Whether its figures rest on only some of what was planned for it."""
        return 0 < self.outcome.measured < self.outcome.planned

    @property
    def coverage(self) -> float | None:
        """measured / ok; null for the server's own totals, which cover all that the server did."""
        return None if self.label == SERVER_WIDE else self.outcome.coverage


@dataclass(frozen=True)
class Macro:
    """Mean of the rows' acceptance lengths, each row weighing the same: never the overall figure."""

    rows: int
    acceptance_length: float


@dataclass(frozen=True)
class RunReport:
    """One run: what it was, its rows, its requests pooled, and in what it falls short, the gravest first."""

    plan: Plan
    manifest: Manifest | None
    reconciliation: Reconciliation
    shortfalls: tuple[Shortfall, ...]
    rows: tuple[Row, ...]
    overall: Row
    warnings: tuple[guards.Warning, ...]

    @property
    def whole(self) -> bool:
        """Whether everything planned was driven to its end, and all of it is still there."""
        return not any(one.cause in NOT_WHOLE for one in self.shortfalls)

    @property
    def k(self) -> int | None:
        """The largest of the requests' k; before there are any, as the plan says."""
        return self.overall.figures.k if self.overall.figures.k is not None else self.plan.target.k

    @property
    def macro(self) -> Macro | None:
        """Over all rows, where they stand in one table; a card's tables each have their own."""
        return macro(self.rows) if len({row.table for row in self.rows}) == 1 else None

    @property
    def _in_one_row(self) -> bool:
        return any(row is self.overall for row in self.rows)

    @property
    def lines(self) -> list[Row]:
        """All rows, and the pooled one last; the server's own totals are both."""
        return [*self.rows, *([] if self._in_one_row else [self.overall])]

    @property
    def tables(self) -> list[tuple[str | None, list[Row]]]:
        """(heading, rows) in order; a simple suite has one table, and the pooled requests as its last row."""
        grouped: dict[str | None, list[Row]] = {}
        for row in self.rows:
            grouped.setdefault(row.table, []).append(row)
        if None in grouped and not self._in_one_row:
            grouped[None].append(self.overall)
        return list(grouped.items())


def macro(rows: Sequence[Row]) -> Macro | None:
    """Over two rows or more; None where any of them has no figure."""
    found = [row.figures.acceptance_length for row in rows]
    values = [one.value for one in found if one is not None]
    if len(values) < 2 or len(values) < len(found):
        return None
    return Macro(len(values), sum(values) / len(values))


def build(folder: RunFolder, by: By | None = None) -> RunReport:
    """Of a folder that is read for one view alone."""
    return views(load(folder), by)[0]


def views(run: LoadedRun, *layouts: By | None) -> tuple[RunReport, ...]:
    """The run laid out in each of these ways: null as the suite does it, in the order of the plan.

    It is pooled and judged once, so the views differ in their rows only. Server-wide runs have the same rows in all.
    """
    plan = run.plan
    if run.of_points:
        fixed, overall = _of_points(plan, run.of_points)
    elif counting.is_server_wide(plan):
        overall = _server_wide(run)
        fixed = (overall,)
    else:
        fixed, overall = (), _row(plan, plan.cells, None, run.records, plan.planned(), run.grades)
    short = verdict.shortfalls(run)
    report = RunReport(
        plan=plan,
        manifest=run.manifest,
        reconciliation=run.reconciliation,
        shortfalls=short,
        rows=fixed,
        overall=overall,
        warnings=tuple(guards.run_warnings(run, overall.figures, short)),
    )
    return tuple(replace(report, rows=fixed or _laid_out(run, by)) for by in layouts)


def _laid_out(run: LoadedRun, by: By | None) -> tuple[Row, ...]:
    return tuple(row for cell in run.plan.cells for row in _cell_rows(run.plan, cell, run.records, by, run.grades))


def _server_wide(run: LoadedRun) -> Row:
    """The one row, whatever the suite lays out: the server does not tell whose step it was."""
    plan, totals = run.plan, run.totals
    row = replace(_row(plan, plan.cells, SERVER_WIDE, run.records, plan.planned(), {}), table=None)
    if totals is None:
        return row
    adaptive = counting.is_adaptive(plan, run.manifest)
    figures = acceptance.server_wide(
        steps=totals.steps,
        drafted=None if adaptive else totals.drafted,
        accepted=totals.accepted,
        positions=totals.positions,
        k=plan.target.k,
        requests=row.outcome.ok,
    )
    return replace(row, figures=figures)


def _of_points(plan: Plan, found: Sequence[Point]) -> tuple[tuple[Row, ...], Row]:
    """A row for each setting that another tool measured, all of them server-wide; and all together."""

    def row(cells: Sequence[Cell], measured: Sequence[Point]) -> Row:
        blank = _row(plan, cells, SERVER_WIDE, (), 0, {})
        return replace(blank, outcome=points.outcome(measured), figures=points.figures(measured))

    rows = tuple(row((cell,), (point,)) for cell, point in zip(plan.cells, found, strict=True))
    return rows, rows[0] if len(rows) == 1 else row(plan.cells, found)


def _cell_rows(plan: Plan, cell: Cell, records: Sequence[RequestRecord], by: By | None, grades: Grades) -> list[Row]:
    mine = [r for r in records if r.cell_id == cell.cell_id]
    if by == "dataset" or (by is None and cell.rows == "cell"):
        return [_row(plan, (cell,), None, mine, cell.planned(), grades)]
    if by == "bin":
        return _binned(plan, cell, mine, [f"{low}-{high}" for low, high in BINS], _bin, grades)
    if by == "official-bin":
        if not any(line.get("o200k_tokens") is not None for line in grades.values()):
            raise UsageError("--by official-bin: this run knows no o200k lengths; only MRCR runs with tiktoken do")
        edges = zip((0, *OFFICIAL_EDGES), OFFICIAL_EDGES, strict=False)
        labels = [f"o200k {low + 1 if low else low}-{high}" for low, high in edges]
        return _binned(plan, cell, mine, labels, lambda record: _official_bin(record, grades, labels), grades)
    # The plan says which category a prompt is of; a record may have been imported under another.
    categories = {prompt_id: category for prompt_id, category, _ in cell.prompts.units}
    key = _turn if by == "turn" else lambda record: categories[record.prompt_id]
    planned: dict[str, int] = dict.fromkeys(cell.order if by is None else (), 0)
    for prompt_id, category, turns in cell.prompts.units:
        for turn in range(turns):
            label = f"turn {turn + 1}" if by == "turn" else category
            planned[label] = planned.get(label, 0) + cell.asked(prompt_id)
    grouped = _grouped(mine, key)
    return [_row(plan, (cell,), label, grouped.get(label, []), planned[label], grades) for label in planned]


def _binned(
    plan: Plan,
    cell: Cell,
    records: Sequence[RequestRecord],
    labels: Sequence[str],
    key: Callable[[RequestRecord], str],
    grades: Grades,
) -> list[Row]:
    """By length; a request whose length nobody knows is counted, not guessed."""
    grouped = _grouped(records, key)
    shown = [*labels, *(extra for extra in (BEYOND, NO_LENGTH) if extra in grouped)]
    rows = [_row(plan, (cell,), label, found := grouped.get(label, []), len(found), grades) for label in shown]
    if missing := cell.planned() - len(records):
        rows.append(_row(plan, (cell,), f"not recorded, {NO_LENGTH}", [], missing, grades))
    return rows


def _grouped(records: Sequence[RequestRecord], key: Callable[[RequestRecord], str]) -> dict[str, list[RequestRecord]]:
    grouped: dict[str, list[RequestRecord]] = {}
    for record in records:
        grouped.setdefault(key(record), []).append(record)
    return grouped


def _turn(record: RequestRecord) -> str:
    return f"turn {record.turn + 1}"


def _bin(record: RequestRecord) -> str:
    tokens = record.prompt_tokens
    if tokens is None:
        return NO_LENGTH
    return next((f"{low}-{high}" for low, high in BINS if low <= tokens <= high), BEYOND)


def _official_bin(record: RequestRecord, grades: Grades, labels: Sequence[str]) -> str:
    tokens = grades.get(record.unit, {}).get("o200k_tokens")
    if tokens is None:
        return NO_LENGTH
    edges = zip(OFFICIAL_EDGES, labels, strict=True)
    return next((label for edge, label in edges if tokens <= edge), BEYOND)


def _mean_grade(records: Sequence[RequestRecord], grades: Grades) -> float | None:
    found = [g for r in records if (g := grades.get(r.unit, {}).get("grade")) is not None]
    return sum(found) / len(found) if found else None


def _only(values: Iterable[N]) -> N | None:
    """The value that all share, or None: a setting in which cells differ is none of the whole."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _row(
    plan: Plan,
    cells: Sequence[Cell],
    label: str | None,
    records: Sequence[RequestRecord],
    planned: int,
    grades: Grades,
) -> Row:
    first = cells[0]
    single = len(cells) == 1
    return Row(
        run_id=plan.run_id,
        table=first.table if single else None,
        dataset=first.dataset if single else plan.suite_name,
        title=first.title if single else plan.suite_name,
        label=label,
        temperature=_only(c.sampling.temperature for c in cells),
        concurrency=_only(c.concurrency for c in cells),
        outcome=acceptance.outcome(records, planned),
        figures=acceptance.figures(records),
        grade=_mean_grade(records, grades),
        standin=any(cell.prompts.standin for cell in cells),
        repeats=repeats.of(records, _only(c.repeats for c in cells) or 1),
        shorter=whatif.shorter(records),
        cell_id=first.cell_id if single else None,
    )
