"""A report as Markdown that renders on the hub and on GitHub."""

from collections.abc import Sequence

from spec_eval.render import words
from spec_eval.render.grid import grids
from spec_eval.tables import RunReport

_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|~$"} | {"\n": " ", "\r": " "})


def escape(text: str) -> str:
    """Text from outside, as text: it may not open a link, a table cell or a tag."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text).translate(_SPECIAL)


def render(reports: Sequence[RunReport]) -> str:
    """One section a run."""
    return "\n".join(_section(report) for report in reports)


def _section(report: RunReport) -> str:
    lines = [f"## {escape(words.heading(report))}", ""]
    lines += [f"- {definition}" for definition in words.DEFINITIONS]
    lines += [f"- **{escape(name)}**: {escape(text)}" for name, text in words.header(report)]
    for heading, rows in report.tables:
        lines += ["", f"### {escape(heading)}"] if heading else []
        for grid in grids(report, rows):
            lines += ["", *_table(*grid)]
    if report.warnings:
        lines += ["", "Warnings:", ""]
        lines += [f"- `{w.code}`: {escape(w.message)}; {escape(w.remedy)}" for w in report.warnings]
    return "\n".join(lines) + "\n"


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    """Label to the left, numbers to the right."""
    return [
        f"| {' | '.join(columns)} |",
        f"| {' | '.join([':--', *['--:'] * (len(columns) - 1)])} |",
        *(f"| {' | '.join([escape(row[0]), *row[1:]])} |" for row in rows),
    ]
