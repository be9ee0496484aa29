"""What a manifest records of the place and the settings of a run."""

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spec_eval import engines, git
from spec_eval.acceptance import Outcome, measured
from spec_eval.engines.base import Identity
from spec_eval.records import RequestRecord
from spec_eval.store import Cell, Plan, Point

_PACKAGES = (
    "spec-eval",
    "openai",
    "aiohttp",
    "httpx2",
    "uvloop",
    "datasets",
    "pyarrow",
    "pydantic",
    "numpy",
    "xllamacpp",
)
ESTIMATOR = "pooled"


def packages() -> dict[str, str]:
    """Versions of what may bear on a figure, of those that are installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """Of this spec-eval: the one that it was installed from, or that of its checkout; null for a release."""
    try:
        told = importlib.metadata.distribution("spec-eval").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        told = None
    if told and (named := json.loads(told).get("vcs_info", {}).get("commit_id")):
        return str(named)
    here = git.checkout(Path(__file__).parent.parent, "__init__.py")
    return f"{here.commit}{', changed since' if here.changed else ''}" if here else None


def machine() -> dict[str, Any]:
    """The client's machine."""
    return {"python": sys.version.split()[0], "system": platform.platform(), "cpus": os.cpu_count()}


def adaptive(plan: Plan, identity: Identity) -> bool | None:
    """Whether the server verifies only some of its drafts: the user's word, else the server's."""
    return plan.target.adaptive if plan.target.adaptive is not None else identity.adaptive


def outcome_table(outcome: Outcome) -> dict[str, int]:
    """The counts that a manifest keeps for a glance; the report has the reasons."""
    return {name: getattr(outcome, name) for name in ("planned", "sent", "ok", "failed", "measured")}


def data_table(plan: Plan) -> dict[str, dict[str, Any]]:
    """For each data set where its rows came from, their hashes, and who prepared them."""
    kept = {"source", "revision", "files", "sha256", "rows", "standin", "preparation"}
    return {cell.dataset: cell.prompts.model_dump(mode="json", include=kept) for cell in plan.cells}


def imported_settings(
    plan: Plan, records: Sequence[RequestRecord], points: Mapping[str, Point]
) -> dict[str, dict[str, Any]]:
    """Of a run that was not driven here: all that its records or points tell; the rest is null."""
    unknown = Identity(models=())
    settings = comparable_settings(plan, unknown, records)
    for cell, values in settings.items():
        values["prefix_caching"] = None
        if cell in points and values["k"] is None:
            values["k"] = len(points[cell].positions or ()) or None
    return settings


def comparable_settings(plan: Plan, identity: Identity, records: Sequence[RequestRecord]) -> dict[str, dict[str, Any]]:
    """For each cell, the keys that must be equal before two runs may be compared; null is "not known"."""
    return {cell.cell_id: _cell_settings(plan, cell, identity, records) for cell in plan.cells}


def _k(plan: Plan, identity: Identity, records: Sequence[RequestRecord]) -> int | None:
    """As the user or the recipe says, else as the server does, else the one that every answer names."""
    named = plan.target.k if plan.target.k is not None else identity.k
    seen = {counters.k for _, counters in measured(records) if counters.steps}
    return named if named is not None or len(seen) != 1 else seen.pop()


def _cell_settings(plan: Plan, cell: Cell, identity: Identity, records: Sequence[RequestRecord]) -> dict[str, Any]:
    sampling, target, engine = cell.sampling, plan.target, engines.find(plan.target.engine)
    mine = [r for r in records if r.cell_id == cell.cell_id]
    return {
        "k": _k(plan, identity, mine),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "max_tokens": sampling.max_tokens,
        "first_turn_only": plan.first_turn_only,
        "reasoning_in_history": plan.reasoning_in_history,
        "thinking": thinking_seen(mine),
        "chat_template_sha256": identity.chat_template_sha256,
        "suite_sha256": plan.suite_sha256,
        "data_sha256": cell.prompts.sha256,
        "adaptive": adaptive(plan, identity),
        "draft_sampling": target.draft_sampling or identity.draft_sampling,
        "prefix_caching": False if plan.cold_cache and engine.cools_cache else identity.prefix_caching,
        "concurrency": cell.concurrency,
        "tensor_parallelism": target.tensor_parallelism or identity.tensor_parallelism,
        "estimator": ESTIMATOR,
        "synthetic": plan.synthetic,
    }


def thinking_seen(records: Sequence[RequestRecord]) -> bool | None:
    """Whether any answer carried reasoning; null without answers."""
    answered = [r for r in records if r.status == "ok"]
    if not answered:
        return None
    return any(r.reasoned for r in answered)
