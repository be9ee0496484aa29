"""From a plan to a whole run folder: server up, counters before, all cells, counters after, manifest."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spec_eval import acceptance, engines, interrupts, verdict
from spec_eval.drivers.chat import open_client
from spec_eval.drivers.conversations import Job, ServerGone, drive, loop_lag
from spec_eval.drivers.room import Room
from spec_eval.engines import Engine
from spec_eval.errors import Interrupted, RunNotWhole, SpecEvalError, UsageError
from spec_eval.loaded import load
from spec_eval.probe import Probe, probe
from spec_eval.prompts import PromptsChanged
from spec_eval.reconcile import reconcile, server_wide, totals_table
from spec_eval.records import RequestRecord
from spec_eval.render.progress import Progress
from spec_eval.run import grading, planning, provenance, same_server, serving
from spec_eval.run.options import RunOptions
from spec_eval.run.planning import Prepared
from spec_eval.store import (
    Manifest,
    NotExact,
    Plan,
    Reconciliation,
    Records,
    RunFolder,
    RunLock,
    SessionEnd,
    new_run_folder,
)
from spec_eval.verdict import Cause


@dataclass(frozen=True)
class Finished:
    """A run folder, and why it is not whole where it is not."""

    folder: RunFolder
    shortfall: SpecEvalError | None


@dataclass
class _Session:
    """One stretch of driving."""

    number: int
    started: str
    server_changes: tuple[str, ...] = ()
    records: list[RequestRecord] = field(default_factory=list)
    before: str | None = None
    after: str | None = None
    reason: str = "finished"
    aborted: int = 0
    lag_ms: float | None = None


def start(options: RunOptions, progress: Progress) -> Finished:
    """Plan, open a run folder, and drive it."""
    prepared = planning.prepare(options)
    # Before the plan is written: whatever ends this run, no record may be without the mark.
    prepared = planning.marked(prepared, serving.stamp(prepared.plan))
    plan = prepared.plan
    folder = new_run_folder(options.out, f"{plan.suite_name}-{plan.target.engine}-{plan.target.drafter or 'drafter'}")
    prepared = replace(prepared, plan=plan.model_copy(update={"run_id": folder.path.name}))
    with RunLock(folder.path):
        folder.write_plan(prepared.plan)
        try:
            return _drive(folder, prepared, progress)
        except (SpecEvalError, KeyboardInterrupt):
            if not folder.server_log.exists():
                folder.discard_unused()
            raise


def resume(path: Path, progress: Progress, *, base_url: str | None = None) -> Finished:
    """Go on with the units that are missing or failed, at the settings of the plan."""
    folder = RunFolder.open(path)
    plan = folder.plan()
    if plan.origin != "measured":
        raise UsageError(f"{path}: imported, not measured here; there is nothing to resume")
    if base_url is not None:
        if plan.target.base_url is None:
            raise UsageError(f"{path}: spec-eval starts this run's server itself; drop --base-url")
        plan = plan.model_copy(update={"target": plan.target.model_copy(update={"base_url": base_url})})
    prepared = planning.reload(plan)
    with RunLock(folder.path):
        if folder.settings() not in (None, plan.settings_sha256):
            raise UsageError(f"{path}: plan.json has other settings than the run was begun with; start a new run")
        if folder.is_whole and not _missing(folder, plan):
            progress.note(f"{path}: whole already, nothing to do")
            return Finished(folder, _shortfall(folder))
        return _drive(folder, prepared, progress)


def _missing(folder: RunFolder, plan: Plan) -> bool:
    settled = {r.unit for r in folder.records().records if r.settled}
    return any(unit not in settled for cell in plan.cells for unit in cell.units())


def _drive(folder: RunFolder, prepared: Prepared, progress: Progress) -> Finished:
    """Drive what is missing; an interruption at any moment is a run that is not whole yet."""
    interrupted = Interrupted(
        f"interrupted; what was measured is kept, go on with `spec-eval run --resume {folder.path}`"
    )
    try:
        with interrupts.terminate_as_interrupt():
            return _session(folder, prepared, progress, interrupted)
    except KeyboardInterrupt:
        return Finished(folder, interrupted)


def _session(folder: RunFolder, prepared: Prepared, progress: Progress, interrupted: Interrupted) -> Finished:
    plan = prepared.plan
    engine = engines.find(plan.target.engine)
    with serving.serve(folder.server_log, plan, progress.note) as server:
        # A server of ours has one model, under whatever name was right for its file.
        wanted = plan.target.model if plan.target.recipe is None else None
        found = probe(
            server.endpoint,
            engine,
            model=wanted,
            k=plan.target.k,
            cold_cache=plan.cold_cache,
            drafts=plan.target.drafts,
        )
        if not plan.cold_cache and engine.cools_cache:
            progress.note("warning: answers may come from a warm prefix cache, which adds phantom steps")
        same_server.refuse_other_stamp(plan, found, str(folder.path))
        facts, started = same_server.facts(server, found), _now()
        changes = same_server.changes(folder.first_server(), facts, str(folder.path))
        for change in changes:
            progress.note(f"warning: the server is another than in the run's first session: {change}")
        session = _Session(folder.start_session(started, facts, changes), started, changes)
        session.before = serving.settled(server.endpoint, engine)
        if session.before is not None:
            folder.write_scrape(session.number, "before", session.before)
        error: SpecEvalError | None = None
        try:
            with _event_loop() as runner:
                runner.run(_all_cells(folder, prepared, engine, server, found, session, progress))
        except (KeyboardInterrupt, asyncio.CancelledError):
            session.reason = "interrupted"
            error = interrupted
        except PromptsChanged as changed:
            session.reason = "prompts changed"
            error = RunNotWhole(f"{changed}; what was measured is kept, but cannot be gone on with: start a new run")
        except ServerGone as gone:
            session.reason = "server gone"
            error = RunNotWhole(f"the server is gone ({gone}); {_again(folder, plan)}")
        except Exception as fault:  # a full disk, or a fault of ours: end in order all the same
            if isinstance(fault, SpecEvalError):
                raise
            session.reason = "fault"
            error = RunNotWhole(
                f"{type(fault).__name__}: {fault}; what was measured is kept, go on with "
                f"`spec-eval run --resume {folder.path}`"
            )
            error.__cause__ = fault
        try:
            try:
                result = _settled_counters(engine, server, session)
            except KeyboardInterrupt:  # what the counters say now has to do
                session.reason, error = "interrupted", error or interrupted
                result = _settled_counters(engine, server, session)
            with interrupts.held_back():
                end = _end_session(folder, session, result)
        except OSError as full:
            error = error or RunNotWhole(
                f"{full}; what was measured is kept, go on with `spec-eval run --resume {folder.path}`"
            )
    if error is not None:
        return Finished(folder, error)
    read = folder.records()  # once: with long answers it is a hundred megabytes
    folder.write_grades(grading.grades(plan, prepared.prompts, read.records))
    with interrupts.held_back():
        _write_manifest(folder, plan, engine, server, found, end, read)
    return Finished(folder, _shortfall(folder))


def _again(folder: RunFolder, plan: Plan) -> str:
    """How to go on after a server's end: ours is started again by resuming, and left a log."""
    resumed = f"`spec-eval run --resume {folder.path}`"
    return (
        f"its log is {folder.server_log}; go on with {resumed}"
        if plan.target.recipe
        else f"start it again, then {resumed}"
    )


