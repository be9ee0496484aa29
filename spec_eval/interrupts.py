"""Ctrl-C and SIGTERM while a run goes: both end it in order, and neither cuts what must be written whole."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM acts as Ctrl-C, so that a scheduler's end of a job keeps what was measured.

    Raised here rather than sent on as SIGINT: a job in the background of a script ignores that one.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    held = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, held)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Both signals wait for the end of the block, and are a KeyboardInterrupt then; an ignored one stays ignored."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    heard = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, note) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def cancel_on_terminate() -> None:
    """Inside the event loop SIGTERM cancels the work in order; an exception out of a signal handler would not."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    held = signal.getsignal(signal.SIGTERM)
    assert task is not None

    def restore(_task: asyncio.Task[None]) -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, held)

    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    task.add_done_callback(restore)
