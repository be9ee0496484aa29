"""Start-up time: `spec-eval --help` beside a bare interpreter, and what reading a run folder has to import.

python benchmarks/imports.py [RUN]
"""

import json
import statistics
import subprocess
import sys
import time

ROUNDS = 10
FACE = "from spec_eval.cli import main; main({argv!r})"
HEAVY = ("openai", "datasets", "pandas", "pyarrow", "pydantic", "numpy", "scipy", "aiohttp", "matplotlib", "rich")


def wall(code: str) -> float:
    """Seconds of a fresh interpreter that runs `code`."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True, timeout=60)
    return time.perf_counter() - began


def modules(code: str) -> list[str]:
    """Names in sys.modules after `code`, whatever exit it takes."""
    code = (
        "import contextlib, io, json, sys\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        f"    try:\n        {code}\n    except SystemExit:\n        pass\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    names: list[str] = json.loads(child.stdout)
    return names


def main() -> None:
    """Bare and --help take turns, so that both see the same machine."""
    help_code = FACE.format(argv=["--help"])
    bare_times, help_times = [], []
    wall(help_code)  # byte code is written once
    for _ in range(ROUNDS):
        bare_times.append(wall("pass"))
        help_times.append(wall(help_code))
    bare, shown = statistics.median(bare_times), statistics.median(help_times)
    print(f"python -c pass     {bare * 1000:6.0f} ms (median of {ROUNDS})")
    print(f"spec-eval --help   {shown * 1000:6.0f} ms, {shown / bare:.1f} times bare")
    reading = "from spec_eval import tables; from spec_eval.render import console, markdown"
    paths = {
        "--help": help_code,
        "report": FACE.format(argv=["report", sys.argv[1]]) if len(sys.argv) > 1 else reading,
        "report, csv": FACE.format(argv=["report", sys.argv[1], "--format", "csv"])
        if len(sys.argv) > 1
        else f"{reading}, csv",
    }
    for name, code in paths.items():
        found = modules(code)
        there = [heavy for heavy in HEAVY if heavy in found]
        print(f"{name:18} {len(found):6} modules, of the heavy ones {', '.join(there) or 'none'}")


if __name__ == "__main__":
    main()
