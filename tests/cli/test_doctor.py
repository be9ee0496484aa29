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
    assert (found["engine"], found["model"], found["k"], found["status"]) == ("llamacpp", "tiny", None, "warn")
    by_name = {finding["check"]: finding["status"] for finding in found["findings"]}
    assert by_name["counters, streamed"] == by_name["server's totals"] == "pass"
    assert by_name["draft length"] == "warn"


def test_a_server_without_counters_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    with LlamaCppServer(lambda _: Reply(timings=False)) as server:
        code, out, err = examined("--base-url", server.root, capsys=capsys)
    assert code == 1
    assert "FAIL  counters, streamed: none: no timings in the answer; llama.cpp hands" in out
    assert len(err.splitlines()) == 1
    assert "counters, streamed: none" in err


def test_a_disagreeing_k_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    with LlamaCppServer() as server:
        code, out, err = examined("--base-url", server.root, "--k", "2", capsys=capsys)
    # Its steps draft four tokens.
    assert code == 1
    assert "FAIL  counters, streamed: they contradict themselves: drafted > k x steps" in out
    assert "check --engine and --k" in err


def test_nobody_there_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = examined("--base-url", "http://127.0.0.1:9", capsys=capsys)
    assert code == 1
    assert "no answer from http://127.0.0.1:9" in err
