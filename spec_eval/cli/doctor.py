"""spec-eval doctor."""

from enum import StrEnum
from typing import Annotated

import typer

from spec_eval.cli.output import say
from spec_eval.errors import CheckFailed
from spec_eval.records import MOST_DRAFTS


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
    k: Annotated[int | None, typer.Option(min=1, max=MOST_DRAFTS, help="draft tokens a step that you expect")] = None,
    form: Annotated[Format, typer.Option("--format")] = Format.TEXT,
    api_key_env: Annotated[
        str | None,
        typer.Option(help="environment variable with the server's key; else OPENAI_API_KEY, where it is set"),
    ] = None,
) -> None:
    """Ask a server, in five requests, whether a run against it would measure anything."""
    import json
    from dataclasses import asdict

    from spec_eval import engines
    from spec_eval.doctor import Status, examine
    from spec_eval.engines.endpoint import Endpoint, key_from_environment
    from spec_eval.render.words import printable

    adapter = engines.find(engine)
    endpoint = Endpoint.at(base_url, key_from_environment(api_key_env))
    found = examine(endpoint, adapter, model=model, k=k)
    about = asdict(found.identity) if found.identity else {}
    facts = {"engine": engine, "model": found.model, **about, "k": found.k}
    if form is Format.JSON:
        findings = [asdict(finding) for finding in found.findings]
        say(json.dumps({"schema_version": 1, **facts, "status": found.status, "findings": findings}, indent=2))
    else:
        for name, value in facts.items():
            say(printable(f"{name.replace('_', ' ')}: {'not known' if value is None else value}"))
        for finding in found.findings:
            remedy = f"; {finding.remedy}" if finding.remedy and finding.status is not Status.PASS else ""
            say(printable(f"{finding.status.upper()}  {finding.check}: {finding.message}{remedy}"))
    failed = [finding for finding in found.findings if finding.status is Status.FAIL]
    if failed:
        raise CheckFailed(
            f"{endpoint.base_url}: {'; '.join(f'{f.check}: {f.message}' for f in failed)}"
            + (f"; {failed[0].remedy}" if failed[0].remedy else "")
        )
