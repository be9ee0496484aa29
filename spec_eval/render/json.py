"""A report as JSON: fractions, not percents; null where there is no data, never 0 or NaN.

A figure with an interval has one shape in every document of ours: that of `interval`. Beside a figure that is a plain
number or a list of them, the same objects stand under its name with `_interval`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from spec_eval import stats
from spec_eval.acceptance import COUNTS, Outcome
from spec_eval.render import words
from spec_eval.stats import Estimate
from spec_eval.store import Point
from spec_eval.tables import Row, RunReport

SCHEMA_VERSION = 1


def render(reports: Sequence[RunReport]) -> str:
    """The document. `overall` pools the requests of a single run; several runs each carry their own."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "runs": [_run(report) for report in reports],
        "rows": [_row(row) for report in reports for row in report.rows],
        "overall": _row(reports[0].overall) if len(reports) == 1 else None,
        "warnings": [
            {"run_id": report.plan.run_id, **asdict(warning)} for report in reports for warning in report.warnings
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _run(report: RunReport) -> dict[str, Any]:
    macro = asdict(report.macro) if report.macro else None
    return about(report) | {"macro_mean": macro, "overall": _row(report.overall)}


def about(report: RunReport) -> dict[str, Any]:
    """What a run was, without its figures."""
    plan, manifest = report.plan, report.manifest
    target = plan.target
    return {
        "run_id": plan.run_id,
        "origin": plan.origin,
        "synthetic": plan.synthetic,
        "standin": plan.standin,
        "labels": words.labels(report),
        "not_stated": plan.not_stated,
        "choices": plan.choices,
        "whole": report.whole,
        "suite": plan.suite_name,
        "suite_sha256": plan.suite_sha256,
        "engine": target.engine,
        "engine_version": manifest.engine_version if manifest else None,
        "model": manifest.server.get("model") if manifest else target.model,
        "drafter": target.drafter,
        "k": report.k,
        "k_flag": manifest.server.get("k_flag") if manifest else None,
        "temperature": _only([cell.sampling.temperature for cell in plan.cells]),
        "concurrency": _only([cell.concurrency for cell in plan.cells]),
        "seed": plan.seed,
        "overrides": plan.overrides,
        "settings": manifest.settings if manifest else None,
        "reconciliation": report.reconciliation.model_dump(mode="json"),
        "points": {name: _point(point) for name, point in manifest.points.items()} if manifest else {},
    }


def _point(point: Point) -> dict[str, Any]:
    return {**point.model_dump(mode="json"), "tokens_per_second_per_user": point.tokens_per_second_per_user}


def _only(values: Sequence[float | None]) -> float | None:
    """The value that all cells share, or null."""
    return values[0] if len(set(values)) == 1 else None


def _row(row: Row) -> dict[str, Any]:
    figures = row.figures
    return {
        "run_id": row.run_id,
        "table": row.table,
        "title": row.title,
        "dataset": row.dataset,
        "category": row.label,
        "temperature": row.temperature,
        "concurrency": row.concurrency,
        "k": figures.k,
        "requests": _requests(row.outcome),
        "conversations": figures.conversations,
        "interval_conversations": figures.acceptance_length.n if figures.acceptance_length else None,
        "coverage": row.coverage,
        "steps": figures.steps,
        "drafted": figures.drafted,
        "accepted": figures.accepted,
        "acceptance_length": _estimate(figures.acceptance_length),
        "inferred": figures.inferred,
        "acceptance_length_request_mean": _estimate(figures.acceptance_length_request_mean),
        "acceptance_rate": stats.value(figures.acceptance_rate),
        "acceptance_rate_interval": _estimate(figures.acceptance_rate),
        "drafts_per_step": figures.drafts_per_step,
        "positions": stats.values(figures.positions),
        "positions_interval": _estimates(figures.positions),
        "positions_request_mean": stats.values(figures.positions_request_mean),
        "positions_request_mean_interval": _estimates(figures.positions_request_mean),
        "conditional_positions": figures.conditional_positions,
        "grade": row.grade,
        "partial": row.partial,
        "standin": row.standin,
        "full_draft_steps": asdict(figures.full_steps) if figures.full_steps else None,
        "mean_of_repeats": asdict(row.repeats) if row.repeats else None,
        "shorter_drafts": [asdict(one) for one in row.shorter] or None,
        "delivered_tokens_per_verification_step": _estimate(figures.delivered_per_step),
        "undelivered_tokens": figures.undelivered,
        "unexplained_tokens": figures.unexplained,
    }


def _requests(outcome: Outcome) -> dict[str, Any]:
    tables = ("not_sent_by", "failed_by", "no_counters_by", "invalid_by")
    return {name: getattr(outcome, name) for name in (*COUNTS, *tables)}


def interval(value: float | None, low: float | None, high: float | None) -> dict[str, float | None] | None:
    """A figure with its interval; null without the figure, and both ends null without an interval."""
    return None if value is None else {"value": value, "low": low, "high": high}


def _estimate(estimate: Estimate | None) -> dict[str, float | None] | None:
    return None if estimate is None else interval(estimate.value, estimate.low, estimate.high)


def _estimates(estimates: Sequence[Estimate] | None) -> list[dict[str, float | None] | None] | None:
    return None if estimates is None else [_estimate(one) for one in estimates]
