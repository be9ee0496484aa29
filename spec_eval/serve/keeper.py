"""Stands between spec-eval and an engine: `python keeper.py GRACE_S COMMAND…`. Standard library only.

It leads the process group of the engine and lives as long as its standard input is open: the pipe closes with
spec-eval, however that ends, and then the group is ended. So a run that is killed leaves no server on the GPUs.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time


def main() -> None:
    """Run the command, and leave with its exit code; 128 + the signal's number where a signal ended it."""
    # SIGTERM to the group is for the engine. A handler of ours is not inherited by it; an ignored signal would be.
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    engine = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    code = engine.wait()
    sys.exit(code if code >= 0 else 128 - code)


def _end_with_parent() -> None:
    """Wait for the end of standard input, then end the group, ourselves included: asked first, killed GRACE_S later."""
    while os.read(0, 4096):
        pass
    own = os.getpgrp()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(own, signal.SIGTERM)
        time.sleep(float(sys.argv[1]))
        os.killpg(own, signal.SIGKILL)


if __name__ == "__main__":
    main()
