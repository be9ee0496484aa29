"""Records into the rows of a report. Every figure in it comes from `acceptance`; nothing is pooled here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from spec_eval import acceptance, guards
from spec_eval.acceptance import Figures, Outcome
from spec_eval.records import RequestRecord
from spec_eval.store import Cell, Manifest, Plan, Reconciliation, RunFolder

N = TypeVar("N")
By = Literal["category", "dataset", "turn"]


@dataclass(frozen=True)
class Row:
    """One line of a table: the requests of one cell, or of one category or turn of it."""

    run_id: str
    dataset: str
    title: str
    label: str | None
    temperature: float | None
    concurrency: int | None
    outcome: Outcome
    figures: Figures


@dataclass(frozen=True)
class RunReport:
    """One run: what it was, its rows, and its requests pooled."""

    plan: Plan
    manifest: Manifest | None
    reconciliation: Reconciliation
    rows: tuple[Row, ...]
    overall: Row
    warnings: tuple[guards.Warning, ...]

    @property
    def whole(self) -> bool:
        """Whether everything planned was driven to its end."""
        return self.manifest is not None


def build(folder: RunFolder, by: By = "category") -> RunReport:
    """Read a run folder and make its rows, in the order of the plan."""
    plan, manifest, read = folder.plan(), folder.manifest(), folder.records()
    planned = {unit for cell in plan.cells for unit in cell.units()}
    records = [r for r in read.records if r.unit in planned]
    rows = [row for cell in plan.cells for row in _cell_rows(plan, cell, records, by)]
    overall = _row(plan, plan.cells, None, records, plan.planned())
    return RunReport(
        plan=plan,
        manifest=manifest,
        reconciliation=manifest.reconciliation if manifest else _unfinished(),
        rows=tuple(rows),
        overall=overall,
        warnings=tuple(guards.run_warnings(plan, manifest, read, overall.outcome, overall.figures)),
    )


def _unfinished() -> Reconciliation:
    return Reconciliation(status="not available", reason="the run is not whole")


def _cell_rows(plan: Plan, cell: Cell, records: Sequence[RequestRecord], by: By) -> list[Row]:
    mine = [r for r in records if r.cell_id == cell.cell_id]
    if by == "dataset":
        return [_row(plan, (cell,), None, mine, cell.repeats * sum(turns for _, _, turns in cell.prompts.units))]
    planned: dict[str, int] = {}
    for _, category, turns in cell.prompts.units:
        for turn in range(turns):
            key = category if by == "category" else str(turn + 1)
            planned[key] = planned.get(key, 0) + cell.repeats
    grouped: dict[str, list[RequestRecord]] = {key: [] for key in planned}
    for record in mine:
        grouped[record.category if by == "category" else str(record.turn + 1)].append(record)
    return [_row(plan, (cell,), key, grouped[key], planned[key]) for key in planned]


def _row(plan: Plan, cells: Sequence[Cell], label: str | None, records: Sequence[RequestRecord], planned: int) -> Row:
    first = cells[0]
    single = len(cells) == 1
    return Row(
        run_id=plan.run_id,
        dataset=first.dataset if single else plan.suite_name,
        title=first.title if single else plan.suite_name,
        label=label,
        temperature=_only(c.sampling.temperature for c in cells),
        concurrency=_only(c.concurrency for c in cells),
        outcome=acceptance.outcome(records, planned),
        figures=acceptance.figures(records),
    )


def _only(values: Iterable[N]) -> N | None:
    """The value that all share, or null."""
    first, *others = dict.fromkeys(values)
    return None if others else first
