"""An imported file as a run folder: the same store, the same report, and the word imported on it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from spec_eval import __version__, acceptance
from spec_eval.importers.captures import Imported
from spec_eval.run import provenance
from spec_eval.store import Manifest, Plan, Reconciliation, RunFolder, RunLock, Target, new_run_folder


def keep(
    imported: Imported,
    path: Path,
    *,
    engine: str,
    k: int | None,
    out: Path,
    command: Sequence[str],
    max_failures: float = 0.05,
) -> RunFolder:
    """Write it; the run is whole at once."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    folder = new_run_folder(out, f"imported-{path.stem}-{engine}")
    plan = Plan(
        run_id=folder.path.name,
        origin="imported",
        created=now,
        spec_eval_version=__version__,
        spec_eval_commit=provenance.commit(),
        command=tuple(command),
        suite_name=path.stem,
        suite_text="",
        suite_sha256=None,
        overrides={},
        target=Target(engine=engine, model=None, drafter=None, k=k),
        cells=imported.cells,
        seed=None,
        max_failures=max_failures,
    )
    with RunLock(folder.path):
        folder.write_plan(plan)
        with folder.log() as log:
            for record in imported.records:
                log.append(record)
        records = folder.records().records
        outcome = acceptance.outcome(records, plan.planned())
        unknown = Reconciliation(status="not available", reason="imported: the server's own counters were not recorded")
        folder.write_manifest(
            Manifest(
                run_id=plan.run_id,
                settings_sha256=plan.settings_sha256,
                started=None,
                ended=None,
                settings=provenance.imported_settings(plan, records),
                data=provenance.data_table(plan),
                server={},
                engine_version=None,
                packages=provenance.packages(),
                platform=provenance.machine(),
                sessions=(),
                reconciliation=unknown,
                outcome=provenance.outcome_table(outcome),
            )
        )
    return folder
