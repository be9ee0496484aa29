"""The process: the command `spec-eval`, and `python -m spec_eval`.

Imports nothing of ours before it is ready for a signal: from here to the end of the process, Ctrl-C and SIGTERM are
one line and exit code 5.
"""

import atexit
import contextlib
import io
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 5


def main() -> NoReturn:
    """Run the command line and leave with its exit code."""
    code: object = _INTERRUPTED
    atexit.register(_ignore_signals)  # registered first, called last: the interpreter's own end is not to be cut
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _interrupt)
        _ready_streams()
        from spec_eval.cli import main as face

        face()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            print("spec-eval: interrupted", file=sys.stderr)
    except SystemExit as left:
        code = left.code

    def leave(_number: int, _frame: FrameType | None) -> None:
        os._exit(code if isinstance(code, int) else _INTERRUPTED)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
    raise SystemExit(code)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _ready_streams() -> None:
    """No socket of ours may get the number of a closed standard stream; no odd character may stop a report."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
