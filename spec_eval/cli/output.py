"""Standard output: a reader that left is no failure, a full disk is one line."""

import contextlib
import os
import sys

from spec_eval.errors import EnvironmentFault


def say(text: str, end: str = "\n") -> None:
    """Print it now; BrokenPipeError where nobody reads any more, EnvironmentFault where it cannot be written."""
    try:
        print(text, end=end)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _full(error) from error
    flush()


def flush() -> None:
    """Write what standard output still holds back; raises as `say` does. A closed one holds nothing."""
    if sys.stdout is None:
        return  # so a process begins whose standard output is closed
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _full(error) from error


def abandon() -> None:
    """Let go of what cannot be written, so that the interpreter does not try again at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _full(error: OSError) -> EnvironmentFault:
    abandon()
    return EnvironmentFault(f"standard output: cannot be written ({error.strerror}); send it elsewhere")
