import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spec_eval import hardware
from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.launch import Launch
from spec_eval.engines.vllm import VllmLauncher
from spec_eval.errors import EnvironmentFault
from spec_eval.serve import process, serve_process
from spec_eval.serve.process import free_port, gpus, require_free, root_of
from tests import fake_vllm
from tests.llamacpp_server import LlamaCppServer


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_BETWEEN_S", 0.05)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def launch(**given: object) -> Launch:
    settings = {"engine": "vllm", "model": "house/mouse", "algorithm": "ngram", "k": 4, "port": free_port(), **given}
    return Launch(**settings)  # type: ignore[arg-type]


def failing(wanted: Launch, log: Path, *, place: str = "cpu") -> str:
    with (
        pytest.raises(EnvironmentFault) as caught,
        serve_process(wanted, VllmLauncher(), hardware.find(place), log=log, say=lambda _text: None),
    ):
        pytest.fail("it must not be served")
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_server_is_healthy_inside_the_block_and_its_whole_group_gone_behind_it(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch)
    said: list[str] = []
    wanted = launch(served_name="mouse", env={"VLLM_CPU_KVCACHE_SPACE": "1"})
    with serve_process(wanted, VllmLauncher(), hardware.find("cpu"), log=log, say=said.append) as server:
        assert server.root == f"http://127.0.0.1:{wanted.port}"
        assert [entry["id"] for entry in Endpoint.at(server.root).models()] == ["mouse"]
        assert len(fake_vllm.alive(pids)) == 2
        assert os.getpgid(server.process.pid) == server.process.pid != os.getpgid(0)
    assert fake_vllm.gone(pids)
    assert log.read_text() == "INFO loading weights\nINFO environment 1\n"
    assert said == [f"vllm: starting ({tmp_path}/bin/vllm); its log is {log}"]


def test_a_server_that_ignores_the_first_word_is_killed(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_GRACE_S", 0.2)
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch, "stubborn")
    with serve_process(launch(), VllmLauncher(), hardware.find("cpu"), log=log, say=lambda _text: None) as server:
        pass
    assert server.process.returncode == -signal.SIGKILL
    assert fake_vllm.gone(pids)


def test_a_server_that_dies_is_told_by_cause_code_and_log(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch, "dies: ValueError: Free memory on device cuda:0 (1/80 GiB)")
    log.write_text("OSError: [Errno 98] Address already in use, of an earlier start\n")
    message = failing(launch(), log)
    assert message == (
        "vllm ended while starting, exit code 1: out of memory: ValueError: Free memory on device cuda:0 (1/80 GiB); "
        f"its log is {log}"
    )


def test_a_server_that_dies_between_health_and_its_first_answer_is_told_the_same_way(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch, "faints")
    assert "vllm ended while starting, exit code 3: INFO environment None" in failing(launch(), log)


def test_a_death_that_nobody_knows_is_told_by_the_last_line(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch, "dies: \x1b[31mKeyError\x1b[0m: 'mouse'\n\n")
    assert "exit code 1: KeyError: 'mouse'; its log is" in failing(launch(), log)


def test_a_server_that_is_never_healthy_is_ended_at_the_limit_with_progress_on_the_way(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_SAY_EVERY_S", 0.0)
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch, "never")
    # The hour is over once the server has written down its processes, however long that takes.
    said: list[str] = []
    with monkeypatch.context() as clock:
        clock.setattr(time, "monotonic", lambda: 3601.0 if pids.exists() else 0.0)
        with (
            pytest.raises(EnvironmentFault, match=r"was not healthy after 3600 s: INFO loading weights; its log is"),
            serve_process(launch(), VllmLauncher(), hardware.find("cpu"), log=log, say=said.append),
        ):
            pytest.fail("it must not be served")
    assert said[1].startswith("vllm: starting for 0 s; last in its log: ")
    assert fake_vllm.gone(pids)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "nothing yet"),
        ("one\ntwo\n\n  \n", "two"),
        ("Loading:  0%\rLoading: 50%\rLoading: 90%", "Loading: 90%"),
        ("x" * 500, "x" * 160),
    ],
)
def test_the_tail_of_a_log_is_its_last_line_with_words(text: str, line: str) -> None:
    assert process.last_line(text) == line


def test_another_model_behind_the_port_is_not_taken_for_ours(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch, "other")
    message = failing(launch(), log)
    assert "another model is behind http://127.0.0.1:" in message
    assert "it serves somebody-elses, not house/mouse; give another --port" in message
    assert fake_vllm.gone(pids)


def test_a_port_in_use_is_told_before_anything_starts_with_the_model_that_is_there(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch)
    with LlamaCppServer(models=("cat-7b",)) as server:
        message = failing(launch(port=server.port), log)
    assert f"port {server.port} on 127.0.0.1 cannot be used" in message
    assert "a server there serves cat-7b; give another --port" in message
    assert not log.exists()


def test_an_address_that_is_not_ours_is_told_as_such() -> None:
    with pytest.raises(EnvironmentFault, match=r"port 8000 on 192\.0\.2\.1 cannot be used \(.*\); give another"):
        require_free("192.0.2.1", 8000)  # RFC 5737: nobody's address


def test_an_engine_that_is_not_here_says_all_the_ways_to_it(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("SPEC_EVAL_VLLM_PYTHON", raising=False)
    message = failing(launch(), log)
    for way in ("vllm is not here", "put `vllm` on the PATH", "SPEC_EVAL_VLLM_PYTHON"):
        assert way in message


def test_a_python_that_is_not_there_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEC_EVAL_VLLM_PYTHON", "/nowhere/python")
    assert "/nowhere/python: no such program; mend the path to vllm" in failing(launch(), log)


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    folder.mkdir(exist_ok=True)
    script = folder / "nvidia-smi"
    lines = "".join(f"GPU {i}: NVIDIA H200 (UUID: GPU-{i})\\n" for i in range(number))
    script.write_text(f'#!{sys.executable}\nprint("{lines}", end="")\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_too_few_gpus_are_told_before_anything_starts(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch)
    nvidia_smi(tmp_path / "bin", monkeypatch, 2)
    assert failing(launch(), log, place="8xh200") == (
        "8xh200 means 8 GPUs, and nvidia-smi shows 2; take other --hardware"
    )
    assert not log.exists()


def test_gpus_are_counted_as_far_as_they_are_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert gpus() is None
    nvidia_smi(tmp_path, monkeypatch, 4)
    assert gpus() == 4
    for visible, number in (("0,1", 2), ("", 0), ("0,1,2,3,4,5", 4)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpus() == number


@pytest.mark.parametrize(
    ("host", "root"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("::1", "http://[::1]:8000"),
    ],
)
def test_a_client_on_this_machine_finds_the_server(host: str, root: str) -> None:
    assert root_of(host, 8000) == root


def test_the_group_is_ended_also_when_the_wait_is_interrupted(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch, "stubborn")

    def interrupted(_self: "subprocess.Popen[bytes]", timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return real_wait(_self)

    real_wait = subprocess.Popen.wait
    with (
        pytest.raises(KeyboardInterrupt),
        serve_process(launch(), VllmLauncher(), hardware.find("cpu"), log=log, say=lambda _text: None),
    ):
        monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    assert fake_vllm.gone(pids)
