"""spec-eval gate."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_eval.cli.output import say
from spec_eval.errors import CheckFailed, NoVerdict, UsageError

if TYPE_CHECKING:
    from spec_eval.gate import Gate
    from spec_eval.rules import Rule
    from spec_eval.store import Plan

SUMMARY = "GITHUB_STEP_SUMMARY"


class Format(StrEnum):
    """Of the verdict."""

    TEXT = "text"
    MD = "md"
    JSON = "json"
    JUNIT = "junit"


class OnInconclusive(StrEnum):
    """What becomes of data that cannot tell."""

    EXIT3 = "exit3"
    PASS = "pass"  # noqa: S105 # no password
    FAIL = "fail"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("gate")(gate)


def gate(
    run: Annotated[Path, typer.Argument(help="the candidate's run folder", metavar="RUN")],
    baseline: Annotated[Path, typer.Option(help="a file of `spec-eval baseline`, or a run folder")],
    rule: Annotated[
        list[str] | None,
        typer.Option(help="in place of the suite's: acceptance_length:-2%, position[1]:-3pp, acceptance_length>=3.5"),
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="a setting that may differ, by its key", metavar="KEY")
    ] = None,
    on_inconclusive: Annotated[OnInconclusive, typer.Option(help="what to do where the data cannot tell")] = (
        OnInconclusive.EXIT3
    ),
    form: Annotated[Format, typer.Option("--format")] = Format.TEXT,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="file to write instead of standard output")
    ] = None,
) -> None:
    """Whether a run has lost acceptance against its baseline: pass 0, fail 1, no verdict 3."""
    from spec_eval import gate as gating
    from spec_eval import sides
    from spec_eval.render import gate as rendered
    from spec_eval.store import RunFolder
    from spec_eval.store.folder import write_text

    folder = RunFolder.open(run)
    rules = _rules(rule, folder.plan())
    found = gating.judge(sides.load(baseline), sides.of_run(folder), rules, allow=allow or ())
    sentence = rendered.sentence(found, on_inconclusive.value)
    if summary := os.environ.get(SUMMARY):
        _append(Path(summary), rendered.render(found, on_inconclusive.value))
    shown = _rendered(form, found, on_inconclusive)
    if output is None:
        say(shown, end="")
    else:
        write_text(output, shown)
        say(sentence)
    _leave(found, sentence, on_inconclusive)


def _rules(given: list[str] | None, plan: "Plan") -> tuple["Rule", ...]:
    """Those of the command line, else of the run's suite, else the default."""
    from spec_eval import rules, toml

    where = "--rule" if given else "the suite's gate"
    texts = given or (toml.tables(plan.suite_text, Path(plan.suite_name)).get("gate") if plan.suite_text else None)
    try:
        return rules.read(texts or rules.DEFAULT)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def _rendered(form: Format, found: "Gate", on_inconclusive: OnInconclusive) -> str:
    import json

    from spec_eval.render import gate as rendered

    match form:
        case Format.TEXT:
            return rendered.text(found, on_inconclusive.value)
        case Format.MD:
            return rendered.render(found, on_inconclusive.value)
        case Format.JSON:
            return json.dumps(rendered.document(found, on_inconclusive.value), indent=2, allow_nan=False) + "\n"
        case Format.JUNIT:
            return rendered.junit(found, on_inconclusive.value)


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise UsageError(f"{SUMMARY} {path}: cannot be written ({error.strerror}); unset it, or mend it") from error


def _leave(found: "Gate", sentence: str, on_inconclusive: OnInconclusive) -> None:
    from spec_eval.gate import Verdict

    verdict = found.verdict
    if verdict is Verdict.INCONCLUSIVE and on_inconclusive is not OnInconclusive.EXIT3:
        verdict = Verdict(on_inconclusive.value)
    if verdict is Verdict.PASS:
        return
    raise CheckFailed(sentence) if verdict is Verdict.FAIL else NoVerdict(sentence)
