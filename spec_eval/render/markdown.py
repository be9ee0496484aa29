"""A report as Markdown that renders on the hub and on GitHub."""

from collections.abc import Iterable, Sequence

from spec_eval.guards import Warning  # noqa: A004 # the field's word for it
from spec_eval.render import words
from spec_eval.render.grid import details, grids
from spec_eval.tables import RunReport

_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|~$@"} | {"\n": " ", "\r": " "})
# GitHub makes links of bare addresses; a backslash inside leaves them text.
_ADDRESSES = (("://", "\\://"), ("www.", "www\\."))


def escape(text: str) -> str:
    """Text from outside, as text: it may not open a link, a table cell or a tag."""
    plain = "".join(c if c.isprintable() or c == "\n" else " " for c in text).translate(_SPECIAL)
    for address, dead in _ADDRESSES:
        plain = plain.replace(address, dead)
    return plain


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a pipe table: label to the left, numbers to the right. Labels are escaped here, other cells are not."""
    return [
        f"| {' | '.join(columns)} |",
        f"| {' | '.join([':--', *['--:'] * (len(columns) - 1)])} |",
        *(f"| {' | '.join([escape(row[0]), *row[1:]])} |" for row in rows),
    ]


def facts_table(columns: tuple[str, str], facts: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of a pipe table of names and texts."""
    return [
        f"| {' | '.join(columns)} |",
        "| :-- | :-- |",
        *(f"| {escape(name)} | {escape(text)} |" for name, text in facts),
    ]


def named(facts: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of a list of names and texts."""
    return [f"- **{escape(name)}**: {escape(text)}" for name, text in facts]


def warned(warnings: Iterable[Warning]) -> list[str]:
    """Lines of a list of warnings."""
    return [f"- `{w.code}`: {escape(w.message)}; {escape(w.remedy)}" for w in warnings]


def render(reports: Sequence[RunReport], hardware: str | None = None) -> str:
    """Everything that is known, one section a run. hardware: as the user states it."""
    return "\n".join(_section(report, hardware) for report in reports)


def _section(report: RunReport, hardware: str | None) -> str:
    lines = [f"## {escape(words.heading(report))}", ""]
    lines += [f"- {definition}" for definition in (*words.DEFINITIONS, *words.DETAILS)]
    lines += named(words.header(report, hardware))
    for heading, rows in report.tables:
        lines += ["", f"### {escape(heading)}"] if heading else []
        for grid in (*grids(report, rows), *details(report, rows)):
            lines += ["", *table(*grid)]
    if report.warnings:
        lines += ["", "Warnings:", "", *warned(report.warnings)]
    return "\n".join(lines) + "\n"
