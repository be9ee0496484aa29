import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spec_eval.serve import keeper
from tests import fake_vllm


def kept(code: str) -> "subprocess.Popen[bytes]":
    argv = [sys.executable, keeper.__file__, "30", sys.executable, "-c", code]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)


@pytest.mark.parametrize(
    ("code", "left_with"),
    [
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
def test_it_leaves_with_the_engines_code(code: str, left_with: int) -> None:
    with kept(code) as process:
        assert process.wait(60) == left_with


def test_a_word_to_the_group_ends_the_engine_and_then_the_keeper(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    with kept(f"import time; open({str(ready)!r}, 'w').write('up'); time.sleep(120)") as process:
        assert ready.read_text() == "up"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM


@pytest.mark.parametrize("behaviour", ["", "stubborn"])
def test_an_engine_does_not_outlive_a_spec_eval_that_is_killed(
    behaviour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch, behaviour)
    code = """
import os, signal, sys
from pathlib import Path
from spec_eval import hardware
from spec_eval.engines.launch import Launch
from spec_eval.engines.vllm import VllmLauncher
from spec_eval.serve import process, serve_process
from spec_eval.serve.process import free_port
process._GRACE_S = 0.2
launch = Launch("vllm", "house/mouse", "ngram", 4, port=free_port())
log = Path(sys.argv[1])
with serve_process(launch, VllmLauncher(), hardware.find("cpu"), log=log, say=lambda _text: None):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "server.log")], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert fake_vllm.gone(pids)
