"""spec-eval serve."""

import contextlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from spec_eval.cli import serve_emulator
from spec_eval.cli.output import say

_RECIPE = "recipe"


class _Serve(TyperGroup):
    """What is no command of the group is a recipe, or an option of one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Names the command that is left out."""
        named = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if named else [_RECIPE, *args])


def register(app: typer.Typer) -> None:
    """Add the verb."""
    verb = typer.Typer(cls=_Serve, rich_markup_mode=None)
    verb.callback()(_group)
    verb.command(_RECIPE)(serve)
    verb.command("emulator")(serve_emulator.emulator)
    app.add_typer(
        verb, name="serve", help="Start a recipe's server with its counters on: serve RECIPE. Or serve emulator."
    )


def _group() -> None:
    """A group also where it has one command."""


def serve(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="a shipped recipe (see `list recipes`) or a .toml file")
    ],
    engine: Annotated[str | None, typer.Option(help="vllm, sglang or llamacpp; the recipe's first if left out")] = None,
    hardware: Annotated[str | None, typer.Option(help="what to serve it on (see `list hardware`)")] = None,
    model: Annotated[str | None, typer.Option(help="another target: hub name, folder or .gguf file")] = None,
    draft: Annotated[str | None, typer.Option(help="another draft model: hub name, folder or .gguf file")] = None,
    k: Annotated[int | None, typer.Option(min=1, help="draft tokens a step, whichever way the engine counts")] = None,
    variant: Annotated[str | None, typer.Option(help="bf16 or fp8 weights of the recipe's target")] = None,
    host: Annotated[str, typer.Option(help="address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to listen at")] = 8000,
    startup_timeout: Annotated[float, typer.Option(min=1, help="seconds until it must be healthy")] = 3600,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="let the model run code of its own")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print exports and command, start nothing")] = False,
) -> None:
    """Start a recipe's server with its counters on, print its address once it is healthy, end it on Ctrl-C."""
    from spec_eval.serve import Wish
    from spec_eval.serve.foreground import command, hold

    wish = Wish(
        engine=engine,
        hardware=hardware,
        model=model,
        draft=draft,
        k=k,
        variant=variant,
        trust_remote_code=trust_remote_code,
    )
    if dry_run:
        say(command(recipe, wish, host=host, port=port, say=_note))
        return
    # From the moment that its address is out, Ctrl-C is the way to end it, and no fault.
    held = hold(recipe, wish, host=host, port=port, startup_s=startup_timeout, say=_note)
    with held as server, contextlib.suppress(KeyboardInterrupt):
        say(server.base_url)
        server.wait()


def _note(text: str) -> None:
    typer.echo(text, err=True)
