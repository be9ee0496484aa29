"""The terminal face: one small module a verb, and one place where errors become exit codes."""

import contextlib
import sys

import typer
import typer.main

from spec_eval.cli import (
    baseline,
    check_card,
    compare,
    doctor,
    gate,
    imports,
    lists,
    output,
    plot,
    prepare,
    report,
    run,
    serve,
)
from spec_eval.errors import ExitCode, SpecEvalError

app = typer.Typer(
    name="spec-eval",
    help="Measure speculative decoding from the serving engine's own counters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
run.register(app)
report.register(app)
plot.register(app)
compare.register(app)
baseline.register(app)
gate.register(app)
imports.register(app)
prepare.register(app)
serve.register(app)
doctor.register(app)
check_card.register(app)
lists.register(app)


def main(argv: list[str] | None = None) -> None:
    """Entry point: errors are one line on standard error; a traceback only with --debug."""
    arguments = sys.argv[1:] if argv is None else argv
    words = [word for word in arguments if word != "--debug"]
    debug = len(words) < len(arguments)
    try:
        try:
            code = dispatch(words, tuple(arguments))
        except OSError:
            output.flush()  # where standard output is what failed, it says so better
            raise
        output.flush()
        sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", ExitCode.NOT_WHOLE, debug)
    except typer.TyperException as error:
        if not words:  # no mistake, but the help
            print(error.format_message(), file=sys.stderr)
            sys.exit(error.exit_code)
        message = " ".join(error.format_message().replace("Value error, ", "").split())
        _fail(f"{message}; see `spec-eval --help`", ExitCode(error.exit_code), debug)
    except SpecEvalError as error:
        _fail(str(error), error.exit_code, debug)
    except BrokenPipeError:
        output.abandon()
        sys.exit(ExitCode.DONE)
    except SystemExit as leave:
        if isinstance(leave.__context__, BrokenPipeError):  # so rich leaves
            output.abandon()
            sys.exit(ExitCode.DONE)
        raise
    except OSError as error:  # a full disk, too many open files: of the place, and not ours
        _fail(f"{error}; mend that and run again, or see with --debug where it was", ExitCode.ENVIRONMENT, debug)
    except Exception as error:  # a fault of ours: still one line, and the way to more
        _fail(
            f"unexpected {type(error).__name__}: {error}; run again with --debug and report it",
            ExitCode.CHECK_FAILED,
            debug,
        )


def dispatch(words: list[str], typed: tuple[str, ...]) -> int:
    """Parse `words` and call the verb; gives the exit code. `typed` is the command line for the plan.

    Not `app(...)`: that gives Ctrl-C and a broken pipe exit codes of its own.
    """
    command = typer.main.get_command(app)
    try:
        with command.make_context("spec-eval", words, obj=typed) as context:
            command.invoke(context)
    except typer.Exit as leave:
        return leave.exit_code
    return ExitCode.DONE


def _fail(message: str, code: ExitCode, debug: bool) -> None:
    if debug:
        raise  # noqa: PLE0704 # called from an except block
    with contextlib.suppress(OSError):
        print(f"spec-eval: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
