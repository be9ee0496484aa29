"""Tables of acceptance figures in a model card: pipe tables, in code fences too, and tab-separated lines.

A table is a run of lines with the same separator, in which one row is recognised as its heads. A table that stands on
its side (one figure a row) is turned. Everything else in the text is left alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from spec_eval.cards.heads import Column, Kind, columns, is_header
from spec_eval.cards.numbers import Cell, Printed, plain, printed, read_cell

_PIPE = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r":?-+:?")
_MOST_DRAFTS = 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One set of figures. positions[i - 1]: of draft position i, null where nothing is printed.

    line: in the file, from 1. drafts: k where a column says so. unread: cells that hold something and were not read.
    group: the first head of its columns, where several measurements stand side by side.
    """

    line: int
    label: str
    length: Printed | None
    rate: Printed | None
    positions: tuple[Printed | None, ...]
    drafts: int | None = None
    unread: tuple[str, ...] = ()
    group: str = ""

    @property
    def name(self) -> str:
        """For a person: label and group, or that there is no label."""
        return (self.label or "(no label)") + (f" [{self.group}]" if self.group else "")


@dataclass(frozen=True, slots=True)
class Table:
    """line: of its heads. positions: how many columns of them. label_head: over the rows' names.

    refused: why its columns could not be told apart, or null.
    """

    line: int
    positions: int
    label_head: str
    rows: tuple[Row, ...]
    refused: str | None = None


@dataclass(slots=True)
class _Grid:
    """Consecutive lines with one separator."""

    numbers: list[int] = field(default_factory=list)
    cells: list[list[str]] = field(default_factory=list)


def read_tables(text: str) -> list[Table]:
    """Every table of acceptance figures, in the order of the text; lines end with a line feed alone."""
    tables: list[Table] = []
    for grid in _grids(text.split("\n")):
        upright = _tables_of(grid)
        tables += upright or _tables_of(_turned(grid))
    return tables


def _grids(lines: Sequence[str]) -> list[_Grid]:
    grids: list[_Grid] = []
    last: str | None = None
    for number, line in enumerate(lines, start=1):
        kind = _separator(line)
        if kind == "|" and last == "\t" and not line.lstrip("> ").startswith("|"):
            kind = "\t" if "\t" in line else kind
        if kind is not None:
            if kind != last:
                grids.append(_Grid())
            grids[-1].numbers.append(number)
            grids[-1].cells.append([plain(cell) for cell in _split(line, kind)])
        last = kind
    return grids


def _separator(line: str) -> str | None:
    if _PIPE.search(line):
        return "|"
    return "\t" if "\t" in line.strip(" ") and line.strip() else None


def _split(line: str, separator: str) -> list[str]:
    if separator == "\t":
        return line.split("\t")
    inner = re.sub(r"^[>\s]+", "", line).rstrip()
    parts = _PIPE.split(inner)
    if inner.startswith("|"):
        parts = parts[1:]
    if len(parts) > 1 and not parts[-1].strip():
        parts = parts[:-1]
    return [part.replace("\\|", "|") for part in parts]


def _turned(grid: _Grid) -> _Grid:
    """Columns for rows; each keeps the line of the heads, since its figures stand on several."""
    kept = [row for row in grid.cells if not _is_rule(row)]
    width = max((len(row) for row in kept), default=0)
    if len(kept) < 2 or width < 2:
        return _Grid()
    padded = [row + [""] * (width - len(row)) for row in kept]
    return _Grid([grid.numbers[0]] * width, [list(column) for column in zip(*padded, strict=True)])


def _is_rule(cells: Sequence[str]) -> bool:
    return bool(cells) and all(_RULE.fullmatch(cell) for cell in cells)


def _tables_of(grid: _Grid) -> list[Table]:
    tables: list[Table] = []
    start = 0
    while start < len(grid.cells):
        header = _header(grid, start)
        if header is None:
            start += 1
            continue
        heads, found, first = header
        end = first
        while end < len(grid.cells) and _header(grid, end) is None:
            end += 1
        lines = range(first, end)
        body = [(grid.numbers[i], grid.cells[i]) for i in lines if not _is_rule(grid.cells[i])]
        if _holds_figures(found, body):
            tables.append(_table(grid.numbers[start], heads, found, body))
        start = end
    return tables


def _header(grid: _Grid, at: int) -> tuple[list[str], list[Column], int] | None:
    """Heads, their columns and the first row below, if a table begins at this row: of one line or of two."""
    heads = grid.cells[at]
    found = columns(heads)
    below = next((i for i in range(at + 1, len(grid.cells)) if not _is_rule(grid.cells[i])), None)
    if below is not None and "" in heads[1:] + grid.cells[below][:1]:
        joined = _joined(heads, grid.cells[below], found)
        if joined is not None and len(columns(joined)) > len(found) and is_header(joined, columns(joined)):
            return joined, columns(joined), below + 1
    return (heads, found, at + 1) if is_header(heads, found) else None


