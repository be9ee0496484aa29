"""A report as CSV: one line a row, full precision, empty where there is no data."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from spec_eval.acceptance import COUNTS
from spec_eval.render import words
from spec_eval.stats import Estimate
from spec_eval.tables import SERVER_WIDE, Row, RunReport


def render(reports: Sequence[RunReport]) -> str:
    """All rows of all runs; a run's overall row has neither dataset nor category."""
    lines = [(report, row) for report in reports for row in report.lines]
    k = max((len(row.figures.positions or ()) for _, row in lines), default=0)
    rows = [_one_line(_flat(report, row, k)) for report, row in lines]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _one_line(row: dict[str, Any]) -> dict[str, Any]:
    """Texts without a bare carriage return, which ends a line for most readers, quoted or not."""
    return {name: value.replace("\r", " ") if isinstance(value, str) else value for name, value in row.items()}


def _flat(report: RunReport, row: Row, k: int) -> dict[str, Any]:
    figures, outcome = row.figures, row.outcome
    overall = row is report.overall
    flat: dict[str, Any] = {
        "run_id": row.run_id,
        "row": _kind(report, row),
        "table": row.table,
        "title": None if overall else row.title,
        "dataset": None if overall else row.dataset,
        "category": row.label,
        "temperature": row.temperature,
        "concurrency": row.concurrency,
        "k": figures.k,
        "conversations": figures.conversations,
        "interval_conversations": figures.acceptance_length.n if figures.acceptance_length else None,
        "coverage": row.coverage,
        "steps": figures.steps,
        "drafted": figures.drafted,
        "accepted": figures.accepted,
        **_spread("acceptance_length", figures.acceptance_length),
        **_spread("acceptance_length_request_mean", figures.acceptance_length_request_mean),
        **_spread("acceptance_rate", figures.acceptance_rate),
        "grade": row.grade,
        **{name: getattr(outcome, name) for name in COUNTS},
    }
    positions = (*(figures.positions or ()), *[None] * (k - len(figures.positions or ())))
    for i, share in enumerate(positions, 1):
        flat |= _spread(f"position_{i}", share)
    flat["labels"] = "; ".join(words.labels(report)) or None
    flat["synthetic"] = report.plan.synthetic
    flat["standin"] = row.standin
    return flat


def _kind(report: RunReport, row: Row) -> str:
    """A server's totals say so; a single row of them is the overall one as well."""
    if row.label == SERVER_WIDE and any(row is one for one in report.rows):
        return SERVER_WIDE
    return "overall" if row is report.overall else "row"


def _spread(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    return {
        name: estimate.value if estimate else None,
        f"{name}_low": estimate.low if estimate else None,
        f"{name}_high": estimate.high if estimate else None,
    }
