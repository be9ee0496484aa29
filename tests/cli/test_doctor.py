import json

import pytest

from spec_eval.cli import main
from tests.llamacpp_server import LlamaCppServer, Reply


def examined(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--engine", "llamacpp", *arguments])
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_a_good_server_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    with LlamaCppServer() as server:
        code, out, err = examined("--base-url", server.root, capsys=capsys)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "model: tiny" in lines
    assert "version: b4242-cafe" in lines
    assert "context: 512" in lines
    assert "k: not known" in lines


def test_findings_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with LlamaCppServer() as server:
        code, out, _ = examined("--base-url", server.root, "--format", "json", capsys=capsys)
    found = json.loads(out)
    assert code == 0
    assert (found["engine"], found["model"], found["k"]) == ("llamacpp", "tiny", None)


def test_a_server_without_counters_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    with LlamaCppServer(lambda _: Reply(timings=False)) as server:
        code, out, err = examined("--base-url", server.root, capsys=capsys)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "no counters" in err


def test_nobody_there_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = examined("--base-url", "http://127.0.0.1:9", capsys=capsys)
    assert code == 1
    assert "no answer from http://127.0.0.1:9" in err
