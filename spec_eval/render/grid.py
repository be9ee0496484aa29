"""A table as plain cells, for Markdown and the terminal alike."""

from collections.abc import Sequence

from spec_eval import stats
from spec_eval.acceptance import COUNTS
from spec_eval.render import words
from spec_eval.tables import SERVER_WIDE, Row, RunReport

Grid = tuple[list[str], list[list[str]]]


def grids(report: RunReport, rows: Sequence[Row]) -> list[Grid]:
    """Acceptance, positions, and what became of the planned requests; a grid is (columns, rows)."""
    names = [_name(row, report) for row in rows]
    graded = any(row.grade is not None for row in rows)
    k = max((row.figures.k or 0 for row in rows), default=0)
    acceptance = (
        ["", "AL", "95% interval", "AL per request", "rate", "steps", *(["grade"] if graded else [])],
        [
            [name, *_figures(row), *([words.number(row.grade)] if graded else [])]
            for name, row in zip(names, rows, strict=True)
        ],
    )
    positions = (
        ["", *[f"pos {i}" for i in range(1, k + 1)]],
        [[name, *_positions(row, k)] for name, row in zip(names, rows, strict=True)],
    )
    outcomes = (
        ["requests", *(count.replace("_", " ") for count in COUNTS)],
        [
            [name, *(str(getattr(row.outcome, count)) for count in COUNTS)]
            for name, row in zip(names, rows, strict=True)
        ],
    )
    return [acceptance, positions, outcomes] if k else [acceptance, outcomes]


def _name(row: Row, report: RunReport) -> str:
    if row.label == SERVER_WIDE:
        return SERVER_WIDE
    partial = " (partial)" if row.partial else ""
    if row is report.overall:
        return f"overall, pooled{partial}"
    name = f"{words.row_name(row)}{partial}"
    levels = {cell.concurrency for cell in report.plan.cells}
    return f"{name}, c={row.concurrency}" if len(levels) > 1 and row.table is None else name


def _figures(row: Row) -> list[str]:
    figures = row.figures
    return [
        words.number(stats.value(figures.acceptance_length)),
        words.interval(figures.acceptance_length),
        words.number(stats.value(figures.acceptance_length_request_mean)),
        words.percent(stats.value(figures.acceptance_rate)),
        str(figures.steps),
    ]


def _positions(row: Row, k: int) -> list[str]:
    shares = row.figures.positions or ()
    return [words.percent(shares[i].value if i < len(shares) else None) for i in range(k)]
