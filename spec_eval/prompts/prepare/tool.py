"""NVIDIA's own preparer: a checkout that the user names, run as a child for a whole config, its output checked."""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from spec_eval import git
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import rows
from spec_eval.prompts.prepare.published import Published, waits
from spec_eval.prompts.rows import Problem
from spec_eval.prompts.speed_bench import GATED, source_name

_SCRIPT = "prepare_data.py"
_FITTING = "use the checkout and the data set that fit the published revision"


@dataclass(frozen=True, slots=True)
class Tool:
    """The folder with the script. `commit` is null where it is no git checkout; `changed`: tracked files differ."""

    folder: Path
    python: str
    name: str
    commit: str | None
    changed: bool

    @classmethod
    def at(cls, path: Path, python: str) -> "Tool":
        """A checkout of Model-Optimizer, or its examples/specdec_bench; UsageError where it is neither."""
        for folder in (path / "examples" / "specdec_bench", path):
            if (folder / _SCRIPT).is_file():
                break
        else:
            raise UsageError(
                f"--tool {path}: no examples/specdec_bench/{_SCRIPT} there; give a checkout of NVIDIA Model-Optimizer"
            )
        folder = folder.resolve()
        # A path is looked up from the child's folder; a link of a virtual environment has to stay one.
        python = str(Path(python).absolute()) if os.sep in python else python
        tracked = git.checkout(folder, _SCRIPT)
        return cls(
            folder=folder,
            python=python,
            name=path.resolve().name,
            commit=tracked.commit if tracked else None,
            changed=tracked.changed if tracked else False,
        )

    def turns(self, published: Published, log: Path) -> list[list[str]]:
        """Every row's turns as the tool prepares them, in the published order; its words go to `log`.

        EnvironmentFault where it fails, or where what it wrote is not the published config resolved.
        """
        with tempfile.TemporaryDirectory(prefix="spec-eval-") as scratch:
            self._run(published, Path(scratch), log)
            path = Path(scratch) / "speed" / published.config / "test.parquet"
            if not path.is_file():
                raise EnvironmentFault(f"{self.name}: wrote no speed/{published.config}/test.parquet; its log is {log}")
            return _checked(path, published, self.name)

    def _run(self, published: Published, scratch: Path, log: Path) -> None:
        argv = [self.python, _SCRIPT, "--dataset", "speed", "--config", published.config, "--output_dir", str(scratch)]
        try:
            with log.open("wb") as stream:
                code = subprocess.run(
                    argv,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    check=False,
                ).returncode
        except OSError as error:
            raise UsageError(f"{self.python}: cannot be run ({error.strerror}); give --tool-python") from error
        if code != 0:
            lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
            gated = {source_name(published.rows[number]["source"]) for number in published.waiting} & set(GATED)
            terms = f"; {min(gated)} is gated: accept its terms on the hub and set HF_TOKEN" if gated else ""
            raise EnvironmentFault(f"{self.name}: exit {code} for {published.config}: {last[:300]}; see {log}{terms}")


def _checked(path: Path, published: Published, name: str) -> list[list[str]]:
    found = list(rows.read([path]))
    where = f"{name}: {published.config}"
    if len(found) != len(published.rows):
        raise EnvironmentFault(f"{where}: {len(found)} rows, {len(published.rows)} are published; {_FITTING}")
    turns: list[list[str]] = []
    for number, ((_, row), original) in enumerate(zip(found, published.rows, strict=True), 1):
        place = f"{where}: row {number}"
        if isinstance(row, Problem):
            raise EnvironmentFault(f"{place}: {row.text}; {_FITTING}")
        if row.get("question_id") != original["question_id"]:
            raise EnvironmentFault(
                f"{place} is {row.get('question_id')!r}, published is {original['question_id']!r}; {_FITTING}"
            )
        got = row.get("turns")
        if not isinstance(got, list) or not got or not all(isinstance(turn, str) and turn.strip() for turn in got):
            raise EnvironmentFault(f"{place}: turns are not a list of texts; {_FITTING}")
        if waits(got):
            raise EnvironmentFault(
                f"{place} ({source_name(original['source'])}) is still a placeholder; update the checkout"
            )
        if not waits(original["turns"]) and got != original["turns"]:
            raise EnvironmentFault(f"{place}: its turns are published, and the tool's are others; {_FITTING}")
        turns.append(got)
    return turns
