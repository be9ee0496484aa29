"""`serve` as a user types it, over a stand-in for vLLM."""

import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest

from spec_eval import cli
from tests import fake_vllm
from tests.llamacpp_server import LlamaCppServer

NGRAM = ("ngram", "--engine", "vllm", "--hardware", "cpu", "--model", "house/mouse")


def face(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        cli.main(["serve", *argv])
    captured = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return int(left.value.code), captured.out, captured.err


def free() -> str:
    from spec_eval.serve.process import free_port

    return str(free_port())


def started(*argv: str) -> "subprocess.Popen[str]":
    root = Path(__file__).parents[2]
    code = f"import sys; sys.path.insert(0, {str(root)!r}); from spec_eval.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", *argv]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_is_announced_on_stdout_and_ends_in_order(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    port = free()
    # A parent that ignores Ctrl-C, as a shell does for jobs in the background, must not decide this test.
    held = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = started(*NGRAM, "--port", port)
    signal.signal(signal.SIGINT, held)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"http://127.0.0.1:{port}/v1\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
            assert answer.status == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "")
    assert fake_vllm.gone(pids)
    assert "vllm: starting (" in err
    assert "Traceback" not in err
    log = re.search(r"its log is (\S+)", err)
    assert log is not None
    assert Path(log[1]).read_text().startswith("INFO loading weights")


def test_a_server_that_ends_by_itself_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch, "ends")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, _, err = face(capsys, *NGRAM, "--port", free())
    assert code == 4
    assert "exit code 3" in err.splitlines()[-1]
    assert "its log is" in err.splitlines()[-1]


def test_a_dry_run_prints_exports_and_command_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch)
    with LlamaCppServer() as server:  # the port in use does not matter yet
        code, out, err = face(capsys, *NGRAM, "--port", str(server.port), "--host", "0.0.0.0", "--dry-run")
        assert server.asks == []
    assert code == 0
    *exports, command = out.splitlines()
    assert exports == ["export VLLM_CPU_KVCACHE_SPACE=1", "export VLLM_HOST_IP=127.0.0.1"]
    assert command.startswith("vllm serve house/mouse ")
    assert f"--host 0.0.0.0 --port {server.port}" in command
    assert "--host 0.0.0.0: whoever reaches this machine can use the server" in err
    assert f"found {tmp_path}/bin/vllm" in err
    assert not pids.exists()


def test_a_dry_run_says_that_the_engine_is_not_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("SPEC_EVAL_VLLM_PYTHON", raising=False)
    code, out, err = face(capsys, "glm-5.3-dflash2", "--dry-run")
    assert (code, out.splitlines()[0]) == (0, "export VLLM_USE_V2_MODEL_RUNNER=1")
    assert err.endswith("vllm is not on this machine\n")


def test_options_may_stand_before_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = face(capsys, "--dry-run", "--engine", "sglang", "glm-5.3-dspark")
    assert (code, out.splitlines()[0]) == (0, "export SGLANG_ENABLE_SPEC_V2=1")


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        ([], 2, "Missing argument 'RECIPE'"),
        (["glm-5.3"], 2, "no recipe 'glm-5.3', did you mean 'glm-5.3-"),
        (["glm-5.3-dflash2", "--k", "0"], 2, "--k"),
        (["glm-5.3-dflash2", "--k", "13"], 2, "beyond the block"),
        (["glm-5.3-dflash2", "--engine", "llamacpp"], 2, "llamacpp has no drafter of the kind dflash2"),
        (["glm-5.3-dflash2", "--hardware", "9xh200"], 2, "no hardware '9xh200', did you mean '8xh200'"),
        (["glm-5.3-dflash2", "--port", "70000"], 2, "--port"),
        (["glm-5.3-dflash2", "--tensor", "8"], 2, "--tensor"),
        (["smollm2-ngram", "--model", "none.gguf"], 2, "--model none.gguf: no such file"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    argv: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    got, out, err = face(capsys, *argv)
    assert (got, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


def test_a_server_that_dies_is_one_line_with_the_way_to_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch, "dies: api_server.py: error: unrecognized arguments: --x")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, out, err = face(capsys, *NGRAM, "--port", free())
    assert (code, out) == (4, "")
    last = err.splitlines()[-1]
    assert "flag unknown to this version: api_server.py: error: unrecognized arguments: --x; its log is" in last