async def _all_cells(
    folder: RunFolder,
    prepared: Prepared,
    engine: Engine,
    server: serving.Server,
    found: Probe,
    session: _Session,
    progress: Progress,
) -> None:
    plan = prepared.plan
    interrupts.cancel_on_terminate()
    done = {r.unit: r for r in folder.records().records if r.settled}
    with folder.log() as log, progress.measuring(plan.planned(), list(done.values())) as show:

        def keep(record: RequestRecord) -> None:
            log.append(record)
            session.records.append(record)
            with contextlib.suppress(OSError, SystemExit):  # nobody reads our progress any more; the run goes on
                show(record)

        async with loop_lag() as lag:
            try:
                for cell in plan.cells:
                    job = Job(
                        cell_id=cell.cell_id,
                        dataset=cell.dataset,
                        model=found.model,
                        sampling=cell.sampling,
                        concurrency=cell.slots,
                        repeats=cell.repeats,
                        seed=plan.seed,
                        conversations=prepared.prompts[cell.cell_id].__iter__,
                        room=Room(
                            engine,
                            server.endpoint,
                            found.model,
                            found.identity.context,
                            cell.sampling.max_tokens or 0,
                        ),
                        done=done,
                        reasoning_in_history=plan.reasoning_in_history,
                    )
                    async with open_client(
                        server.endpoint,
                        engine,
                        k=found.k,
                        concurrency=cell.slots,
                        nominal_drafts=bool(provenance.adaptive(plan, found.identity)),
                        cold_cache=plan.cold_cache,
                        chain=not found.identity.tree,
                    ) as client:
                        try:
                            await drive(job, client, keep)
                        finally:
                            session.aborted += client.aborted
            finally:
                session.lag_ms = lag.p99_ms


