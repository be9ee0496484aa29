"""An imported file as a run folder: the same store, the same report, and the word imported on it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from spec_eval import __version__, acceptance, points
from spec_eval.importers.answers import Imported
from spec_eval.run import provenance
from spec_eval.store import Cell, Manifest, NotExact, Plan, Reconciliation, RunFolder, RunLock, Target, new_run_folder


def keep(
    imported: Imported,
    path: Path,
    *,
    engine: str,
    k: int | None,
    drafter: str | None = None,
    adaptive: bool = False,
    out: Path,
    command: Sequence[str],
    max_failures: float = 0.05,
) -> RunFolder:
    """Write it; the run is whole at once. k, drafter, adaptive: as the user says; the files do not tell."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    name = path.resolve().name if path.is_dir() else path.stem
    folder = new_run_folder(out, f"imported-{name}-{engine}")
    plan = Plan(
        run_id=folder.path.name,
        origin="imported",
        server_wide=bool(imported.points),
        tool=imported.tool,
        created=now,
        spec_eval_version=__version__,
        spec_eval_commit=provenance.commit(),
        command=tuple(command),
        suite_name=name,
        suite_text="",
        suite_sha256=None,
        overrides={},
        target=Target(engine=engine, model=imported.model, drafter=drafter, k=k, adaptive=adaptive or None),
        cells=_noted(imported),
        seed=None,
        max_failures=max_failures,
    )
    records = imported.records
    if imported.synthetic is not None:
        plan, names = plan.stamped(imported.synthetic)
        records = tuple(replace(record, cell_id=names[record.cell_id]) for record in records)
    with RunLock(folder.path):
        folder.write_plan(plan)
        with folder.log() as log:
            for record in records:
                log.append(record)
        kept = folder.records().records
        outcome = points.outcome(tuple(imported.points.values())) if imported.points else None
        outcome = outcome or acceptance.outcome(kept, plan.planned())
        unrecorded = "imported: the server's own counters were not recorded"
        folder.write_manifest(
            Manifest(
                run_id=plan.run_id,
                settings_sha256=plan.settings_sha256,
                started=_moment(min, (record.start_ns for record in kept)),
                ended=_moment(max, (record.end_ns for record in kept)),
                settings=provenance.imported_settings(plan, kept, imported.points),
                data=provenance.data_table(plan),
                server={"model": imported.model} if imported.model else {},
                engine_version=None,
                packages=provenance.packages(),
                platform=provenance.machine(),
                sessions=(),
                reconciliation=Reconciliation.unavailable(NotExact.IMPORTED, unrecorded),
                outcome=provenance.outcome_table(outcome),
                points=dict(imported.points),
            )
        )
    return folder


def _noted(imported: Imported) -> tuple[Cell, ...]:
    """What was left out of the files stays with the run, as notes on its data."""
    first, *others = imported.cells
    notes = (*first.prompts.notes, *imported.set_aside)
    prompts = first.prompts.model_copy(update={"notes": notes})
    return (first.model_copy(update={"prompts": prompts}), *others)


def _moment(pick: Callable[[Iterable[int]], int], times_ns: Iterable[int | None]) -> str | None:
    """The first or the last of the known times, in UTC; null where none is known."""
    known = [time for time in times_ns if time is not None]
    return datetime.fromtimestamp(pick(known) / 1e9, UTC).isoformat(timespec="seconds") if known else None