def _joined(top: Sequence[str], sub: Sequence[str], found: Sequence[Column]) -> list[str] | None:
    """Two lines of heads as one, a merged cell repeated; null where the second holds figures, and so is no head."""
    if any(read_cell(cell).number is not None for cell in top):
        return None
    figures = {i: cell for i, cell in enumerate(sub) if read_cell(cell).number is not None}
    whole = all(re.fullmatch(r"[0-9]{1,2}", cell) for cell in figures.values())
    if not whole or any(c.index in figures and c.kind is not Kind.RATE for c in found):
        return None
    width = max(len(top), len(sub))
    filled, joined = "", []
    for upper, lower in zip([*top, *[""] * (width - len(top))], [*sub, *[""] * (width - len(sub))], strict=True):
        filled = upper or (filled if lower else "")
        joined.append(f"{filled} {lower}".strip())
    return joined


def _holds_figures(found: Sequence[Column], body: Sequence[tuple[int, list[str]]]) -> bool:
    """A table that defines acceptance length and rate in words is none of figures."""
    cells = [read_cell(row[c.index]) for _, row in body for c in found if c.index < len(row)]
    return any(cell.trouble is None or re.search("[0-9]", cell.text) for cell in cells)


def _table(line: int, heads: list[str], found: list[Column], body: Sequence[tuple[int, list[str]]]) -> Table:
    groups = _groups(found)
    named = {column.index for column in found}
    free = [i for i in range(len(heads)) if i not in named]
    before = [i for i in free if i < min(named)]
    label_head = " / ".join(heads[i] for i in before or free if heads[i])
    if groups is None:
        rows = tuple(Row(number, _label(cells, before, free), None, None, ()) for number, cells in body)
        return Table(line, 0, label_head, rows, "columns of one kind repeat in no plain order; split the table")
    measured = [(group, _percents(group, body)) for group in groups]
    rows = tuple(
        _row(number, cells, len(heads), group, percents, _label(cells, before, free), len(groups) > 1)
        for number, cells in body
        for group, percents in measured
    )
    return Table(line, _deepest(groups[0]), label_head, rows)


def _groups(found: Sequence[Column]) -> list[list[Column]] | None:
    """Several measurements side by side, each with the same columns in the same order; null where they differ."""
    groups: list[list[Column]] = [[]]
    for column in found:
        if any((c.kind, c.position) == (column.kind, column.position) for c in groups[-1]):
            groups.append([])
        groups[-1].append(column)
    kinds = {tuple((c.kind, c.position) for c in group) for group in groups}
    return groups if len(kinds) == 1 else None


def _percents(group: Sequence[Column], body: Sequence[tuple[int, list[str]]]) -> dict[Kind, bool]:
    """Whether numbers without a sign are percents: the middle one is above 1, so that one odd cell decides nothing."""
    percents = {}
    for kind in (Kind.RATE, Kind.POSITION):
        indices = [column.index for column in group if column.kind is kind]
        cells = [read_cell(row[i]) for _, row in body for i in indices if i < len(row)]
        bare = [cell.number for cell in cells if cell.number is not None and not cell.percent]
        percents[kind] = bool(bare) and median(bare) > 1
    return percents


def _label(cells: Sequence[str], before: Sequence[int], free: Sequence[int]) -> str:
    named = [cells[i] for i in before if i < len(cells) and cells[i]]
    if named:
        return " / ".join(named)
    return next((cells[i] for i in free if i < len(cells) and cells[i] and read_cell(cells[i]).trouble), "")


def _deepest(group: Sequence[Column]) -> int:
    return max((column.position for column in group), default=0)


def _row(
    line: int,
    cells: list[str],
    width: int,
    group: Sequence[Column],
    percents: dict[Kind, bool],
    label: str,
    side_by_side: bool,
) -> Row:
    positions: list[Printed | None] = [None] * _deepest(group)
    name = group[0].head if side_by_side else ""
    if any(cells[width:]):
        unread = f"{len(cells)} cells under {width} heads: none was read"
        return Row(line, label, None, None, tuple(positions), None, (unread,), name)
    figures: dict[Kind, Printed | None] = {}
    unread_cells: list[str] = []
    for column in group:
        cell = read_cell(cells[column.index]) if column.index < len(cells) else Cell("")
        if column.kind is Kind.LENGTH and cell.percent:
            cell = Cell(cell.text, trouble="a length is no percentage")
        if cell.trouble:
            unread_cells.append(f"{column.head} {cell.text!r} was not read: {cell.trouble}")
        percent = cell.percent or column.percent or percents.get(column.kind, False)
        figure = printed(cell, percent=percent and column.kind in (Kind.RATE, Kind.POSITION))
        if column.kind is Kind.POSITION:
            positions[column.position - 1] = figure
        else:
            figures[column.kind] = figure
    return Row(
        line=line,
        label=label,
        length=figures.get(Kind.LENGTH),
        rate=figures.get(Kind.RATE),
        positions=tuple(positions),
        drafts=_count(figures.get(Kind.DRAFTS)),
        unread=tuple(unread_cells),
        group=name,
    )


def _count(figure: Printed | None) -> int | None:
    whole = figure is not None and figure.value.denominator == 1 and 1 <= figure.value <= _MOST_DRAFTS
    return int(figure.value) if figure is not None and whole else None
