"""The terminal face: one small module a verb, and one place where errors become exit codes."""

import sys

import typer

from spec_eval.cli import check_card, doctor, imports, lists, prepare, report, run
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
imports.register(app)
prepare.register(app)
doctor.register(app)
check_card.register(app)
lists.register(app)


def main(argv: list[str] | None = None) -> None:
    """Entry point: errors are one line on standard error; a traceback only with --debug."""
    arguments = sys.argv[1:] if argv is None else argv
    debug = "--debug" in arguments
    try:
        code = app([a for a in arguments if a != "--debug"], standalone_mode=False)
        sys.exit(code if isinstance(code, int) else ExitCode.DONE)
    except typer.Exit as leave:
        sys.exit(leave.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", ExitCode.NOT_WHOLE, debug)
    except typer.TyperException as error:
        message = " ".join(error.format_message().replace("Value error, ", "").split())
        _fail(f"{message}; see `spec-eval --help`", ExitCode(error.exit_code), debug)
    except SpecEvalError as error:
        _fail(str(error), error.exit_code, debug)
    except BrokenPipeError:
        sys.exit(ExitCode.DONE)
    except Exception as error:  # a fault of ours: still one line, and the way to more
        _fail(
            f"unexpected {type(error).__name__}: {error}; run again with --debug and report it",
            ExitCode.CHECK_FAILED,
            debug,
        )


def _fail(message: str, code: ExitCode, debug: bool) -> None:
    if debug:
        raise  # noqa: PLE0704 # called from an except block
    print(f"spec-eval: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
