"""spec-eval check-card."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from spec_eval.cli.output import say
from spec_eval.errors import CheckFailed, NoVerdict


class Format(StrEnum):
    """Of the findings."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("check-card")(check_card)


def check_card(
    file: Annotated[Path, typer.Argument(help="a model card: Markdown, or text with tab-separated tables")],
    form: Annotated[Format, typer.Option("--format")] = Format.TEXT,
) -> None:
    """Whether the acceptance figures that a model card prints can be true, row by row."""
    import json

    from spec_eval import cards
    from spec_eval.cards.checks import Verdict
    from spec_eval.render import card as rendered
    from spec_eval.render.words import printable

    card = cards.check(file)
    if form is Format.JSON:
        say(json.dumps(rendered.document(card), indent=2, allow_nan=False))
    elif card.tables:
        say(rendered.text(card), end="")
    if not card.tables:
        raise NoVerdict(
            f"{file}: no table of acceptance lengths, rates or positions; tables are read with | or tabs between cells"
        )
    judged = [row for table in card.tables for row in table.rows]
    false = [printable(row.row.name) for row in judged if row.verdict is Verdict.IMPOSSIBLE]
    if false:
        names = ", ".join(false[:5]) + (", …" if len(false) > 5 else "")
        raise CheckFailed(
            f"{file}: {len(false)} of {len(judged)} rows cannot be true ({names}); measure or copy them again"
        )
    if not card.count(Verdict.HOLDS):
        raise NoVerdict(f"{file}: no row prints enough to be checked; print positions or a rate beside the length")
