"""spec-eval doctor."""

from enum import StrEnum
from typing import Annotated

import typer

from spec_eval.errors import CheckFailed, EnvironmentFault


class Format(StrEnum):
    """Of the findings."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("doctor")(doctor)


def doctor(
    engine: Annotated[str, typer.Option(help="the server's engine")],
    base_url: Annotated[str, typer.Option(help="where the server is, as http://127.0.0.1:8000/v1")],
    model: Annotated[str | None, typer.Option(help="served model name")] = None,
    k: Annotated[int | None, typer.Option(min=1, help="draft tokens a step that you expect")] = None,
    form: Annotated[Format, typer.Option("--format")] = Format.TEXT,
    api_key_env: Annotated[str, typer.Option(help="environment variable with the server's key")] = "OPENAI_API_KEY",
) -> None:
    """Ask a server, with one real request, whether a run against it would measure anything."""
    import json
    from dataclasses import asdict

    from spec_eval import engines
    from spec_eval.doctor import probe
    from spec_eval.engines.endpoint import Endpoint, key_from_environment

    adapter = engines.find(engine)
    endpoint = Endpoint.at(base_url, key_from_environment(api_key_env))
    try:
        found = probe(endpoint, adapter, model=model, k=k)
    except EnvironmentFault as fault:
        raise CheckFailed(str(fault)) from fault
    counters = "handed over" if adapter.by_request else "server-wide only"
    facts = {"engine": engine, "model": found.model, "counters": counters, **asdict(found.identity)}
    if form is Format.JSON:
        print(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        print(f"{name.replace('_', ' ')}: {'not known' if value is None else value}")
