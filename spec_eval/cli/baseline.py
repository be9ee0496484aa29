"""spec-eval baseline."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("baseline")(baseline)


def baseline(
    run: Annotated[Path, typer.Argument(help="a run folder", metavar="RUN")],
    output: Annotated[Path, typer.Option("-o", "--output", help="the file, as results/baselines/NAME.json")],
) -> None:
    """Keep the integers and the settings of a run in one file, small enough for git, to compare later runs with."""
    from spec_eval import baseline as keeping
    from spec_eval import sides
    from spec_eval.store import RunFolder
    from spec_eval.store.folder import write_text

    text = keeping.text(sides.of_run(RunFolder.open(run)))
    with contextlib.suppress(OSError):  # `write_text` says what is the matter
        output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, text)
