import json
import re
import socket
import sys
from pathlib import Path

import pytest

from spec_eval import cli
from spec_eval.run import serving
from spec_eval.store import RunFolder, RunLock
from tests.llamacpp_server import LlamaCppServer, Reply, write_suite

BROKEN = Reply(status=500, plain=b'{"error":{"message":"broken"}}')


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


@pytest.fixture
def suite(tmp_path: Path) -> str:
    return str(write_suite(tmp_path / "suite", prompts=4))


class Face:
    """The command line as a person has it: argv in, exit code and the two streams out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], out: Path) -> None:
        self._monkeypatch, self._capsys, self.results = monkeypatch, capsys, out

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["spec-eval", *argv])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = self._capsys.readouterr()
        assert isinstance(left.value.code, int)
        return int(left.value.code), captured.out, captured.err

    def run(self, *argv: str) -> tuple[int, str, str]:
        return self("run", *argv, "--out", str(self.results))

    def refused(self, *argv: str) -> tuple[int, str]:
        """Exit code and the one line of an error."""
        code, out, err = self(*argv)
        assert out == ""
        assert err.startswith("spec-eval: ")
        assert err.count("\n") == 1
        assert "unexpected" not in err
        assert "Traceback" not in err
        return code, err


@pytest.fixture
def face(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Face:
    return Face(monkeypatch, capsys, tmp_path / "results")


def at(server: LlamaCppServer) -> tuple[str, ...]:
    return ("--engine", "llamacpp", "--base-url", server.url)


def test_standard_output_is_the_run_folder_and_nothing_else(face: Face, suite: str) -> None:
    with LlamaCppServer() as server:
        code, out, err = face.run(suite, *at(server), "--k", "4")
    assert code == 0
    folder = Path(out.removesuffix("\n"))
    assert out.count("\n") == 1
    assert (folder / "manifest.json").is_file()
    # 4 requests of S 3, A 5 each: AL 1 + 20/12
    assert "2.6667" in err
    assert "2.6667" in (folder / "report.md").read_text(encoding="utf-8")
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert plan["command"][:3] == ["spec-eval", "run", suite]


def test_every_option_reaches_the_plan(face: Face, suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-1")
    given = ["--model", "tiny", "--drafter", "eagle", "--k", "4", "--limit", "2", "--repeats", "2", "--seed", "9"]
    given += ["--concurrency", "1,2", "--temperature", "0.5", "--top-p", "0.9", "--max-tokens", "7"]
    given += ["--thinking", "off", "--max-failures", "0.25", "--api-key-env", "MY_KEY"]
    with LlamaCppServer() as server:
        code, out, _ = face.run(suite, *at(server), *given)
    assert code == 0
    plan = RunFolder(Path(out.strip())).plan()
    assert plan.overrides == {
        "limit": 2,
        "repeats": 2,
        "concurrency": [1, 2],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "thinking": False,
    }
    assert (plan.seed, plan.max_failures, plan.api_key_env) == (9, 0.25, "MY_KEY")
    assert (plan.target.model, plan.target.drafter, plan.target.k) == ("tiny", "eagle", 4)
    body = server.asks[-1].body
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.5, 0.9, 7)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_no_seed_sends_none(face: Face, suite: str) -> None:
    with LlamaCppServer() as server:
        code, out, _ = face.run(suite, *at(server), "--no-seed")
    assert code == 0
    assert RunFolder(Path(out.strip())).plan().seed is None
    assert [ask.body.get("seed") for ask in server.asks[1:]] == [None] * 4  # the first is the probe's


def test_failures_end_in_5_with_folder_report_and_the_way_on(face: Face, suite: str) -> None:
    with LlamaCppServer(lambda ask: BROKEN if ask.number == 2 else Reply()) as server:
        code, out, err = face.run(suite, *at(server))
        folder = Path(out.strip())
        assert code == 5
        assert "1 of 4 requests failed" in err.splitlines()[-1]
        assert f"--resume {folder}" in err.splitlines()[-1]
        assert "broken" not in out
        assert (folder / "report.md").is_file()
        code, out, _ = face("run", "--resume", str(folder))
    assert (code, out) == (0, f"{folder}\n")


def test_coverage_below_the_floor_ends_in_5_with_the_report(face: Face, suite: str) -> None:
    with LlamaCppServer(lambda ask: Reply(timings=ask.number != 3)) as server:
        code, out, err = face.run(suite, *at(server))
    assert code == 5
    assert "coverage 75.0% is below 95%" in err.splitlines()[-1]
    assert "no timings in the answer" in (Path(out.strip()) / "report.md").read_text(encoding="utf-8")


def test_a_dry_run_sends_nothing_and_writes_nothing(face: Face, suite: str) -> None:
    with LlamaCppServer() as server:
        code, out, err = face.run(suite, *at(server), "--dry-run", "--limit", "3")
        assert (server.asks, server.scrapes) == ([], 0)
    assert (code, err) == (0, "")
    assert out.startswith("3 requests in 3 conversations, at most 96 generated tokens, at most 1 MB on disk\n")
    assert not face.results.exists()


@pytest.mark.parametrize(
    ("argv", "code", "names"),
    [
        (["run"], 2, "needs a suite, or --resume"),
        (["run", "smok"], 2, "did you mean 'smoke'"),
        (["run", "no-such-thing-at-all"], 2, "`spec-eval list suites` names them"),
        (["run", "smoke"], 2, "no server: "),
        (["run", "smoke", "--engine", "llamacpp"], 2, "--base-url"),
        (["run", "smoke", "--engine", "embedded", "--base-url", "http://127.0.0.1:1"], 2, "--base-url does not go"),
        (["run", "smoke", "--serve", "nowhere"], 2, "no recipe 'nowhere'"),
        (["run", "smoke", "--engine", "embedded", "--model", "none.gguf"], 2, "none.gguf: no such file"),
        (["run", "smoke", "--engine", "llamacpp", "--base-url", "localhost"], 2, "not a web address"),
        (["run", "smoke", "--concurrency", "0"], 2, "--concurrency 0"),
        (["run", "smoke", "--concurrency", "1,,4"], 2, "--concurrency 1,,4"),
        (["run", "smoke", "--concurrency", "4,4"], 2, "--concurrency 4,4"),
        (["run", "smoke", "--concurrency", "two"], 2, "--concurrency two"),
        (["run", "smoke", "--max-failures", "5 percent"], 2, "--max-failures 5 percent"),
        (["run", "smoke", "--max-failures", "101%"], 2, "--max-failures 101%"),
        (["run", "smoke", "--max-failures", "nan"], 2, "--max-failures nan"),
        (["run", "smoke", "--thinking", "maybe"], 2, "--thinking maybe"),
        (["run", "smoke", "--engine", "llamacpp", "--base-url", "http://h/v1?a=b"], 2, "--base-url: has a query"),
        (["run", "smoke", "--engine", "embedded", "--api-key-env", "NO_SUCH_KEY"], 2, "no variable of that name"),
        (["run", "--resume", "nowhere"], 2, "nowhere: no run folder"),
        (["run", "humaneval", "--data-dir", "nowhere", "--engine", "embedded"], 4, "--data-dir nowhere"),
    ],
)
def test_what_cannot_be_run_is_one_line(
    argv: list[str], code: int, names: str, face: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    got, err = face.refused(*argv)
    assert got == code
    assert names in err
    assert not list(tmp_path.glob("results/*/requests.jsonl"))


@pytest.mark.parametrize(
    ("option", "value"), [("--top-p", "0"), ("--temperature", "nan"), ("--temperature", "inf"), ("--top-p", "nan")]
)
def test_a_number_that_no_server_could_take_is_refused_before_anything_is_written(
    option: str, value: str, face: Face, suite: str
) -> None:
    with LlamaCppServer() as server:
        code, _ = face.refused("run", suite, *at(server), "--out", str(face.results), option, value)
        assert (code, server.asks) == (2, [])
    assert not face.results.exists()


def test_no_server_is_a_fault_of_the_place_and_leaves_nothing(face: Face, suite: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    code, err = face.refused("run", suite, "--engine", "llamacpp", "--base-url", url, "--out", str(face.results))
    assert code == 4
    assert url.removesuffix("/v1") in err
    assert not face.results.exists()


def test_a_port_with_a_web_page_is_told_as_such(face: Face, suite: str) -> None:
    page = (200, "text/html", "<html><title>Grafana</title></html>")
    with LlamaCppServer(pages={"/v1/models": page}) as server:
        code, err = face.refused("run", suite, *at(server), "--out", str(face.results))
    assert code == 4
    assert "Grafana" in err


def test_results_that_cannot_be_written_are_a_fault_of_the_place(face: Face, suite: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with LlamaCppServer() as server:
        for out in (tmp_path / "file", tmp_path / "file" / "below"):
            code, err = face.refused("run", suite, *at(server), "--out", str(out))
            assert code == 4
            assert "--out" in err
        assert server.asks == []


def test_a_setting_beside_resume_is_refused(face: Face, suite: str) -> None:
    with LlamaCppServer() as server:
        _, out, _ = face.run(suite, *at(server))
        for extra in (["--limit", "2"], ["--temperature=1"], ["--no-seed"], ["--dry-run"], [suite]):
            code, err = face.refused("run", "--resume", out.strip(), *extra)
            assert code == 2
            assert extra[0].partition("=")[0] in err


def test_a_run_in_use_is_refused(face: Face, suite: str) -> None:
    with LlamaCppServer() as server:
        _, out, _ = face.run(suite, *at(server))
        with RunLock(Path(out.strip())):
            code, err = face.refused("run", "--resume", out.strip())
    assert code == 2
    assert "held by process" in err


def test_rows_that_change_under_a_run_are_told_as_that(face: Face, suite: str) -> None:
    rows = Path(suite).with_name("rows.jsonl")

    def change(_ask: object) -> Reply:
        rows.write_text(re.sub("number 3", "number 33", rows.read_text(encoding="utf-8")), encoding="utf-8")
        return Reply()

    with LlamaCppServer(change) as server:
        code, _, err = face.run(suite, *at(server), "--concurrency", "1")
    assert code == 5
    assert "'p3' changed" in err.splitlines()[-1]
    assert "unexpected" not in err


def test_words_of_a_server_do_not_colour_the_terminal(face: Face, suite: str) -> None:
    odd = Reply(status=500, plain=json.dumps({"error": {"message": "[red]no[/red] \x1b[31m [/]"}}).encode())
    with LlamaCppServer(lambda ask: odd if ask.number == 1 else Reply()) as server:
        code, _, err = face.run(suite, *at(server))
    assert code == 5
    assert "\x1b" not in err
