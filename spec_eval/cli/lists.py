"""spec-eval list."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from spec_eval.cli.output import say

if TYPE_CHECKING:
    from spec_eval.recipe import EngineSpec
    from spec_eval.suite import DataSpec


class Thing(StrEnum):
    """What can be listed."""

    SUITES = "suites"
    ENGINES = "engines"
    PROFILES = "profiles"
    RECIPES = "recipes"
    HARDWARE = "hardware"


# Values that say themselves what they are.
_PLAIN = ("description", "cells", "counters", "source", "start")


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

    rows = {
        Thing.SUITES: _suites,
        Thing.ENGINES: _engines,
        Thing.PROFILES: _profiles,
        Thing.RECIPES: _recipes,
        Thing.HARDWARE: _hardware,
    }[thing]()
    if form is Format.JSON:
        say(json.dumps(rows, indent=2))
        return
    for row in rows:
        facts = {name: value for name, value in row.items() if name != "name" and value is not None}
        if thing is Thing.RECIPES:
            facts["engines"] = _places(row["engines"])
        say(f"{row['name']}: {'; '.join(_words(name, value) for name, value in facts.items())}")


def _words(name: str, value: object) -> str:
    label = name.replace("_", " ")
    if isinstance(value, bool):
        return label if value else f"not {label}"
    if isinstance(value, list):
        return f"{label} {', '.join(value)}"
    if isinstance(value, dict):
        return f"{label} {', '.join(f'{key} {part}' for key, part in value.items())}"
    return f"{value}" if name in _PLAIN else f"{label} {value}"


def _suites() -> list[dict[str, object]]:
    from spec_eval.suite import CompoundSuite, ThroughputSuite, shipped_suites

    rows: list[dict[str, object]] = []
    for file in shipped_suites():
        suite = file.suite
        if isinstance(suite, CompoundSuite):
            members = ", ".join(dict.fromkeys(cell.suite for cell in suite.cells))
            cells = f"{len(suite.cells)} cells of {members}"
            rows.append({"name": suite.name, "description": suite.description, "cells": cells})
            continue
        if isinstance(suite, ThroughputSuite):
            window = suite.window
            levels = "/".join(map(str, window.concurrency))
            cells = f"{len(window.cells())} windows of {window.duration_s:g} s at concurrency {levels}"
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

    rows: list[dict[str, object]] = []
    for engine in ENGINES.values():
        drafters = [] if engine.launcher is None else [name for name in engine.launcher.words if name != "none"]
        start = "`serve` starts it" if drafters else "start it yourself"
        rows.append({"name": engine.name, "counters": engine.remedy, "start": start, "drafters": drafters or None})
    embedded = "llama.cpp started by spec-eval itself; records say llamacpp"
    rows.append({"name": "embedded", "counters": embedded, "start": "`run` starts it", "drafters": None})
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

    rows: list[dict[str, object]] = []
    for one in recipe.shipped_recipes():
        drafter, target = one.drafter, one.target
        weights = drafter.model or ("the target itself" if drafter.itself else None)
        if weights is None and drafter.algorithm in recipe.WITH_DRAFT:
            weights = "any, with --draft"
        rows.append(
            {
                "name": one.name,
                "description": one.description,
                "target": target.name if target else "any, with --model",
                "variants": target.variants or None if target else None,
                "drafter": drafter.algorithm,
                "draft_model": weights,
                "k": drafter.k,
                "block": drafter.block,
                "adaptive": drafter.adaptive or None,
                "engines": {name: _on(spec, drafter.k) for name, spec in one.engines.items()},
                "commands_of": one.source,
            }
        )
    return rows


def _places(engines: object) -> str:
    """Engines and hardware of a recipe, in words."""
    assert isinstance(engines, dict)
    words = []
    for engine, on in engines.items():
        cards = on["from_card"] or ()
        places = [f"{name} (the card's command)" if name in cards else name for name in on["hardware"] or ()]
        where = f"on {', '.join(places)}" if places else "on any hardware that it knows"
        at = f" at k {on['k']}" if on["k"] else ""
        words.append(f"{engine}{at} {where}")
    return "; ".join(words)


def _on(spec: "EngineSpec", k: int | None) -> dict[str, object]:
    """k: where this engine has another one. from_card: hardware for which the source prints the command."""
    return {
        "hardware": list(spec.hardware) or None,
        "k": spec.k if spec.k != k else None,
        "from_card": [name for name, on in spec.hardware.items() if on.from_card] or None,
    }


def _hardware() -> list[dict[str, object]]:
    from spec_eval.hardware import shipped_hardware

    return [
        {"name": one.name, "description": one.description, "gpus": one.gpus, "memory_gb": one.memory_gb}
        for one in shipped_hardware()
    ]
