"""What spec-eval itself costs: the share of an embedded run's time in which no request is with the server.

python benchmarks/overhead.py [PROMPTS]
"""

import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from spec_eval import run as running
from spec_eval.render.progress import Progress


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """Length of the union of `spans`."""
    total = reached = 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def main() -> None:
    """Drive the suite smoke on the embedded engine once and take the records' own times apart."""
    prompts = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as folder:
        began = time.time_ns()
        finished = running.start(
            running.RunOptions(suite="smoke", engine="embedded", limit=prompts, out=Path(folder)), Progress()
        )
        ended = time.time_ns()
        spans = [
            (r.start_ns, r.end_ns)
            for r in finished.folder.records().records
            if r.start_ns is not None and r.end_ns is not None
        ]
        (session,) = finished.folder.session_ends()
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    served = covered(spans)
    started, stopped = (int(datetime.fromisoformat(t).timestamp() * 1e9) for t in (session.started, session.ended))
    print(f"requests                          {len(spans):8}")
    print(f"the whole call                    {(ended - began) / 1e9:8.2f} s")
    print(f"  of it start-up, to request 1    {(first - began) / 1e9:8.2f} s")
    print(f"  of it after the last answer     {(ended - last) / 1e9:8.2f} s")
    print(f"driving, first request to last    {(last - first) / 1e9:8.2f} s")
    print(f"  no request with the server      {1 - served / (last - first):8.3%}")
    print(f"driving with both counter reads   {(stopped - started) / 1e9:8.2f} s")
    print(f"  no request with the server      {1 - served / (stopped - started):8.3%}")


if __name__ == "__main__":
    main()
