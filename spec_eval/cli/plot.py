"""spec-eval plot."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from spec_eval.cli.output import say
from spec_eval.cli.report import judge
from spec_eval.errors import NoVerdict, UsageError


class Renderer(StrEnum):
    """What draws the figures."""

    MATPLOTLIB = "matplotlib"
    AIPERF = "aiperf"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("plot")(plot)


def plot(
    runs: Annotated[list[Path], typer.Argument(help="run folders, one arm each", metavar="RUN...")],
    output: Annotated[Path, typer.Option("-o", "--output", help="folder for the figures")] = Path("plots"),
    renderer: Annotated[Renderer, typer.Option(help="aiperf: for throughput figures only")] = Renderer.MATPLOTLIB,
    baseline: Annotated[
        Path | None, typer.Option(help="of throughput runs, the one to compare with; else the one without a drafter")
    ] = None,
    spread: Annotated[bool, typer.Option("--spread", help="show the repeats of throughput runs as bars")] = False,
    aiperf: Annotated[Path | None, typer.Option(help="AIPerf's executable, for --renderer aiperf")] = None,
    partial: Annotated[bool, typer.Option("--partial", help="an unfinished run is no error")] = False,
) -> None:
    """Figures of run folders: acceptance by position, category and prompt length, or throughput. Prints the files."""
    from spec_eval.cli import windows

    if windows.all_throughput(runs):
        with_aiperf = renderer is Renderer.AIPERF
        windows.plot(runs, output, baseline, spread=spread, aiperf=aiperf, with_aiperf=with_aiperf, partial=partial)
        return
    options = {"--baseline": baseline, "--spread": spread or None, "--aiperf": aiperf}
    if given := [name for name, value in options.items() if value is not None]:
        raise UsageError(f"{', '.join(given)}: for throughput runs, and these are runs of requests; drop it")
    if renderer is Renderer.AIPERF:
        raise UsageError("--renderer aiperf draws throughput figures only; drop it for acceptance figures")
    from spec_eval.render.figures import charts, sheets
    from spec_eval.store import RunFolder

    arms = charts.read([RunFolder.open(path) for path in runs])
    drawn, notes = charts.all_of(arms)
    for note in notes:
        print(f"spec-eval: {note}", file=sys.stderr)
    for path in sheets.write(arms, drawn, notes, output) if drawn else ():
        say(str(path))
    judge([arm.report for arm in arms], partial)
    if not drawn:
        raise NoVerdict("nothing to draw; the lines above say why")
