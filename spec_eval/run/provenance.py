"""What a manifest records of the place and the settings of a run."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

from spec_eval.engines import Engine
from spec_eval.engines.base import Identity
from spec_eval.records import RequestRecord
from spec_eval.store import Cell, Plan

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


def machine() -> dict[str, Any]:
    """The client's machine."""
    return {"python": sys.version.split()[0], "system": platform.platform(), "cpus": os.cpu_count()}


def comparable_settings(
    plan: Plan, engine: Engine, identity: Identity, records: Sequence[RequestRecord]
) -> dict[str, dict[str, Any]]:
    """For each cell, the keys that must be equal before two runs may be compared; null is "not known"."""
    return {cell.cell_id: _cell_settings(plan, cell, engine, identity, records) for cell in plan.cells}


def _cell_settings(
    plan: Plan, cell: Cell, engine: Engine, identity: Identity, records: Sequence[RequestRecord]
) -> dict[str, Any]:
    sampling, target = cell.sampling, plan.target
    return {
        "k": target.k if target.k is not None else identity.k,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "max_tokens": sampling.max_tokens,
        "thinking": thinking_seen([r for r in records if r.cell_id == cell.cell_id]),
        "chat_template_sha256": identity.chat_template_sha256,
        "suite_sha256": plan.suite_sha256,
        "data_sha256": cell.prompts.sha256,
        "adaptive": target.adaptive,
        "draft_sampling": target.draft_sampling,
        "prefix_caching": engine.prefix_caching,
        "concurrency": cell.concurrency,
        "tensor_parallelism": target.tensor_parallelism,
        "estimator": ESTIMATOR,
        "synthetic": plan.synthetic,
    }


def thinking_seen(records: Sequence[RequestRecord]) -> bool | None:
    """Whether any answer carried reasoning; null without answers."""
    answered = [r for r in records if r.status == "ok"]
    if not answered:
        return None
    return any(r.reasoning_text or r.reasoning_tokens for r in answered)