def _settled_counters(engine: Engine, server: serving.Server, session: _Session) -> Reconciliation:
    """Counters after, reconciled; a server may publish its last step a moment after the last answer."""
    deadline = time.monotonic() + (serving.SETTLE_S if session.reason == "finished" else 0.0)
    seen: dict[str, Any] | None = {}
    while True:
        session.after = server.endpoint.metrics(engine.metrics_path)
        result = reconcile(
            session.before,
            session.after,
            engine,
            session.records,
            aborted=session.aborted,
        )
        settled = result.status != "differs" and (engine.by_request or result.server == seen)
        if settled or time.monotonic() > deadline:
            return result
        seen = result.server
        time.sleep(0.5)


def _end_session(folder: RunFolder, session: _Session, result: Reconciliation) -> SessionEnd:
    """Counters and the session's end, written."""
    if session.after is not None:
        folder.write_scrape(session.number, "after", session.after)
    end = SessionEnd(
        session=session.number,
        started=session.started,
        ended=_now(),
        reason=session.reason,
        requests=len(session.records),
        aborted=session.aborted,
        reconciliation=result,
        loop_lag_p99_ms=session.lag_ms,
        server_changes=session.server_changes,
    )
    folder.end_session(end)
    return end


def _write_manifest(
    folder: RunFolder,
    plan: Plan,
    engine: Engine,
    server: serving.Server,
    found: Probe,
    end: SessionEnd,
    read: Records,
) -> None:
    records = read.records
    outcome = acceptance.outcome(records, plan.planned())
    ends = folder.session_ends()
    folder.write_manifest(
        Manifest(
            run_id=plan.run_id,
            settings_sha256=plan.settings_sha256,
            started=ends[0].started,
            ended=end.ended,
            settings=provenance.comparable_settings(plan, found.identity, records),
            data=provenance.data_table(plan),
            server={
                "root": server.endpoint.root,
                "model": found.model,
                "models": list(found.identity.models),
                "context": found.identity.context,
                "speculative": found.identity.speculative,
                "reported_version": found.identity.version,
                "k_flag": found.identity.k_flag,
                "tree": found.identity.tree,
                **found.identity.details,
                **server.facts,
            },
            engine_version=server.version or found.identity.version,
            packages=provenance.packages(),
            platform=provenance.machine(),
            sessions=ends,
            reconciliation=_over_sessions(folder, ends, read.lines),
            server_wide=None if engine.by_request else totals_table(server_wide(ends)),
            outcome=provenance.outcome_table(outcome),
        )
    )


def _over_sessions(folder: RunFolder, ends: tuple[SessionEnd, ...], lines: int) -> Reconciliation:
    """One verdict for the run: the worst of its sessions; a killed session leaves nothing to compare.

    lines: of requests.jsonl.
    """
    killed = folder.sessions_started() - len(ends)
    differing = [end.reconciliation for end in ends if end.reconciliation.status == "differs"]
    if differing:
        return differing[0]
    if killed:
        reason = f"{killed} of {killed + len(ends)} sessions were killed before the counters could be read again"
        return Reconciliation.unavailable(NotExact.KILLED, reason)
    accounted = sum(end.requests for end in ends)
    if lines != accounted:
        reason = f"{lines} requests are recorded, the sessions account for {accounted}"
        return Reconciliation.unavailable(NotExact.UNACCOUNTED, reason)
    unavailable = [end.reconciliation for end in ends if end.reconciliation.status == "not available"]
    return unavailable[0] if unavailable else ends[-1].reconciliation


def _shortfall(folder: RunFolder) -> SpecEvalError | None:
    """A run without a drafter was asked for, and has nothing to fall short of."""
    short = verdict.first(verdict.shortfalls(load(folder)), but=frozenset({Cause.NO_DRAFTER}))
    return None if short is None else short.error(f"the report is written; {short.remedy}")


@contextlib.contextmanager
def _event_loop() -> Iterator[asyncio.Runner]:
    """uvloop where it is installed: half the processor time a chunk."""
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
