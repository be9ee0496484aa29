"""spec-eval compare."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from spec_eval.cli.output import say
from spec_eval.errors import NoVerdict


class Format(StrEnum):
    """Of the comparison."""

    TEXT = "text"
    MD = "md"
    JSON = "json"


class By(StrEnum):
    """What a row stands for."""

    CATEGORY = "category"
    DATASET = "dataset"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("compare")(compare)


def compare(
    a: Annotated[Path, typer.Argument(help="a run folder, a baseline file, or a JSON object of a run's settings")],
    b: Annotated[Path, typer.Argument(help="the same, to compare with it")],
    allow: Annotated[
        list[str] | None, typer.Option(help="a setting that may differ, by its key", metavar="KEY")
    ] = None,
    by: Annotated[By, typer.Option(help="what a row stands for")] = By.CATEGORY,
    form: Annotated[Format, typer.Option("--format")] = Format.TEXT,
) -> None:
    """How far the acceptance of run B differs from run A, conversation by conversation."""
    import json

    from spec_eval import compare as comparing
    from spec_eval import sides
    from spec_eval.render import compare as rendered

    found = comparing.compare(sides.load(a), sides.load(b), by=by.value, allow=allow or ())
    if form is Format.JSON:
        say(json.dumps(rendered.document(found), indent=2, allow_nan=False))
    else:
        say(rendered.render(found) if form is Format.MD else rendered.text(found), end="")
    if found.overall is None:
        raise NoVerdict(
            f"not comparable: {found.comparability.sentence()}; "
            "measure again at equal settings, or let a setting differ with --allow KEY"
        )
    if not found.overall.enough:
        raise NoVerdict(
            f"only {found.overall.used} of {found.overall.used + found.overall.left_out} conversations were measured "
            "whole in both, fewer than 95%: no verdict; look into failed answers, or measure the same prompts"
        )
