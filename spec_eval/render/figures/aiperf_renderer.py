"""AIPerf's own plot classes, in AIPerf's environment: a small program there gets the points and gives the pictures."""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spec_eval.curves import Comparison
from spec_eval.errors import EnvironmentFault
from spec_eval.render.figures import throughput
from spec_eval.render.throughput import X_NAME, Y_NAME

_PROGRAM = Path(__file__).with_name("aiperf_program.py")
_LIMIT_S = 300.0


def draw(found: Comparison, notes: Sequence[str], executable: Path) -> dict[str, bytes]:
    """suffix → content, with `notes` below the curves; EnvironmentFault where that environment cannot draw."""
    python = executable.resolve().parent / "python"
    if not python.is_file():
        raise EnvironmentFault(f"{executable}: no python beside it, which would draw; give AIPerf's own with --aiperf")
    with tempfile.TemporaryDirectory() as folder:
        job = json.dumps({**_points(found), "notes": [*notes], "folder": folder})
        try:
            done = subprocess.run(
                [str(python), "-P", str(_PROGRAM)],
                input=job,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentFault(f"{python}: does not draw ({error}); drop --renderer aiperf") from error
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise EnvironmentFault(f"{python}: AIPerf's plot classes do not draw ({last}); drop --renderer aiperf")
        return {path.suffix: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def _points(found: Comparison) -> dict[str, Any]:
    """In order of concurrency; a hole is null."""
    series = [
        {
            "name": arm.label,
            "points": [
                {"x": p.x.mean, "y": p.y.mean, "label": str(p.concurrency), "n": p.y.n}
                if p.x is not None and p.y is not None
                else None
                for p in arm.points
            ],
        }
        for arm in found.arms
        if arm.by_level
    ]
    return {"title": throughput.title(found), "x": X_NAME, "y": Y_NAME, "series": series}
