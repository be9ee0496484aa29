"""A throughput run: a server, and AIPerf against it, cell by cell; every finished cell is kept at once."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spec_eval import acceptance, engines, interrupts, probe, verdict
from spec_eval.drivers import aiperf, aiperf_files, stand_in_tokenizer
from spec_eval.drivers.aiperf_files import X
from spec_eval.engines import Engine
from spec_eval.engines.endpoint import Endpoint
from spec_eval.errors import EnvironmentFault, Interrupted, RunNotWhole, SpecEvalError, UsageError
from spec_eval.importers import aiperf_records
from spec_eval.probe import Probe
from spec_eval.records import breach
from spec_eval.render.progress import Progress
from spec_eval.run import provenance, same_server, serving, window_planning
from spec_eval.run.options import RunOptions
from spec_eval.run.window_planning import Prepared
from spec_eval.store import RunLock, kind_of, new_run_folder
from spec_eval.store.windows import (
    KIND,
    MISSING,
    OK,
    OTHER_VERSION,
    Drafts,
    Sums,
    WindowCell,
    WindowFolder,
    WindowManifest,
    WindowPlan,
    WindowSession,
    cell_name,
)

# AIPerf's processes take so long beside warm-up and window, about; for the time that is left only.
_OVERHEAD_S = 12.0


@dataclass(frozen=True)
class Finished:
    """A run folder, and why it is not whole where it is not."""

    folder: WindowFolder
    shortfall: SpecEvalError | None


@dataclass(frozen=True)
class _Place:
    """Where cells are measured."""

    folder: WindowFolder
    prepared: Prepared
    engine: Engine
    server: serving.Server
    found: Probe


def start(options: RunOptions, progress: Progress) -> Finished:
    """Plan, open a run folder, and measure."""
    prepared = window_planning.prepare(options)
    plan = prepared.plan
    if (why := serving.stamp(plan)) is not None:
        plan = plan.model_copy(update={"synthetic": why})
    label = (
        f"{plan.suite_name}-{plan.target.engine}-{plan.target.drafter or ('drafter' if plan.target.drafts else 'none')}"
    )
    folder = WindowFolder(new_run_folder(options.out, label).path)
    prepared = replace(prepared, plan=plan.model_copy(update={"run_id": folder.path.name}))
    with RunLock(folder.path):
        folder.write_plan(prepared.plan)
        try:
            return _interruptible(folder, prepared, progress)
        except (SpecEvalError, KeyboardInterrupt):
            folder.discard_unused()
            raise


def resume(path: Path, progress: Progress, *, base_url: str | None = None) -> Finished:
    """Go on with the cells that have no figures, at the settings of the plan."""
    if kind_of(path) != KIND:
        raise UsageError(f"{path}: no throughput run; resume it as what it is")
    folder = WindowFolder(path)
    plan = folder.plan()
    if base_url is not None:
        if plan.target.base_url is None:
            raise UsageError(f"{path}: spec-eval starts this run's server itself; drop --base-url")
        plan = plan.model_copy(update={"target": plan.target.model_copy(update={"base_url": base_url})})
    with RunLock(folder.path):
        if folder.is_whole and not _missing(folder, plan):
            progress.note(f"{path}: whole already, nothing to do")
            return Finished(folder, _shortfall(folder))
        if folder.settings() not in (None, plan.settings_sha256):
            raise UsageError(f"{path}: plan.json has other settings than the run was begun with; start a new run")
        prepared = window_planning.reload(plan)
        _check_tool(plan, f"finished cells are kept, go on with `spec-eval run --resume {path}`")
        return _interruptible(folder, prepared, progress)


def _check_tool(plan: WindowPlan, go_on: str) -> None:
    """EnvironmentFault where AIPerf is gone, or is another one than when the run was planned."""
    path = Path(plan.aiperf.path)
    if not path.is_file():
        raise EnvironmentFault(f"{path}: AIPerf is gone; put it back, and {go_on}")
    found = aiperf.Found(path, plan.aiperf.found)
    aiperf.check_version(found, aiperf.version(found), any_version=plan.aiperf.any_version)


def _missing(folder: WindowFolder, plan: WindowPlan) -> list[tuple[int, int]]:
    there = folder.cells()
    return [key for key in plan.window.cells() if key not in there or there[key].outcome != OK]


def _interruptible(folder: WindowFolder, prepared: Prepared, progress: Progress) -> Finished:
    try:
        with interrupts.terminate_as_interrupt():
            return Finished(folder, _measure(folder, prepared, progress))
    except KeyboardInterrupt:
        return Finished(folder, Interrupted(f"interrupted; {_go_on(folder)}"))


def _go_on(folder: WindowFolder) -> str:
    return f"finished cells are kept, go on with `spec-eval run --resume {folder.path}`"


def _measure(folder: WindowFolder, prepared: Prepared, progress: Progress) -> SpecEvalError | None:
    """Every cell that is missing; gives what keeps the run from being whole."""
    plan = prepared.plan
    engine = engines.find(plan.target.engine)
    with serving.serve(folder.server_log, plan, progress.note) as server:
        identity = probe.identify(server.endpoint, engine)
        wanted = plan.target.model if plan.target.recipe is None else None
        model = probe.model_name(identity, wanted, server.endpoint)
        found = Probe(identity, model, plan.target.k if plan.target.k is not None else identity.k, identity.k)
        same_server.refuse_other_stamp(plan, found, str(folder.path))
        facts = same_server.facts(server, found)
        sessions = folder.sessions()
        notes = [
            f"the server is another than in the run's first session: {change}"
            for change in same_server.changes(sessions[0].server if sessions else None, facts, str(folder.path))
        ]
        notes += _cache_notes(engine, identity.prefix_caching)
        for note in notes:
            progress.note(f"warning: {note}")
        tool = plan.aiperf
        progress.note(f"AIPerf {tool.version}: {tool.path} ({tool.found})")
        folder.start_session(WindowSession(started=_now(), settings_sha256=plan.settings_sha256, server=facts))
        stopped = _cells(_Place(folder, prepared, engine, server, found), progress)
        if stopped is not None:
            return stopped
        ended = {**facts, "root": server.endpoint.root, "speculative": identity.speculative}
        ended |= {**identity.details, **server.facts, "models": list(identity.models), "synthetic": identity.synthetic}
    with interrupts.held_back():
        folder.write_manifest(_manifest(folder, plan, ended, notes))
    return _shortfall(folder)


def _cells(place: _Place, progress: Progress) -> SpecEvalError | None:
    folder, plan = place.folder, place.prepared.plan
    planned, missing = plan.window.cells(), _missing(folder, plan)
    each = plan.window.warmup_s + plan.window.duration_s + _OVERHEAD_S
    with progress.windows(len(planned), len(planned) - len(missing), each) as show:
        for level, repeat in missing:
            if not _answers(place.server.endpoint):
                return RunNotWhole(f"the server is gone; start it again, and {_go_on(folder)}")
            if (why := cannot_finish(plan, level, list(folder.cells().values()))) is not None:
                progress.note(f"warning: {cell_name(level, repeat)}: {why}")
            cell = _cell(place, level, repeat)
            with interrupts.held_back():
                folder.append(cell)
            show(cell)
            if cell.outcome in (MISSING, OTHER_VERSION):
                return EnvironmentFault(f"{cell.detail}; put AIPerf {plan.aiperf.version} back, and {_go_on(folder)}")
    return None


def _answers(endpoint: Endpoint) -> bool:
    try:
        endpoint.models()
    except EnvironmentFault:
        return False
    return True


def _cell(place: _Place, level: int, repeat: int) -> WindowCell:
    """One run of AIPerf, and what it left."""
    folder, plan, endpoint = place.folder, place.prepared.plan, place.server.endpoint
    where = folder.fresh(level, repeat)
    prompts = folder.write_prompts(
        repeat, aiperf.prompt_lines(iter(place.prepared.prompts), seed=plan.seed, repeat=repeat)
    )
    tokenizer = plan.tokenizer or stand_in_tokenizer.write(folder.path / "tokenizer")
    argv = aiperf.command(
        Path(plan.aiperf.path),
        model=place.found.model,
        tokenizer=tokenizer,
        endpoint=endpoint,
        engine=place.engine,
        sampling=plan.sampling,
        window=plan.window,
        concurrency=level,
        prompts=prompts.absolute(),
        folder=where.absolute(),
    )
    started, clock = _now(), time.monotonic()
    common: dict[str, Any] = {
        "concurrency": level,
        "repeat": repeat,
        "folder": where.relative_to(folder.path).as_posix(),
        "command": argv,
        "started": started,
    }
    try:
        ended = aiperf.run(
            argv,
            endpoint=endpoint,
            local_tokenizer=Path(tokenizer).is_dir(),
            output=where.with_name(f"{where.name}.out"),
            limit=aiperf.limit_s(plan.window),
        )
    except FileNotFoundError:
        gone = f"{plan.aiperf.path}: AIPerf is gone"
        return WindowCell(**common, outcome=MISSING, detail=gone, ended=_now(), seconds=time.monotonic() - clock)
    read = aiperf_files.read(where, ended, place.engine, any_version=plan.aiperf.any_version)
    drafts, reason = _drafts(place, where) if read.outcome == OK else (None, None)
    return WindowCell(
        **common,
        ended=_now(),
        seconds=time.monotonic() - clock,
        outcome=read.outcome,
        detail=read.detail,
        exit_code=ended.code,
        aiperf_version=read.version,
        start_ns=read.start_ns,
        end_ns=read.end_ns,
        native=read.native,
        requests=read.requests,
        dropped=read.dropped,
        server_window=read.server_window,
        prefix_cache=read.prefix_cache,
        drafts=drafts,
        drafts_reason=reason,
    )


def _drafts(place: _Place, where: Path) -> tuple[Drafts | None, str | None]:
    """Counters of the completed answers, out of AIPerf's raw records, joined to our prompts by name."""
    plan, identity = place.prepared.plan, place.found.identity
    nominal = plan.target.adaptive if plan.target.adaptive is not None else identity.adaptive
    reader = aiperf_records.Reader(place.engine, place.found.k, nominal_drafts=bool(nominal))
    aside: list[str] = []
    try:
        entries = aiperf_records.entries(where, aside)
        answers = [one.record for one in aiperf_records.records(entries, plan.dataset, reader)]
    except Exception as error:  # whatever it is, AIPerf's figures of this cell are not lost by it
        return None, str(error) if isinstance(error, SpecEvalError | OSError) else f"{type(error).__name__}: {error}"
    records = [r for r in answers if r.status == "ok"]
    categories = {prompt_id: category for prompt_id, category, _ in plan.prompts.units}
    known = [replace(r, category=categories[r.prompt_id]) for r in records if r.prompt_id in categories]
    pairs = acceptance.measured(known)
    reasons = [r.no_counters_reason if r.counters is None else breach(r.counters, r.completion_tokens) for r in known]
    drafted = [c.drafted for _, c in pairs]
    depth = max((c.k for _, c in pairs), default=0)
    rows = [None if identity.tree else c.histogram for _, c in pairs]
    histogram = None
    if pairs and all(row is not None for row in rows):
        histogram = tuple(sum(row[j] for row in rows if row is not None and j < len(row)) for j in range(depth + 1))
    by_category: dict[str, list[tuple[int, int]]] = {}
    for record, counters in pairs:
        by_category.setdefault(record.category, []).append((counters.steps, counters.accepted))
    return Drafts(
        answers=len(records),
        requests=len(pairs),
        prompts=len({r.prompt_id for r in known}),
        unknown_prompts=len(records) - len(known),
        steps=sum(c.steps for _, c in pairs),
        accepted=sum(c.accepted for _, c in pairs),
        drafted=None if not pairs or None in drafted else sum(n or 0 for n in drafted),
        histogram=histogram,
        no_counters=dict(Counter(reason for reason in reasons if reason)),
        by_category={
            name: Sums(requests=len(sums), steps=sum(s for s, _ in sums), accepted=sum(a for _, a in sums))
            for name, sums in by_category.items()
        },
    ), "; ".join(aside) or None


