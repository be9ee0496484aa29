"""spec-eval import."""

import contextlib
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from spec_eval.cli.arguments import command_line
from spec_eval.cli.output import say
from spec_eval.errors import UsageError
from spec_eval.records import MOST_DRAFTS


class Source(StrEnum):
    """Whose files they are."""

    CAPTURES = "captures"
    AIPERF = "aiperf"
    VLLM_BENCH = "vllm-bench"


_SOURCES = (
    "captures: response bodies, one JSON object a line; aiperf: the artifact folder of a run or a sweep; "
    "vllm-bench: the result file of `vllm bench serve`"
)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("import")(import_)


def import_(
    context: typer.Context,
    source: Annotated[Source, typer.Argument(help=_SOURCES)],
    path: Annotated[Path, typer.Argument(help="the file or folder")],
    engine: Annotated[str, typer.Option(help="the engine that sent them")],
    k: Annotated[
        int | None, typer.Option(min=1, max=MOST_DRAFTS, help="draft tokens a step, where the source does not tell")
    ] = None,
    drafter: Annotated[str | None, typer.Option(help="the drafter's name, for the report")] = None,
    adaptive: Annotated[bool, typer.Option("--adaptive", help="the server verified only some drafts")] = False,
    out: Annotated[Path, typer.Option(help="where run folders go")] = Path("results"),
    max_failures: Annotated[str, typer.Option(help="share of failed requests that a run may have")] = "5%",
) -> None:
    """Make a run folder, marked imported, of another tool's file. Prints the run folder."""
    from spec_eval import engines, verdict
    from spec_eval.cli.run import share, write_report
    from spec_eval.importers import aiperf, captures, vllm_bench
    from spec_eval.run import importing

    adapter = engines.find(engine)
    if not adapter.by_request:
        raise UsageError(f"--engine {engine}: reads a running server's totals, and recorded answers have none")
    allowed = share(max_failures, "--max-failures")
    match source:
        case Source.CAPTURES:
            imported = captures.read(path, adapter, k=k, nominal_drafts=adaptive)
        case Source.AIPERF:
            imported = aiperf.read(path, adapter, k=k, nominal_drafts=adaptive)
        case Source.VLLM_BENCH:
            if adapter.name != "vllm":
                raise UsageError(f"--engine {engine}: `vllm bench serve` reads vLLM's totals alone; give --engine vllm")
            imported = vllm_bench.read(path, k=k, nominal_drafts=adaptive)
    for note in imported.set_aside:
        print(f"spec-eval: {note}", file=sys.stderr)
    command = command_line(context)
    folder = importing.keep(
        imported,
        path,
        engine=adapter.name,
        k=k,
        drafter=drafter,
        adaptive=adaptive,
        out=out,
        command=command,
        max_failures=allowed,
    )
    with contextlib.suppress(BrokenPipeError):
        say(str(folder.path))
    if (short := verdict.first(write_report(folder).shortfalls)) is not None:
        raise short.error(f"the report is written; {short.remedy}")
