"""What `report` and `plot` do with throughput runs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spec_eval.cli.output import say
from spec_eval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spec_eval.store.windows import WindowFolder


def all_throughput(paths: list[Path]) -> bool:
    """Whether these are throughput runs; UsageError where some are and some are not."""
    from spec_eval.store import kind_of

    kinds = {path: kind_of(path) for path in paths}
    if len(set(kinds.values())) > 1:
        one = next(path for path, kind in kinds.items() if kind is not None)
        raise UsageError(f"{one}: a throughput run among runs of requests; give those of one kind at a time")
    return any(kind is not None for kind in kinds.values())


def report(
    paths: list[Path], form: str | None, output: Path | None, baseline: Path | None = None, *, partial: bool
) -> None:
    """The tables of throughput runs; the exit code as for any report."""
    from spec_eval import curves
    from spec_eval.cli.report import on_terminal, put
    from spec_eval.render import console, throughput
    from spec_eval.store.windows import WindowFolder

    folders = [WindowFolder(path) for path in paths]
    found = curves.read(folders, WindowFolder(baseline) if baseline is not None else None)
    if form is None and output is None and on_terminal():
        throughput.show(found, console.make())
    else:
        renderers = {"md": throughput.markdown, "json": throughput.document, "csv": throughput.table_csv}
        put(renderers[form or "md"](found), output)
    _judge(folders, partial=partial)


def plot(
    paths: list[Path],
    output: Path,
    baseline: Path | None,
    *,
    spread: bool,
    aiperf: Path | None,
    with_aiperf: bool,
    partial: bool,
) -> None:
    """A figure for each data set, and the table against the baseline. Prints the files."""
    from spec_eval import curves
    from spec_eval.render import throughput
    from spec_eval.render.figures import curve_sheets
    from spec_eval.render.words import printable
    from spec_eval.store.windows import WindowFolder

    if aiperf is not None and not with_aiperf:
        raise UsageError("--aiperf: for --renderer aiperf; give that too, or drop it")
    if spread and with_aiperf:
        raise UsageError("--spread: --renderer aiperf draws no bars; drop one of them")
    folders = [WindowFolder(path) for path in paths]
    found = curves.read(folders, WindowFolder(baseline) if baseline is not None else None)
    drawn = [comparison for comparison in found if any(arm.by_level for arm in comparison.arms)]
    for comparison in found:
        without = [throughput.no_baseline(comparison)] if comparison.lacks_baseline else []
        for line in (*curve_sheets.gaps(comparison), *comparison.differences, *without):
            print(printable(f"spec-eval: {comparison.dataset}: {line}"), file=sys.stderr)
    program = None
    if with_aiperf:
        from spec_eval.drivers import aiperf as driver

        program = driver.find(aiperf)
    for path in curve_sheets.write(drawn, output, spread=spread, aiperf=program.path if program else None):
        say(str(path))
    _judge(folders, partial=partial)


def _judge(folders: "Sequence[WindowFolder]", *, partial: bool) -> None:
    """Raise what keeps the curves from being whole; what there is was shown.

    Figures that are not there are missed where no run has any.
    """
    from spec_eval import verdict

    found = [verdict.window_shortfalls(folder) for folder in folders]
    missed = [short for shorts in found for short in shorts if short.cause in verdict.NO_FIGURE]
    if len(missed) == len(folders):
        raise missed[0].error()
    for shorts in found:
        short = verdict.first(shorts, but=verdict.NO_FIGURE)
        if short is not None and not partial:
            raise short.error(f"{short.remedy}, or accept it with --partial")
