"""spec-eval serve."""

import typer

from spec_eval.cli import serve_emulator


def register(app: typer.Typer) -> None:
    """Add the verb."""
    group = typer.Typer(help="Start a server and keep it running.", no_args_is_help=True)
    group.command("emulator")(serve_emulator.emulator)
    app.add_typer(group, name="serve")
