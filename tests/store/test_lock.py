import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spec_eval.errors import UsageError
from spec_eval.store import RunLock, lock

HOST = socket.gethostname()


def dead_process() -> int:
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    return finished.pid


def held_by(folder: Path, host: str, pid: object) -> Path:
    path = folder / lock.NAME
    path.write_text(json.dumps({"host": host, "pid": pid}), encoding="utf-8")
    return path


def refusal(folder: Path) -> str:
    with pytest.raises(UsageError) as caught, RunLock(folder):
        pass
    message = str(caught.value)
    assert str(folder / lock.NAME) in message
    assert "delete this file" in message
    return message


def test_lock_names_host_and_process_and_goes_away(tmp_path: Path) -> None:
    with RunLock(tmp_path) as held:
        assert json.loads(held.path.read_text(encoding="utf-8")) == {"host": HOST, "pid": os.getpid()}
    assert list(tmp_path.iterdir()) == []


def test_lock_goes_away_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"), RunLock(tmp_path):
        raise RuntimeError("boom")
    assert list(tmp_path.iterdir()) == []


def test_lock_of_this_very_process_is_held(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        assert f"process {os.getpid()} on {HOST}" in refusal(tmp_path)


def test_lock_of_another_living_process_is_held_and_stays(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as living:
        path = held_by(tmp_path, HOST, living.pid)
        assert f"process {living.pid} on {HOST}" in refusal(tmp_path)
        assert json.loads(path.read_text(encoding="utf-8"))["pid"] == living.pid
        living.communicate(b"\n")


def test_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    held_by(tmp_path, HOST, dead_process())
    with RunLock(tmp_path) as held:
        assert json.loads(held.path.read_text(encoding="utf-8"))["pid"] == os.getpid()
        assert [p.name for p in tmp_path.iterdir()] == [lock.NAME]
    assert list(tmp_path.iterdir()) == []


def test_lock_of_another_host_is_held_even_if_its_process_is_not_here(tmp_path: Path) -> None:
    path = held_by(tmp_path, "elsewhere", dead_process())
    assert "on elsewhere" in refusal(tmp_path)
    assert path.is_file()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '"text"', "{}", '{"host": "here"}', '{"host": "here", "pid": "many"}', "\udcff"],
)
def test_damaged_lock_is_held_and_stays(tmp_path: Path, content: str) -> None:
    path = tmp_path / lock.NAME
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert "another process" in refusal(tmp_path)
    assert path.read_bytes() == content.encode("utf-8", "surrogateescape")


def test_lock_with_an_impossible_process_is_held(tmp_path: Path) -> None:
    path = held_by(tmp_path, HOST, 10**20)
    refusal(tmp_path)
    assert path.is_file()


def take(folder: Path, won: list[str], name: str) -> None:
    try:
        RunLock(folder).__enter__()
    except UsageError:
        return
    won.append(name)


def test_two_that_want_a_free_lock_get_one(tmp_path: Path) -> None:
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        won: list[str] = []
        start = threading.Barrier(2)

        def race(name: str, folder: Path = folder, won: list[str] = won, start: threading.Barrier = start) -> None:
            start.wait()
            take(folder, won, name)

        takers = [threading.Thread(target=race, args=(name,)) for name in "ab"]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join()
        assert len(won) == 1


def test_two_that_find_the_same_stale_lock_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held_by(tmp_path, HOST, dead_process())
    won: list[str] = []
    really_alive = lock._alive
    faster = threading.Thread(target=take, args=(tmp_path, won, "faster"))

    def alive(pid: int) -> bool:
        # The slower one has read the stale lock and is about to act on it; the faster one takes over in between.
        if threading.current_thread() is threading.main_thread() and not faster.ident:
            faster.start()
            faster.join(timeout=0.5)
        return really_alive(pid)

    monkeypatch.setattr(lock, "_alive", alive)
    take(tmp_path, won, "slower")
    faster.join()
    assert len(won) == 1
    assert (tmp_path / lock.NAME).is_file()
