"""What a comparison may be given: a run folder, a baseline file, or a bare description of a run's settings."""

import json
from pathlib import Path
from typing import Any

from spec_eval import baseline, counting, jsontext, loaded, tables
from spec_eval.comparability import ANY_CELL, DESCRIBED, KEYS
from spec_eval.errors import UsageError
from spec_eval.pairs import Side, conversations
from spec_eval.store import Manifest, Plan, RunFolder

_EXPECTED = "give a run folder, a file of `spec-eval baseline`, or a JSON object of a run's settings"


def load(path: Path) -> Side:
    """A side from a folder or a file; UsageError where it is neither."""
    return of_run(RunFolder.open(path)) if path.is_dir() else _of_file(path)


def of_run(folder: RunFolder) -> Side:
    """A run folder; one that is not whole, or counts nothing by conversation, is named as such."""
    run = loaded.load(folder)
    (report,) = tables.views(run, None)
    plan, outcome, manifest = run.plan, run.outcome, run.manifest
    return Side(
        name=plan.run_id,
        settings=manifest.settings if manifest else {},
        facts=_facts(plan, manifest),
        conversations=(found := conversations(plan, run.read.records)),
        measured=outcome.measured,
        ok=outcome.ok,
        problem=_problem(report, any(one.full for one in found)),
    )


def _problem(report: tables.RunReport, counted: bool) -> str | None:
    name = report.plan.run_id
    if not report.whole:
        return f"{name} is {report.shortfalls[0].what}; {report.shortfalls[0].remedy}"
    if counting.is_server_wide(report.plan):
        return f"{name} holds a server's own totals, and no conversation that could be paired"
    if not counted:
        return f"{name} holds no conversation with counters that could be paired"
    return None


def _facts(plan: Plan, manifest: Manifest | None) -> dict[str, Any]:
    """What may differ between two runs, and is shown."""
    server = manifest.server if manifest else {}
    hashes = {name: value for name, value in sorted(server.items()) if name.endswith("sha256")}
    return {
        "engine": plan.target.engine,
        "engine_version": manifest.engine_version if manifest else None,
        "target": server.get("model") or plan.target.model,
        "drafter": plan.target.drafter,
        "drafter_recipe": (plan.target.recipe or {}).get("drafter"),
        "speculative": server.get("speculative"),
        **hashes,
        "spec_eval_version": plan.spec_eval_version,
        "packages": manifest.packages if manifest else {},
    }


def _of_file(path: Path) -> Side:
    try:
        content = jsontext.loads(path.read_bytes())
        json.dumps(content, allow_nan=False)  # a setting that is NaN equals nothing, not even itself
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or f"not whole JSON: {error}"
        raise UsageError(f"{path}: {why}; {_EXPECTED}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path}: no JSON object; {_EXPECTED}")
    if "schema_version" in content or "cells" in content:
        return baseline.parse(content, path)
    known = {key: value for key, value in content.items() if key in (*KEYS, *DESCRIBED)}
    if not known:
        raise UsageError(f"{path}: none of its keys is a setting; {_EXPECTED}")
    return Side(
        name=path.name,
        settings={ANY_CELL: known},
        facts={key: value for key, value in content.items() if key not in known},
        problem=f"{path.name} only describes a run: it has no counters",
    )
