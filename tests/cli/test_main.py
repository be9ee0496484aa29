import json
import subprocess
import sys
from collections.abc import Callable

import pytest
import typer

from spec_eval import cli
from spec_eval.errors import (
    CheckFailed,
    EnvironmentFault,
    ExitCode,
    NoVerdict,
    RunNotWhole,
    SpecEvalError,
    UsageError,
)


def outcome(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        cli.main(argv)
    captured = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return int(left.value.code), captured.out, captured.err


def raising(error: BaseException) -> Callable[..., None]:
    def dispatch(*_args: object) -> None:
        raise error

    return dispatch


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CheckFailed("no"), 1),
        (UsageError("wrong"), 2),
        (NoVerdict("nothing"), 3),
        (EnvironmentFault("missing"), 4),
        (RunNotWhole("half"), 5),
    ],
)
def test_each_error_has_its_exit_code_and_one_line(
    error: SpecEvalError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "dispatch", raising(error))
    assert outcome([], capsys) == (code, "", f"spec-eval: {error}\n")


def test_a_message_of_several_lines_becomes_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "dispatch", raising(UsageError("first\n  second\tthird")))
    assert outcome([], capsys)[2] == "spec-eval: first second third\n"


def test_a_fault_of_ours_is_one_line_too_and_a_traceback_with_debug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "dispatch", raising(ZeroDivisionError("oops")))
    code, out, err = outcome([], capsys)
    assert (code, out) == (1, "")
    assert err.startswith("spec-eval: unexpected ZeroDivisionError: oops")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    with pytest.raises(ZeroDivisionError):
        cli.main(["--debug"])


def test_ctrl_c_is_a_run_that_is_not_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli, "dispatch", raising(KeyboardInterrupt()))
    assert outcome([], capsys) == (ExitCode.NOT_WHOLE, "", "spec-eval: interrupted\n")


def test_a_reader_that_left_is_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli, "dispatch", raising(BrokenPipeError()))
    assert outcome([], capsys) == (0, "", "")


def of_one_verb(action: Callable[[], None]) -> typer.Typer:
    app = typer.Typer()
    app.command()(action)
    return app


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (typer.Exit(3), (3, "", "")),
        (KeyboardInterrupt(), (5, "", "spec-eval: interrupted\n")),
        (BrokenPipeError(32, "Broken pipe"), (0, "", "")),
        (SystemExit(7), (7, "", "")),
        (
            OSError(24, "Too many files"),
            (
                4,
                "",
                "spec-eval: [Errno 24] Too many files; mend that and run again, or see with --debug where it was\n",
            ),
        ),
    ],
)
def test_what_a_verb_ends_with_is_not_turned_into_another_code(
    error: BaseException,
    expected: tuple[int, str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def verb() -> None:
        raise error

    monkeypatch.setattr(cli, "app", of_one_verb(verb))
    assert outcome([], capsys) == expected


def test_a_library_that_leaves_because_of_a_broken_pipe_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def verb() -> None:
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            raise SystemExit(1)  # noqa: B904 # as rich does it

    monkeypatch.setattr(cli, "app", of_one_verb(verb))
    assert outcome([], capsys) == (0, "", "")


def test_no_verb_is_the_help_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    helped = outcome(["--help"], capsys)
    code, out, err = outcome([], capsys)
    assert (code, out) == (2, "")
    assert err.splitlines() == helped[1].splitlines()
    assert err.startswith("Usage: spec-eval [OPTIONS] COMMAND [ARGS]...\n")


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (["run", "smoke", "--temprature", "0"], "--temprature"),
        (["rnu"], "rnu"),
        (["run", "smoke", "--limit", "many"], "--limit"),
        (["run", "smoke", "--limit", "0"], "--limit"),
        (["run", "smoke", "--k", "0"], "--k"),
        (["run", "smoke", "--temperature", "-1"], "--temperature"),
        (["run", "smoke", "--top-p", "1.5"], "--top-p"),
        (["run", "smoke", "--repeats"], "--repeats"),
        (["run", "smoke", "humaneval"], "humaneval"),
        (["report"], "RUN"),
        (["report", "x", "--format", "xml"], "xml"),
        (["plot"], "RUN"),
        (["list", "cats"], "cats"),
    ],
)
def test_a_misspelt_command_line_is_one_line_with_exit_2(
    argv: list[str], names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = outcome(argv, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("spec-eval: ")
    assert err.count("\n") == 1
    assert names in err


def test_help_names_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outcome(["--help"], capsys)
    assert (code, err) == (0, "")
    for verb in ("run", "report", "plot", "list"):
        assert verb in out


def imported(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after `code`."""
    code = f"""import contextlib, io, json, sys
with contextlib.redirect_stdout(io.StringIO()):
    try:
        {code}
    except SystemExit:
        pass
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(child.stdout.splitlines()[-1]))


def test_help_loads_nothing_heavy() -> None:
    modules = imported('from spec_eval.cli import main; main(["--help"])')
    assert "typer" in modules
    heavy = {"openai", "pandas", "datasets", "pydantic", "pyarrow", "numpy", "aiohttp", "matplotlib", "scipy", "httpx2"}
    assert modules & heavy == set()


def test_reading_results_loads_neither_client_nor_data_sets() -> None:
    modules = imported(
        "from spec_eval import tables; from spec_eval.render import console, csv, json as j, markdown; "
        'from spec_eval.cli import main; main(["report", "nowhere"])'
    )
    assert {"pydantic", "numpy"} <= modules
    assert modules & {"openai", "datasets", "aiohttp", "matplotlib"} == set()
