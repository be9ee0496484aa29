"""A table as plain cells, for Markdown and the terminal alike."""

from collections import Counter
from collections.abc import Callable, Sequence

from spec_eval import stats, tables
from spec_eval.acceptance import COUNTS, Figures
from spec_eval.render import words
from spec_eval.repeats import Spread
from spec_eval.stats import Estimate
from spec_eval.tables import SERVER_WIDE, Row, RunReport

ALL_PROMPTS = f"{SERVER_WIDE}, all prompts, incl. other traffic"
Grid = tuple[list[str], list[list[str]]]


def grids(report: RunReport, rows: Sequence[Row]) -> list[Grid]:
    """Acceptance, positions, and what became of the planned requests; a grid is (columns, rows)."""
    names = _names(rows, report)
    graded = any(row.grade is not None for row in rows)
    acceptance = (
        ["", "AL", "95% interval", "AL per request", "rate", "steps", *(["grade"] if graded else [])],
        [
            [name, *_figures(row), *([words.number(row.grade)] if graded else [])]
            for name, row in zip(names, rows, strict=True)
        ],
    )
    if (macro := tables.macro([row for row in rows if row is not report.overall])) is not None:
        blank = [words.NOTHING] * (len(acceptance[0]) - 2)
        found = dict.fromkeys(mark for row in rows for mark in words.marks(report, row))
        name = words.marked(f"mean of {macro.rows} rows", ["macro", *found])
        acceptance[1].append([name, words.number(macro.acceptance_length), *blank])
    return [acceptance, *_positions("", names, rows, lambda figures: figures.positions), outcomes(names, rows)]


def details(report: RunReport, rows: Sequence[Row]) -> list[Grid]:
    """What a terminal has no room for: positions per request, mean of repeats, and shorter drafts."""
    names = _names(rows, report)
    return [
        *_positions("positions per request", names, rows, lambda figures: figures.positions_request_mean),
        *_repeats(names, rows),
        *_shorter(names, rows),
    ]


def outcomes(names: Sequence[str], rows: Sequence[Row]) -> Grid:
    """What became of the planned requests of each row."""
    counts = [[str(getattr(row.outcome, count)) for count in COUNTS] for row in rows]
    columns = ["requests", *(count.replace("_", " ") for count in COUNTS)]
    return columns, [[name, *shown] for name, shown in zip(names, counts, strict=True)]


def longest(rows: Sequence[Row]) -> int:
    """k of the row with the largest."""
    return max((row.figures.k or 0 for row in rows), default=0)


def _names(rows: Sequence[Row], report: RunReport) -> list[str]:
    """As they stand in the first column; rows that differ in load alone say so."""
    names = [_name(report, row) for row in rows]
    seen = Counter(names)
    levels = {cell.concurrency for cell in report.plan.cells}
    return [
        words.marked(
            f"{name}, c={row.concurrency}" if seen[name] > 1 and len(levels) > 1 else name,
            [mark for mark in words.marks(report, row) if row.label != SERVER_WIDE or mark != SERVER_WIDE],
        )
        for name, row in zip(names, rows, strict=True)
    ]


def _name(report: RunReport, row: Row) -> str:
    if row.label == SERVER_WIDE:
        pooled = "overall, pooled" if row is report.overall else row.title
        return ALL_PROMPTS if len(report.rows) == 1 else f"{ALL_PROMPTS} / {pooled}"
    return "overall, pooled" if row is report.overall else words.row_name(row)


def _figures(row: Row) -> list[str]:
    figures = row.figures
    return [
        words.number(stats.value(figures.acceptance_length)),
        words.interval(figures.acceptance_length),
        words.give_or_take(figures.acceptance_length_request_mean),
        words.give_or_take(figures.acceptance_rate, words.percent, 100),
        str(figures.steps),
    ]


def _positions(
    corner: str, names: Sequence[str], rows: Sequence[Row], of: Callable[[Figures], Sequence[Estimate] | None]
) -> list[Grid]:
    k = longest(rows)
    if not k or (corner and all(of(row.figures) is None for row in rows)):
        return []
    shown = [[*(of(row.figures) or ()), *[None] * k][:k] for row in rows]
    return [
        (
            [corner, *[f"pos {i}" for i in range(1, k + 1)]],
            [
                [name, *(words.give_or_take(share, words.percent, 100) for share in shares)]
                for name, shares in zip(names, shown, strict=True)
            ],
        )
    ]


def _repeats(names: Sequence[str], rows: Sequence[Row]) -> list[Grid]:
    """Mean of repeats, each with its smallest and largest."""
    found = [(name, row.repeats) for name, row in zip(names, rows, strict=True) if row.repeats is not None]
    if not found:
        return []
    k = max(len(repeats.positions or ()) for _, repeats in found)
    figures = (
        ["mean of repeats", "repeats", "AL", "AL per request", "rate"],
        [
            [
                name,
                str(repeats.number),
                _spread(repeats.acceptance_length),
                _spread(repeats.acceptance_length_request_mean),
                _spread(repeats.acceptance_rate, words.percent),
            ]
            for name, repeats in found
        ],
    )
    positions = (
        ["mean of repeats", *[f"pos {i}" for i in range(1, k + 1)]],
        [
            [name, *(_spread(one, words.percent) for one in [*(repeats.positions or ()), *[None] * k][:k])]
            for name, repeats in found
        ],
    )
    return [figures, positions] if k else [figures]


def _spread(spread: Spread | None, show: Callable[[float | None], str] = words.number) -> str:
    if spread is None:
        return words.NOTHING
    low, high = (show(end).removesuffix("%") for end in (spread.low, spread.high))
    return f"{show(spread.mean)} ({low}–{high})"


def _shorter(names: Sequence[str], rows: Sequence[Row]) -> list[Grid]:
    """AL and rate over the first drafts of each step alone."""
    found = [(name, row.shorter) for name, row in zip(names, rows, strict=True) if row.shorter]
    if not found:
        return []
    k = max(len(shorter) for _, shorter in found)
    cells = [
        [f"{words.number(one.acceptance_length)}, {words.percent(one.acceptance_rate)}" for one in shorter]
        for _, shorter in found
    ]
    columns = ["AL, rate at fewer drafts", *[f"k = {fewer}" for fewer in range(1, k + 1)]]
    return [(columns, [[name, *[*one, *[words.NOTHING] * k][:k]] for (name, _), one in zip(found, cells, strict=True)])]
