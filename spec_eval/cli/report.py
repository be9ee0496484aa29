"""spec-eval report."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_eval.errors import NoVerdict, RunNotWhole

if TYPE_CHECKING:
    from spec_eval.tables import RunReport


class Format(StrEnum):
    """Of the report."""

    MD = "md"
    JSON = "json"
    CSV = "csv"


class By(StrEnum):
    """What a row stands for."""

    CATEGORY = "category"
    DATASET = "dataset"
    TURN = "turn"
    BIN = "bin"
    OFFICIAL_BIN = "official-bin"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("report")(report)


def report(
    runs: Annotated[list[Path], typer.Argument(help="run folders", metavar="RUN...")],
    form: Annotated[Format | None, typer.Option("--format", help="md on a file, a table on a terminal")] = None,
    by: Annotated[By | None, typer.Option(help="what a row stands for; as the suite lays it out if not given")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="file to write instead of standard output")
    ] = None,
    partial: Annotated[bool, typer.Option("--partial", help="an unfinished run is no error")] = False,
) -> None:
    """Figures of run folders: acceptance length, rate, positions, and what became of every request."""
    from spec_eval import tables
    from spec_eval.store import RunFolder

    reports = [tables.build(RunFolder.open(path), by.value if by else None) for path in runs]
    if form is None and output is None and _on_terminal():
        from spec_eval.render import console

        console.show(reports, console.make())
    else:
        _put(_rendered(form or Format.MD, reports), output)
    _judge(runs, reports, partial)


def _judge(paths: list[Path], reports: list["RunReport"], partial: bool) -> None:
    """Raise what keeps the figures from being the whole truth; they are printed already."""
    from spec_eval import guards

    for path, one in zip(paths, reports, strict=True):
        if not one.whole and not partial:
            raise RunNotWhole(f"{path}: not whole; finish with `run --resume`, or accept it with --partial")
        short = guards.shortfall(
            [one.overall.outcome], one.plan.max_failures, by_request=not guards.is_server_wide(one.plan)
        )
        if short and not partial:
            raise RunNotWhole(f"{path}: {short}; accept it with --partial")
    if not any(one.overall.figures.steps for one in reports):
        raise NoVerdict("no verification step was measured, so there is no figure; see the requests table for why")


def _rendered(form: Format, reports: list["RunReport"]) -> str:
    if form is Format.JSON:
        from spec_eval.render import json

        return json.render(reports)
    if form is Format.CSV:
        from spec_eval.render import csv

        return csv.render(reports)
    from spec_eval.render import markdown

    return markdown.render(reports)


def _on_terminal() -> bool:
    import sys

    return sys.stdout.isatty()


def _put(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="")
        return
    from spec_eval.store.folder import write_text

    write_text(output, text)