def cannot_finish(plan: WindowPlan, level: int, cells: Sequence[WindowCell]) -> str | None:
    """Why a window of one request at a time may end before an answer of max_tokens does; null where it does not.

    The speed is that of earlier cells of this level, else the fastest seen, which is no slower for one request alone.
    """
    if level != 1:
        return None
    limit, seconds = plan.sampling.max_tokens or 0, plan.window.duration_s
    speeds = [(cell.concurrency == level, x) for cell in cells if (x := cell.average(X)) is not None]
    need = f"an answer of {limit} tokens needs more than {limit / seconds:.4g} tokens/s to end in {seconds:g} s"
    if not speeds:
        return f"{need}, and no speed is known yet; a slower server has no figure here"
    fastest = max(speeds)[1]
    return (
        f"{need}, and {fastest:.4g} were seen so far: long answers will be dropped"
        if fastest * seconds < limit
        else None
    )


def _cache_notes(engine: Engine, told: bool | None) -> list[str]:
    off = aiperf.cache_is_off(engine, told)
    if off:
        return []
    what = "prefix caching is on" if off is False else "whether prefix caching is on is not known"
    return [f"{what}: prompts come again in every repeat, and a warm cache skips their prefill; turn it off"]


def _manifest(folder: WindowFolder, plan: WindowPlan, server: dict[str, Any], notes: Sequence[str]) -> WindowManifest:
    sessions = folder.sessions()
    return WindowManifest(
        run_id=plan.run_id,
        started=sessions[0].started,
        ended=_now(),
        server=server,
        sessions=sessions,
        packages=provenance.packages(),
        platform=provenance.machine(),
        notes=(
            *notes,
            "AIPerf takes the prompts in order and goes on from warm-up into the window: a faster server sees others",
            f"tokenizer given to AIPerf: {plan.tokenizer or 'a stand-in'}; the server counts the tokens",
        ),
    )


def _shortfall(folder: WindowFolder) -> SpecEvalError | None:
    short = verdict.first(verdict.window_shortfalls(folder))
    return None if short is None else short.error(f"the report is written; {short.remedy}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
