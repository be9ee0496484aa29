"""spec-eval report."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_eval.cli.output import say
from spec_eval.errors import UsageError

if TYPE_CHECKING:
    from spec_eval.loaded import LoadedRun
    from spec_eval.render.styles.document import Run
    from spec_eval.tables import RunReport


class Format(StrEnum):
    """Of the report."""

    MD = "md"
    JSON = "json"
    CSV = "csv"


class Style(StrEnum):
    """Of a report in Markdown."""

    FULL = "full"
    DFLASH2 = "dflash2"
    SPECULATORS = "speculators"


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
    style: Annotated[
        Style | None, typer.Option(help="of Markdown: all that is known, or tables in the manner of a model card")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(help="what the server ran on, in your words, for Markdown", metavar="TEXT")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="file to write instead of standard output")
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="throughput run to compare with, one of those given")] = None,
    partial: Annotated[bool, typer.Option("--partial", help="an unfinished run is no error")] = False,
) -> None:
    """Figures of run folders: acceptance length, rate, positions, and what became of every request."""
    from spec_eval import tables
    from spec_eval.cli import windows
    from spec_eval.loaded import load
    from spec_eval.store import RunFolder

    if windows.all_throughput(runs):
        options = {"--by": by, "--style": style, "--hardware": hardware}
        if given := [name for name, value in options.items() if value is not None]:
            raise UsageError(f"{', '.join(given)}: for runs of requests, and these are throughput runs; drop it")
        windows.report(runs, None if form is None else form.value, output, baseline, partial=partial)
        return
    if baseline is not None:
        raise UsageError("--baseline: for throughput runs; `spec-eval compare RUN_A RUN_B` compares runs of requests")
    if form in (Format.JSON, Format.CSV):
        if style is not None:
            raise UsageError(f"--style {style.value} is for Markdown, not for --format {form.value}; drop one of them")
        if hardware is not None:
            raise UsageError(f"--hardware is for Markdown, not for --format {form.value}; drop one of them")
    card = None if style is Style.FULL else style
    if card is not None and by not in (None, By.BIN, By.OFFICIAL_BIN):
        raise UsageError(f"--style {style} lays its rows out as the suite does; drop --by {by}, or give --by bin")
    folders = [RunFolder.open(path) for path in runs]
    if card is not None:
        laid_out = [_of_card(card, load(folder), by) for folder in folders]
        put(_card(card, laid_out, by, hardware), output)
        judge([one.report for one in laid_out], partial)
        return
    reports = [tables.build(folder, by.value if by else None) for folder in folders]
    if form is not None or output is not None or style is not None or hardware is not None or not on_terminal():
        put(_rendered(form or Format.MD, reports, hardware), output)
    else:
        from spec_eval.render import console

        console.show(reports, console.make())
    judge(reports, partial)


def _of_card(style: Style, run: "LoadedRun", by: By | None) -> "Run":
    """The views that a card style shows; rows by prompt length where they are asked for, or where a card has them."""
    from spec_eval import tables
    from spec_eval.render import facts
    from spec_eval.render.styles.document import Run

    long = style is Style.SPECULATORS and any(facts.is_mrcr(run.plan, cell) for cell in run.plan.cells)
    if by is None and not long:
        return Run(*tables.views(run, None))
    return Run(*tables.views(run, None, by.value if by else "bin", "dataset"))


def _card(style: Style, runs: list["Run"], by: By | None, hardware: str | None) -> str:
    """The document of a card style."""
    from spec_eval.render.styles import dflash2, speculators

    if style is Style.DFLASH2:
        return dflash2.render(runs, hardware)
    return speculators.render(runs, hardware, all_bins=by is not None)


def judge(reports: list["RunReport"], partial: bool) -> None:
    """Raise what keeps the figures from being the whole truth; they are printed already.

    `partial` accepts all but figures that are not there. Those are missed only where no run has any.
    """
    from spec_eval import verdict

    for one in reports:
        short = verdict.first(one.shortfalls, but=verdict.NO_FIGURE)
        if short is not None and not partial:
            raise short.error(f"{short.remedy}, or accept it with --partial")
    missed = [short for one in reports for short in one.shortfalls if short.cause in verdict.NO_FIGURE]
    if len(missed) == len(reports):
        raise next((one for one in missed if one.cause is verdict.Cause.NO_STEP), missed[0]).error()


def _rendered(form: Format, reports: list["RunReport"], hardware: str | None) -> str:
    if form is Format.JSON:
        from spec_eval.render import json

        return json.render(reports)
    if form is Format.CSV:
        from spec_eval.render import csv

        return csv.render(reports)
    from spec_eval.render import markdown

    return markdown.render(reports, hardware)


def on_terminal() -> bool:
    """Whether standard output is one."""
    import sys

    return sys.stdout is not None and sys.stdout.isatty()


def put(text: str, output: Path | None) -> None:
    """On standard output, or into a file."""
    if output is None:
        say(text, end="")
        return
    from spec_eval.store.folder import write_text

    write_text(output, text)
