"""spec-eval run."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_eval.cli.arguments import command_line, options_given
from spec_eval.cli.output import say
from spec_eval.errors import UsageError
from spec_eval.records import MOST_DRAFTS

if TYPE_CHECKING:
    from spec_eval.run import RunOptions, kinds
    from spec_eval.store import RunFolder
    from spec_eval.store.windows import WindowFolder
    from spec_eval.tables import RunReport


# Settings for every arm of a matrix; the others stand in its file.
_BESIDE_MATRIX = {
    "--matrix",
    "--no-cache-salt",
    "--first-turn-only",
    "--reasoning-in-history",
    "--limit",
    "--repeats",
    "--concurrency",
    "--seed",
    "--no-seed",
    "--temperature",
    "--top-p",
    "--max-tokens",
    "--thinking",
    "--data-dir",
    "--out",
    "--max-failures",
    "--trust-remote-code",
    "--dry-run",
    "--duration",
    "--warmup",
    "--aiperf",
    "--any-aiperf",
    "--tokenizer",
}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("run")(run)


def run(
    context: typer.Context,
    suite: Annotated[str | None, typer.Argument(help="a shipped suite (see `list suites`) or a .toml file")] = None,
    matrix: Annotated[
        Path | None, typer.Option(help="TOML of recipes, engines, hardware and suites: a run for each")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="run folder to go on with, at its own settings")] = None,
    engine: Annotated[str | None, typer.Option(help="the server's engine, or embedded")] = None,
    base_url: Annotated[str | None, typer.Option(help="where the server is, as http://127.0.0.1:8000/v1")] = None,
    serve: Annotated[str | None, typer.Option(help="recipe to serve first (see `list recipes`)")] = None,
    hardware: Annotated[str | None, typer.Option(help="what to serve it on (see `list hardware`)")] = None,
    variant: Annotated[str | None, typer.Option(help="bf16 or fp8 weights of the recipe's target")] = None,
    model: Annotated[
        str | None, typer.Option(help="served model name; with --serve: hub name, folder or .gguf file to serve")
    ] = None,
    draft: Annotated[
        str | None, typer.Option(help="with --serve: hub name, folder or .gguf file of the drafter")
    ] = None,
    drafter: Annotated[str | None, typer.Option(help="the drafter's name, for the report")] = None,
    k: Annotated[
        int | None, typer.Option(min=1, max=MOST_DRAFTS, help="draft tokens a step, where the server does not tell")
    ] = None,
    known_answer: Annotated[
        str | None, typer.Option(help="make the embedded engine accept as CARD:TABLE:ROW or a .toml file says")
    ] = None,
    adaptive: Annotated[
        bool | None,
        typer.Option("--adaptive/--no-adaptive", help="the server verifies only some drafts; where it does not say so"),
    ] = None,
    no_cache_salt: Annotated[
        bool, typer.Option("--no-cache-salt", help="let answers use a warm prefix cache: adds phantom steps")
    ] = False,
    first_turn_only: Annotated[bool, typer.Option("--first-turn-only", help="drop the later turns")] = False,
    reasoning_in_history: Annotated[
        bool, typer.Option("--reasoning-in-history", help="send the model's reasoning back with its answers")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="at most this many conversations in each cell, of every category alike"),
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="how often each prompt is asked")] = None,
    concurrency: Annotated[str | None, typer.Option(help="conversations at a time; several as 1,4,8")] = None,
    seed: Annotated[int, typer.Option(help="run seed; each request gets its own from it")] = 0,
    no_seed: Annotated[bool, typer.Option("--no-seed", help="send no seeds")] = False,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="of sampling; 0 is greedy")] = None,
    top_p: Annotated[float | None, typer.Option(help="of sampling, above 0 and up to 1")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="limit of each answer")] = None,
    thinking: Annotated[str | None, typer.Option(help="on or off; the server's default where not given")] = None,
    duration: Annotated[float | None, typer.Option(min=0.001, help="seconds of a throughput suite's window")] = None,
    warmup: Annotated[float | None, typer.Option(min=0.0, help="seconds before that window")] = None,
    aiperf: Annotated[
        Path | None, typer.Option(help="AIPerf's executable, for throughput suites; else SPEC_EVAL_AIPERF, or PATH")
    ] = None,
    any_aiperf: Annotated[
        bool, typer.Option("--any-aiperf", help="take an AIPerf of another version than the known one")
    ] = False,
    tokenizer: Annotated[
        str | None, typer.Option(help="folder or hub name for AIPerf; a stand-in if not given: the server counts")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="folder with the data sets' files, instead of the hub")] = None,
    out: Annotated[Path, typer.Option(help="where run folders go")] = Path("results"),
    max_failures: Annotated[str, typer.Option(help="share of failed requests that a run may have")] = "5%",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be sent, send nothing")] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="let a data set or a served model run code of its own")
    ] = False,
    api_key_env: Annotated[
        str | None,
        typer.Option(help="environment variable with the server's key; else OPENAI_API_KEY, where it is set"),
    ] = None,
) -> None:
    """Drive a suite against a server and keep every counter. Prints the run folder; the table goes to stderr."""
    from spec_eval.render.progress import Progress
    from spec_eval.run import RunOptions, kinds

    if resume is not None:
        if suite is not None:
            raise UsageError(f"{suite}: a resumed run keeps the suite of its plan; drop it or start a new run")
        why = "a resumed run keeps the settings of its plan; drop them or start a new run"
        _refuse_beside(context, {"--resume", "--base-url"}, why)
        _finish(kinds.resume(resume, Progress(), base_url=base_url))
        return
    if matrix is not None:
        if suite is not None or resume is not None:
            raise UsageError("--matrix names suites of its own; drop the suite or --resume")
        _refuse_beside(context, _BESIDE_MATRIX, "not beside --matrix; say it in the file, for each of its arms")
    elif suite is None:
        raise UsageError("run needs a suite, or --resume RUN, or --matrix FILE; `spec-eval list suites` names them")
    options = RunOptions(
        suite=suite or "",
        engine=engine,
        base_url=base_url,
        serve=serve,
        hardware=hardware,
        variant=variant,
        model=model,
        draft=draft,
        drafter=drafter,
        k=k,
        known_answer=known_answer,
        first_turn_only=first_turn_only,
        reasoning_in_history=reasoning_in_history,
        adaptive=adaptive,
        cold_cache=not no_cache_salt,
        limit=limit,
        repeats=repeats,
        concurrency=_levels(concurrency),
        seed=None if no_seed else seed,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        thinking=_on_off(thinking),
        data_dir=data_dir,
        out=out,
        max_failures=share(max_failures, "--max-failures"),
        trust_remote_code=trust_remote_code,
        api_key_env=api_key_env,
        duration=duration,
        warmup=warmup,
        aiperf=aiperf,
        any_aiperf=any_aiperf,
        tokenizer=tokenizer,
        command=command_line(context),
    )
    if matrix is not None:
        _drive_matrix(matrix, options, dry_run=dry_run)
        return
    if dry_run:
        say(kinds.dry_run(options))
        return
    _finish(kinds.start(options, Progress()))


def _finish(finished: "kinds.Finished") -> None:
    """The run folder on stdout, the report on stderr and in the folder; then the verdict on the run itself."""
    try:
        with contextlib.suppress(BrokenPipeError):  # the folder is named in the verdict too
            say(str(finished.folder.path))
    finally:
        _show(finished)
    if finished.shortfall is not None:
        raise finished.shortfall


def _show(finished: "kinds.Finished") -> None:
    """Its table on standard error, and report.md."""
    from spec_eval.run.windows import Finished

    if isinstance(finished, Finished):
        _write_windows_report(finished.folder)
    else:
        write_report(finished.folder)


def _write_windows_report(folder: "WindowFolder") -> None:
    from spec_eval import curves
    from spec_eval.render import console, throughput

    found = curves.read([folder])
    folder.write_report(throughput.markdown(found))
    with contextlib.suppress(OSError, SystemExit):
        throughput.show(found, console.make(stderr=True))


def write_report(folder: "RunFolder") -> "RunReport":
    """Show the table on standard error and leave it as report.md beside the records."""
    from spec_eval import tables
    from spec_eval.render import console, markdown

    report = tables.build(folder)
    folder.write_report(markdown.render([report]))
    with contextlib.suppress(OSError, SystemExit):  # nobody looks; the file has it
        console.show([report], console.make(stderr=True))
    return report


def _refuse_beside(context: typer.Context, allowed: set[str], why: str) -> None:
    """An option that would be ignored is refused."""
    if extra := [name for name in options_given(context) if name not in allowed]:
        raise UsageError(f"{', '.join(extra)}: {why}")


def _drive_matrix(path: Path, options: "RunOptions", *, dry_run: bool) -> None:
    """Every arm's run folder on stdout, its report on stderr and in the folder."""
    from spec_eval.render.progress import Progress
    from spec_eval.run import kinds, matrix

    def show(finished: kinds.Finished) -> None:
        say(str(finished.folder.path))
        _show(finished)

    arms = matrix.read(path, options)
    if dry_run:
        for arm in arms.arms:
            say(f"arm {arm.id}\n{kinds.dry_run(arm.options)}")
        return
    outcome = matrix.drive(arms, Progress(), show)
    if (short := matrix.shortfall(outcome, arms)) is not None:
        raise short


def _levels(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        levels = tuple(int(part) for part in text.split(","))
    except ValueError:
        levels = (0,)
    if min(levels) < 1 or len(set(levels)) != len(levels):
        raise UsageError(f"--concurrency {text}: not different whole numbers from 1 up; write them as 1,4,8")
    return levels


def _on_off(text: str | None) -> bool | None:
    if text not in (None, "on", "off"):
        raise UsageError(f"--thinking {text}: not on or off")
    return None if text is None else text == "on"


def share(text: str, option: str) -> float:
    """A share written as 5% or 0.05."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"{option} {text}: not a share; write it as 5% or 0.05")
    return value
