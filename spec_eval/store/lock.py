"""One writer a run folder."""

import contextlib
import json
import os
import socket
from pathlib import Path
from types import TracebackType

from spec_eval import jsontext
from spec_eval.errors import UsageError

NAME = "run.lock"


class RunLock:
    """An O_EXCL file with host and pid; a lock whose process is gone, on this host, is taken over."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def __enter__(self) -> "RunLock":
        for _ in range(2):
            try:
                handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                self._clear_stale()
                continue
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump({"host": socket.gethostname(), "pid": os.getpid()}, stream)
            return self
        raise self._held(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.path.unlink(missing_ok=True)

    def _clear_stale(self) -> None:
        """Remove a dead process's lock; UsageError where its holder may live.

        The rename decides between two that find the same stale lock: only one of them can move it away.
        """
        owner = _owner(self.path)
        if owner is None or owner[0] != socket.gethostname() or _alive(owner[1]):
            raise self._held(owner)
        aside = self.path.with_name(f"{NAME}.stale-{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(aside)
            moved = _owner(aside)
            if moved != owner:
                # Another taker was faster: what was moved is its fresh lock. Give it back.
                with contextlib.suppress(FileExistsError):
                    os.link(aside, self.path)
                aside.unlink()
                raise self._held(moved)
            aside.unlink()

    def _held(self, owner: tuple[str, int] | None) -> UsageError:
        who = f"process {owner[1]} on {owner[0]}" if owner else "another process"
        return UsageError(f"{self.path}: held by {who}; wait for it, or delete this file if it no longer runs")


def _owner(path: Path) -> tuple[str, int] | None:
    try:
        content = jsontext.loads(path.read_text(encoding="utf-8"))
        return str(content["host"]), int(content["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
