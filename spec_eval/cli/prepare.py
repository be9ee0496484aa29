"""spec-eval prepare."""

import contextlib
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_eval.cli.output import say
from spec_eval.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from spec_eval.prompts.prepare import Published


class DataSet(StrEnum):
    """What can be prepared."""

    SPEED_BENCH = "speed-bench"


class Config(StrEnum):
    """Of SPEED-Bench."""

    QUALITATIVE = "qualitative"
    THROUGHPUT_1K = "throughput_1k"
    THROUGHPUT_2K = "throughput_2k"
    THROUGHPUT_8K = "throughput_8k"
    THROUGHPUT_16K = "throughput_16k"
    THROUGHPUT_32K = "throughput_32k"
    ALL = "all"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("prepare")(prepare)


def prepare(
    data_set: Annotated[DataSet, typer.Argument(help="what to prepare")],
    config: Annotated[Config, typer.Option(help="one config, or all of them")],
    out: Annotated[Path, typer.Option("-o", "--out", help="folder of the prepared files, later given as --data-dir")],
    published: Annotated[
        str | None, typer.Option(help="folder or owner/name@revision of the rows as published; else the suite's pin")
    ] = None,
    sources: Annotated[
        Path | None, typer.Option(help="folder of the sources' files, as owner__name/...; then nothing is fetched")
    ] = None,
    tool: Annotated[
        Path | None, typer.Option(help="checkout of NVIDIA Model-Optimizer, whose preparer is run for whole configs")
    ] = None,
    tool_python: Annotated[
        str | None, typer.Option(help="Python that has the tool's requirements; else this one")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace what is prepared already")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="count the placeholders and stop")] = False,
) -> None:
    """Put texts in place of a data set's placeholders. Prints the files that are ready."""
    match data_set:
        case DataSet.SPEED_BENCH:
            from spec_eval.prompts import prepare as preparing

    configs = preparing.CONFIGS if config is Config.ALL else (config.value,)
    if sources is not None and not sources.is_dir():
        raise UsageError(f"--sources {sources}: no such folder; give the folder that holds owner__name folders")
    runner = preparing.Tool.at(tool, tool_python or sys.executable) if tool is not None else None
    if dry_run:
        for name in configs:
            _forecast(preparing.read(name, published), with_tool=runner is not None)
        return
    if runner is not None and sources is not None:
        print("spec-eval: --sources is not read: with --tool whole configs come from the tool", file=sys.stderr)
    for name in configs:
        preparing.check_target(out, name, force=force)
    missing: list[str] = []
    for name in configs:
        try:
            done = preparing.prepare(preparing.read(name, published), out, sources_dir=sources, tool=runner)
        except EnvironmentFault as error:
            missing.append(str(error))
            if isinstance(error, preparing.StillMasked):
                continue
            break
        for note in done.notes:
            print(f"spec-eval: {note}", file=sys.stderr)
        with contextlib.suppress(BrokenPipeError):  # a reader that left is no reason to leave the others undone
            say(str(done.path))
    if missing:
        raise EnvironmentFault("; ".join(missing))


def _forecast(published: "Published", *, with_tool: bool) -> None:
    from spec_eval.prompts import prepare as preparing

    say(f"{published.config}: {len(published.rows)} rows, {len(published.waiting)} placeholders")
    for left in preparing.outlook(published):
        say(f"  {left.words}")
    if with_tool and published.waiting:
        say("  with --tool the whole config comes from it")
