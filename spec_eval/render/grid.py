"""The main table as plain cells, for markdown, the terminal and CSV alike."""

from collections.abc import Sequence

from spec_eval.render import words
from spec_eval.tables import Row, RunReport

OUTCOME = ("planned", "sent", "not sent", "ok", "failed", "measured", "length", "no counters", "zero steps", "invalid")


Grid = tuple[list[str], list[list[str]]]


def figures_grid(report: RunReport) -> Grid:
    """(columns, rows): pooled AL with its interval, the per-request mean, rate and steps; overall last."""
    columns = ["", "AL", "95% interval", "AL per request", "rate", "steps"]
    return columns, [_figures(_name(row, report), row) for row in _with_overall(report)]


def positions_grid(report: RunReport) -> Grid:
    """(columns, rows): the share of steps that accepted at least 1, 2, … k draft tokens."""
    k = report.overall.figures.k or 0
    return ["", *[f"pos {i}" for i in range(1, k + 1)]], [
        [_name(row, report), *_positions(row, k)] for row in _with_overall(report)
    ]


def _positions(row: Row, k: int) -> list[str]:
    shares = row.figures.positions or ()
    return [words.percent(shares[i] if i < len(shares) else None) for i in range(k)]


def outcome_grid(report: RunReport) -> Grid:
    """(columns, rows): what became of the planned requests."""
    return ["", *OUTCOME], [
        [_name(row, report), *(str(getattr(row.outcome, name.replace(" ", "_"))) for name in OUTCOME)]
        for row in _with_overall(report)
    ]


def _with_overall(report: RunReport) -> Sequence[Row]:
    return [*report.rows, report.overall]


def _name(row: Row, report: RunReport) -> str:
    return "overall, pooled" if row is report.overall else _qualified(row, report)


def _qualified(row: Row, report: RunReport) -> str:
    levels = {cell.concurrency for cell in report.plan.cells}
    return f"{words.row_name(row)}, c={row.concurrency}" if len(levels) > 1 else words.row_name(row)


def _figures(name: str, row: Row) -> list[str]:
    figures = row.figures
    return [
        name,
        words.number(words.value(figures.acceptance_length)),
        words.interval(figures.acceptance_length),
        words.number(words.value(figures.acceptance_length_request_mean)),
        words.percent(figures.acceptance_rate),
        str(figures.steps),
    ]
