"""Many runs by one file: for each recipe, engine, hardware and suite a server of its own, a run, and the next.

A server that dies loses its own arm only. Each arm has a folder of its own, so that the same command goes on where the
last one ended: whole arms are left alone, begun ones are resumed, the others are started.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field

from spec_eval import suite, toml
from spec_eval.drivers import aiperf
from spec_eval.engines.launch import local_name
from spec_eval.errors import Interrupted, RunNotWhole, SpecEvalError, UsageError
from spec_eval.interrupts import terminate_as_interrupt
from spec_eval.render.progress import Progress
from spec_eval.run import kinds, targets
from spec_eval.run.kinds import Finished
from spec_eval.run.options import RunOptions
from spec_eval.toml import Frozen

# What the command line may set beside --matrix, for all arms.
_SHARED = (
    "limit",
    "repeats",
    "concurrency",
    "seed",
    "temperature",
    "top_p",
    "max_tokens",
    "thinking",
    "data_dir",
    "max_failures",
    "cold_cache",
    "first_turn_only",
    "reasoning_in_history",
    "trust_remote_code",
    "duration",
    "warmup",
    "tokenizer",
)


class Block(Frozen):
    """A product of lists: an arm for each combination. An empty list is the recipe's own first. k: in drafts."""

    recipes: tuple[str, ...] = Field(min_length=1)
    suites: tuple[str, ...] = Field(min_length=1)
    engines: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    k: tuple[int, ...] = ()
    model: str | None = None
    draft: str | None = None
    variant: str | None = None


class Matrix(Frozen):
    """One matrix file."""

    schema_version: int
    name: str = Field(pattern=r"^[A-Za-z0-9][\w.-]*$")
    arms: tuple[Block, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Arm:
    """One run. id: names its folder."""

    id: str
    options: RunOptions


@dataclass(frozen=True)
class Arms:
    """All runs of a file. home: their folder. settings_sha256: of the file and of the options for all of them."""

    home: Path
    settings_sha256: str
    arms: tuple[Arm, ...]


@dataclass
class Outcome:
    """runs: the folders of arms that were driven. lost: why an arm is not whole, by id."""

    runs: list[Finished] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)


def read(path: Path, shared: RunOptions) -> Arms:
    """The arms of a file; UsageError where one of them cannot be, before any of them starts.

    Files and folders in it are meant from the matrix file's own folder.
    """
    text = toml.read_text(path)
    matrix = toml.parse(Matrix, text, path)
    home = shared.out / f"matrix-{matrix.name}"
    arms: dict[str, Arm] = {}
    for block in matrix.arms:
        for arm in _arms(block, path.parent, shared, home):
            if arm.id in arms:
                raise UsageError(f"{path}: arm {arm.id} stands there twice; drop one of the two")
            arms[arm.id] = arm
    _refuse_idle(list(arms.values()), shared)
    settings = {name: getattr(shared, name) for name in _SHARED}
    digest = hashlib.sha256((json.dumps(settings, sort_keys=True, default=str) + text).encode()).hexdigest()
    return Arms(home, digest, tuple(arms.values()))


def _refuse_idle(arms: Sequence[Arm], shared: RunOptions) -> None:
    """UsageError for an option that no arm takes; EnvironmentFault where one needs AIPerf, and it is missing."""
    windowed = [kinds.is_throughput(arm.options) for arm in arms]
    if not any(windowed):
        kinds.refuse_beside_requests(shared)
    elif all(windowed):
        kinds.refuse_beside_windows(shared)
    if any(windowed):
        aiperf.find(shared.aiperf)


def _arms(block: Block, folder: Path, shared: RunOptions, home: Path) -> Iterator[Arm]:
    lists: tuple[tuple[Any, ...], ...] = (
        block.recipes,
        block.engines or (None,),
        block.hardware or (None,),
        block.k or (None,),
        block.suites,
    )
    for named, engine, place, k, about in product(*lists):
        options = replace(
            shared,
            suite=_near(folder, about),
            serve=_near(folder, named),
            engine=engine,
            hardware=None if place is None else _near(folder, place),
            k=k,
            model=None if block.model is None else _near(folder, block.model),
            draft=None if block.draft is None else _near(folder, block.draft),
            variant=block.variant,
        )
        suite.find(options.suite)
        target = targets.choose(options)
        assert target.recipe is not None
        assert target.hardware is not None
        own = [local_name(part) for part in (options.model, options.draft, block.variant) if part is not None]
        drafts = [] if target.k is None else [f"k{target.k}"]
        parts = [target.recipe["name"], *own, target.engine, target.hardware["name"], *drafts, Path(about).stem]
        arm_id = re.sub(r"[^\w.-]", "_", "-".join(parts))
        yield Arm(arm_id, replace(kinds.of_its_kind(options), out=home / arm_id))


def _near(folder: Path, name: str) -> str:
    """A path from the matrix file's folder, where something is there; else the name as it stands."""
    return str((folder / name).resolve()) if (folder / name).exists() else name


def _begin(matrix: Arms) -> None:
    """A second start with another file or other options is refused: its arms would not be one matrix."""
    kept = matrix.home / "matrix.sha256"
    if kept.is_file() and kept.read_text(encoding="utf-8").strip() != matrix.settings_sha256:
        raise UsageError(
            f"{matrix.home}: begun with another file or other options; give another --out, or another name in the file"
        )
    matrix.home.mkdir(parents=True, exist_ok=True)
    kept.write_text(f"{matrix.settings_sha256}\n", encoding="utf-8")


def drive(matrix: Arms, progress: Progress, finished: Callable[[Finished], None]) -> Outcome:
    """Every arm in turn; `finished` is called with each run that left something. Ctrl-C ends the whole."""
    _begin(matrix)
    outcome = Outcome()
    arms = matrix.arms
    with terminate_as_interrupt():
        for number, arm in enumerate(arms, 1):
            progress.note(f"arm {number} of {len(arms)}: {arm.id}")
            try:
                run = _one(arm, progress)
            except SpecEvalError as lost:
                progress.note(f"arm {arm.id} is lost: {lost}")
                outcome.lost[arm.id] = str(lost)
                continue
            outcome.runs.append(run)
            finished(run)
            if isinstance(run.shortfall, Interrupted):
                raise run.shortfall
            if run.shortfall is not None:
                outcome.lost[arm.id] = str(run.shortfall)
    return outcome


def _one(arm: Arm, progress: Progress) -> Finished:
    """The arm's run: resumed where it was begun, else started."""
    begun = sorted(path.parent for path in arm.options.out.glob("*/plan.json"))
    if not begun:
        return kinds.start(arm.options, progress)
    return kinds.resume(begun[-1], progress)


def shortfall(outcome: Outcome, matrix: Arms) -> RunNotWhole | None:
    """Why the matrix is not whole, or None."""
    if not outcome.lost:
        return None
    told = "; ".join(f"{name}: {why}" for name, why in outcome.lost.items())
    return RunNotWhole(
        f"{len(outcome.lost)} of {len(matrix.arms)} arms are not whole; run the same command to go on ({told})"
    )
