"""spec-eval list."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from spec_eval.cli.output import say

if TYPE_CHECKING:
    from spec_eval.suite import DataSpec


class Thing(StrEnum):
    """What can be listed."""

    SUITES = "suites"
    ENGINES = "engines"
    PROFILES = "profiles"
    RECIPES = "recipes"


class Format(StrEnum):
    """Of the list."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("list")(show)


def show(
    thing: Annotated[Thing, typer.Argument(help="what to list")],
    form: Annotated[Format, typer.Option("--format")] = Format.TEXT,
) -> None:
    """What is shipped."""
    import json

    rows = {Thing.SUITES: _suites, Thing.ENGINES: _engines, Thing.PROFILES: _profiles, Thing.RECIPES: _recipes}[thing]()
    if form is Format.JSON:
        say(json.dumps(rows, indent=2))
        return
    for row in rows:
        facts = {name: value for name, value in row.items() if name != "name" and value is not None}
        say(f"{row['name']}: {'; '.join(_words(name, value) for name, value in facts.items())}")


def _words(name: str, value: object) -> str:
    label = name.replace("_", " ")
    if isinstance(value, bool):
        return label if value else f"not {label}"
    return f"{value}" if name in ("description", "cells", "counters", "source") else f"{label} {value}"


def _suites() -> list[dict[str, object]]:
    from spec_eval.suite import CompoundSuite, shipped_suites

    rows: list[dict[str, object]] = []
    for file in shipped_suites():
        suite = file.suite
        if isinstance(suite, CompoundSuite):
            members = ", ".join(dict.fromkeys(cell.suite for cell in suite.cells))
            cells = f"{len(suite.cells)} cells of {members}"
            rows.append({"name": suite.name, "description": suite.description, "cells": cells})
            continue
        data = suite.data
        rows.append(
            {
                "name": suite.name,
                "description": suite.description,
                "rows": data.rows,
                "turns": "several" if suite.prompt.turns else "one",
                "source": data.hub or "shipped with spec-eval",
                "revision": data.revision,
                "licence": data.licence,
                "gated": data.gated,
                "on_this_machine": _is_here(data),
            }
        )
    return rows


def _is_here(data: "DataSpec") -> bool:
    from spec_eval.prompts import hub

    return data.file is not None or hub.is_here(data)


def _engines() -> list[dict[str, object]]:
    from spec_eval.engines import ENGINES

    rows: list[dict[str, object]] = [{"name": e.name, "counters": e.remedy} for e in ENGINES.values()]
    rows.append({"name": "embedded", "counters": "llama.cpp started by spec-eval itself; records say llamacpp"})
    return rows


def _profiles() -> list[dict[str, object]]:
    from spec_eval.profiles import by_length, published

    return [
        {
            "name": profile.name,
            "acceptance_length": profile.acceptance_length,
            "k": profile.k,
            "temperature": profile.temperature,
            "source": profile.source,
        }
        for profile in (*published().values(), *by_length().values())
    ]


def _recipes() -> list[dict[str, object]]:
    from spec_eval import recipe

    return [
        {
            "name": one.name,
            "description": one.description,
            "engine": one.engine,
            "target": one.target.name,
            "drafter": one.drafter.name,
            "k": one.drafter.k,
        }
        for one in recipe.shipped_recipes()
    ]
