"""A report on a terminal."""

from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spec_eval.render import words
from spec_eval.render.grid import grids
from spec_eval.tables import RunReport

WIDTH = 160


def make(*, stderr: bool = False) -> Console:
    """A terminal as wide as it is, and plenty of room where the output goes elsewhere."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=WIDTH)


def show(reports: Sequence[RunReport], console: Console) -> None:
    """The same figures as in Markdown; where nobody looks at a terminal, tables keep their full width."""
    for report in reports:
        console.print(Text(words.printable(words.heading(report)), style="bold"))
        for name, text in words.header(report):
            console.print(Text.assemble((f"{words.printable(name)}: ", "dim"), words.printable(text)), soft_wrap=True)
        for heading, rows in report.tables:
            if heading:
                console.print(Text(heading, style="bold"))
            for grid in grids(report, rows):
                console.print(table(*grid))
        for definition in words.DEFINITIONS:
            console.print(Text(definition, style="dim"), soft_wrap=True)
        for warning in report.warnings:
            console.print(
                Text.assemble((f"{warning.code}: ", "yellow"), words.printable(f"{warning.message}; {warning.remedy}")),
                soft_wrap=True,
            )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Labels to the left, numbers to the right."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        shown.add_column(column, justify="left" if column in ("", "requests", "arm") else "right", overflow="fold")
    for row in rows:
        shown.add_row(*(Text("".join(c for c in cell if c.isprintable())) for cell in row))
    return shown


def plain(columns: list[str], rows: list[list[str]]) -> str:
    """The same table as text for a file, the same wherever it is made."""
    with StringIO() as stream:
        Console(file=stream, width=WIDTH, force_terminal=False, color_system=None).print(table(columns, rows))
        return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())
