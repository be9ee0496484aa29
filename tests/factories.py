"""Small builders of records, plans and run folders; every expected number stays in the tests themselves."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spec_eval.engines.scrape import Totals
from spec_eval.loaded import LoadedRun
from spec_eval.records import RequestRecord, SpecCounters, Unit
from spec_eval.store import Cell, Manifest, Plan, PromptRef, Reconciliation, Records, RunFolder, SessionEnd, Target
from spec_eval.suite import Sampling

CELL = "chat.t0.c1"
DATA = Path(__file__).parent / "data"


def from_histogram(histogram: Sequence[int], *, drafted: int | None = None, **changes: Any) -> SpecCounters:
    """Counters as an engine with a histogram hands them over; without `drafted` every step drafted k."""
    k, steps = len(histogram) - 1, sum(histogram)
    counters = SpecCounters(
        steps=steps,
        accepted=sum(j * n for j, n in enumerate(histogram)),
        drafted=k * steps if drafted is None else drafted,
        histogram=tuple(histogram),
        k=k,
    )
    return replace(counters, **changes)


def from_steps(steps: Sequence[tuple[int, int]], k: int) -> SpecCounters:
    """Counters of steps given as (drafted, accepted)."""
    accepted = tuple(a for _, a in steps)
    drafted = tuple(d for d, _ in steps)
    return SpecCounters(
        steps=len(steps),
        accepted=sum(accepted),
        drafted=sum(drafted),
        histogram=tuple(accepted.count(j) for j in range(k + 1)),
        k=k,
        per_step_accepted=accepted,
        per_step_drafted=drafted,
        source="timings",
    )


_RECORD = RequestRecord(
    cell_id=CELL,
    dataset="chat",
    prompt_id="p0",
    category="coding",
    subcategory=None,
    turn=0,
    repeat=0,
    seed_sent=1,
    attempt=0,
    status="ok",
    failure_reason=None,
    finish_reason="stop",
    start_ns=1_000,
    first_token_ns=2_000,
    end_ns=9_000,
    prompt_tokens=12,
    cached_tokens=0,
    completion_tokens=None,
    reasoning_tokens=None,
    text="ok",
    reasoning_text="",
    counters=None,
    no_counters_reason=None,
)


def answered(counters: SpecCounters | None, **changes: Any) -> RequestRecord:
    """A finished answer; null counters are given a reason."""
    reason = None if counters is not None else "no metrics object"
    return replace(_RECORD, counters=counters, no_counters_reason=reason, **changes)


def failed(reason: str = "http 500: boom", **changes: Any) -> RequestRecord:
    """Sent, without a usable answer."""
    return replace(
        _RECORD, **{"status": "failed", "failure_reason": reason, "finish_reason": None, "text": None, **changes}
    )


def not_sent(reason: str = "oversized: 9000 tokens", **changes: Any) -> RequestRecord:
    """Never sent."""
    nothing = dict.fromkeys(("start_ns", "first_token_ns", "end_ns", "finish_reason", "text", "prompt_tokens"))
    return replace(_RECORD, **{**nothing, "status": "not_sent", "failure_reason": reason, **changes})


def cell(units: Iterable[tuple[str, str, int]], **changes: Any) -> Cell:
    """A cell over (prompt_id, category, turns)."""
    chosen = tuple(units)
    prompts = PromptRef(
        source="chat.jsonl",
        revision=None,
        files={"chat.jsonl": "0" * 64},
        sha256="1" * 64,
        rows=len(chosen),
        units=chosen,
        notes=changes.pop("notes", ()),
    )
    values: dict[str, Any] = {
        "cell_id": CELL,
        "dataset": "chat",
        "title": "Chat",
        "sampling": Sampling(temperature=0.0, max_tokens=64),
        "concurrency": 1,
        "repeats": 1,
        "prompts": prompts,
        **changes,
    }
    return Cell(**values)


def plan(*cells: Cell, **changes: Any) -> Plan:
    """A plan of those cells."""
    values: dict[str, Any] = {
        "run_id": "20300102-030405-chat",
        "created": "2030-01-02T03:04:05+00:00",
        "spec_eval_version": "0.1.0",
        "command": ("spec-eval", "run", "chat"),
        "suite_name": "chat",
        "suite_text": "schema_version = 1\n",
        "suite_sha256": "2" * 64,
        "overrides": {},
        "target": Target(engine="llamacpp", model="target-a", drafter="drafter-a", k=3),
        "cells": cells,
        "seed": 7,
        "max_failures": 0.05,
        **changes,
    }
    return Plan(**values)


EXACT = Reconciliation(status="exact", reason=None)


def session_end(**changes: Any) -> SessionEnd:
    """An orderly end of session 1."""
    values: dict[str, Any] = {
        "session": 1,
        "started": "2030-01-02T03:04:05+00:00",
        "ended": "2030-01-02T03:05:05+00:00",
        "reason": "done",
        "requests": 4,
        "aborted": 0,
        "reconciliation": EXACT,
        "loop_lag_p99_ms": 1.5,
        **changes,
    }
    return SessionEnd(**values)


def manifest(of: Plan, **changes: Any) -> Manifest:
    """The manifest of a whole run."""
    values: dict[str, Any] = {
        "run_id": of.run_id,
        "settings_sha256": of.settings_sha256,
        "started": of.created,
        "ended": "2030-01-02T03:05:05+00:00",
        "data": {},
        "settings": {c.cell_id: {"thinking": False} for c in of.cells},
        "server": {"model": "target-a"},
        "engine_version": "b1",
        "packages": {},
        "platform": {},
        "sessions": (session_end(),),
        "reconciliation": EXACT,
        "outcome": {},
        **changes,
    }
    return Manifest(**values)


def run_folder(
    where: Path, of: Plan, records: Iterable[RequestRecord], *, whole: bool = True, **manifest_changes: Any
) -> RunFolder:
    """Plan, records and, for a whole run, the manifest, as a run leaves them."""
    path = where / of.run_id
    path.mkdir(parents=True)
    folder = RunFolder(path)
    folder.write_plan(of)
    with folder.log() as log:
        for record in records:
            log.append(record)
    if whole:
        folder.write_manifest(manifest(of, **manifest_changes))
    return folder


def loaded(
    of: Plan,
    records: Sequence[RequestRecord],
    *,
    whole: bool = True,
    totals: Totals | None = None,
    set_aside: Sequence[str] = (),
    doubles: Sequence[Unit] = (),
    **manifest_changes: Any,
) -> LoadedRun:
    """A run as it is read from the folder `run`, without one."""
    read = Records(tuple(records), tuple(set_aside), tuple(doubles), len(records))
    made = manifest(of, **manifest_changes) if whole else None
    return LoadedRun(Path("run"), of, made, read, {}, totals)
