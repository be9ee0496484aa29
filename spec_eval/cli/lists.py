"""spec-eval list."""

from enum import StrEnum
from typing import Annotated

import typer


class Thing(StrEnum):
    """What can be listed."""

    SUITES = "suites"
    ENGINES = "engines"
    PROFILES = "profiles"


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

    rows = {Thing.SUITES: _suites, Thing.ENGINES: _engines, Thing.PROFILES: _profiles}[thing]()
    if form is Format.JSON:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(f"{row['name']}: " + ", ".join(f"{value}" for name, value in row.items() if name != "name" and value))


def _suites() -> list[dict[str, object]]:
    from spec_eval.suite import shipped_suites

    return [
        {
            "name": file.suite.name,
            "description": file.suite.description,
            "rows": file.suite.data.rows,
            "source": file.suite.data.hub or "shipped with spec-eval",
            "revision": file.suite.data.revision,
            "licence": file.suite.data.licence,
            "gated": file.suite.data.gated,
        }
        for file in shipped_suites()
    ]


def _engines() -> list[dict[str, object]]:
    from spec_eval.engines import ENGINES

    rows: list[dict[str, object]] = [{"name": e.name, "counters": e.remedy} for e in ENGINES.values()]
    rows.append({"name": "embedded", "counters": "llama.cpp started by spec-eval itself; records say llamacpp"})
    return rows


def _profiles() -> list[dict[str, object]]:
    from spec_eval.profiles import published

    return [
        {
            "name": profile.name,
            "acceptance_length": profile.acceptance_length,
            "k": profile.k,
            "temperature": profile.temperature,
            "source": profile.source,
        }
        for profile in published().values()
    ]
