import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer

from spec_eval import cli
from spec_eval.cli.arguments import command_line, options_given
from spec_eval.run import serving
from spec_eval.store import RunFolder
from tests.llamacpp_server import LlamaCppServer, Reply, write_suite


def given(*words: str) -> list[str]:
    seen: list[str] = []
    app = typer.Typer()

    @app.command()
    def verb(
        context: typer.Context,
        thing: str | None = None,
        level: Annotated[int, typer.Option("-l", "--level")] = 1,
        quick: Annotated[bool | None, typer.Option("--quick/--slow")] = None,
        dry: Annotated[bool, typer.Option("--dry")] = False,
        place: Annotated[str | None, typer.Argument()] = None,
    ) -> None:
        seen.extend(options_given(context))

    app([*words], standalone_mode=False)
    return seen


def test_only_what_was_typed_is_given() -> None:
    assert given() == []
    assert given("somewhere") == []
    assert given("--thing=x", "somewhere") == ["--thing"]
    assert given("--thing", "--dry") == ["--thing"]  # the second word is the first one's value
    assert given("-l", "1", "--dry") == ["-l", "--dry"]
    assert given("--slow") == ["--slow"]
    assert given("--quick") == ["--quick"]


def test_a_command_line_is_that_of_the_call_not_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)
    monkeypatch.setattr(sys, "argv", ["pytest", "--limit", "3", "--no-seed"])
    suite = str(write_suite(tmp_path / "suite", prompts=2))
    broken = Reply(status=500, plain=b"{}")
    with LlamaCppServer(lambda ask: broken if ask.number == 1 else Reply()) as server:
        words = ["run", suite, "--engine", "llamacpp", "--base-url", server.url, "--out", str(tmp_path / "results")]
        with pytest.raises(SystemExit):
            cli.main(words)
        path = Path(capsys.readouterr().out.strip())
        assert RunFolder(path).plan().command == ("spec-eval", *words)
        with pytest.raises(SystemExit) as left:
            cli.main(["run", "--resume", str(path)])
        assert left.value.code == 0
        with pytest.raises(SystemExit) as left:
            cli.main(["run", "--resume", str(path), "--no-seed"])
        assert left.value.code == 2
    assert "--no-seed: a resumed run keeps" in capsys.readouterr().err


def test_a_verb_that_is_called_alone_has_a_command_line_too() -> None:
    assert command_line(typer.Context(typer.main.get_command(cli.app))) == ("spec-eval",)
