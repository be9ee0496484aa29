"""Run folders of throughput suites: plan.json first, one line of cells.jsonl a finished cell, manifest.json last.

AIPerf's own files of a cell lie in a folder below, as AIPerf left them. What is kept of them here are its figures as
it printed them, and what they are read with: what was dropped, what the server counted, how many drafts it accepted.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, ValidationError

from spec_eval import jsontext
from spec_eval.errors import UsageError
from spec_eval.store.folder import Folder, append_line, damaged, read_model, write_model
from spec_eval.store.plan import Member, PlanHead, PromptRef, Stored
from spec_eval.suite import Sampling, Window

T = TypeVar("T", bound=Stored)
Finite = Annotated[float, Field(allow_inf_nan=False)]
SCHEMA_VERSION: Final = 1
KIND: Final = "throughput"
# By name. Only "ok" has figures; every other one is a hole in the curve, and never a zero.
OK: Final = "ok"
ZERO: Final = "zero completions"
ALL_FAILED: Final = "all failed"
FAILED: Final = "AIPerf failed"
MISSING: Final = "AIPerf missing"
OTHER_VERSION: Final = "another AIPerf"
TIMED_OUT: Final = "timed out"
KILLED: Final = "killed"
Outcome = Literal[
    "ok",
    "zero completions",
    "all failed",
    "AIPerf failed",
    "AIPerf missing",
    "another AIPerf",
    "timed out",
    "killed",
]


class Tool(Stored):
    """The AIPerf that is used.

    found: by the option, the variable, in this environment or on the path. any_version: whether one of another minor
    version than the known one was allowed.
    """

    path: str
    version: str
    found: str
    any_version: bool = False


class WindowPlan(PlanHead):
    """plan.json of a throughput run.

    dataset, title: of the prompts. member: the suite that the prompts come from.
    tokenizer: the one that was named; null where a stand-in is given to AIPerf, which loads it and counts nothing
    with it.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["throughput"] = KIND
    member: Member
    member_name: str
    dataset: str
    title: str
    sampling: Sampling
    window: Window
    prompts: PromptRef
    aiperf: Tool
    tokenizer: str | None = None

    @property
    def settings_sha256(self) -> str:
        """Of all that must stay the same while a run is taken up again."""
        chosen = self.model_dump(mode="json", include={"target", "sampling", "window", "prompts", "seed", "tokenizer"})
        chosen["target"].pop("base_url")
        return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()

    @property
    def slots(self) -> int:
        """Requests at a time, at the highest level."""
        return max(self.window.concurrency)

    @property
    def load_is_heavy(self) -> bool:
        """AIPerf's is."""
        return True


class Requests(Stored):
    """Of the window alone. dispatched = completed + failed + dropped; null is "not known".

    dropped: cut off by the end of the window, and in none of AIPerf's figures.
    """

    dispatched: int | None = None
    completed: int | None = None
    failed: int | None = None
    dropped: int | None = None


class Dropped(Stored):
    """Share of the window's work that its end dropped. basis: what it is a share of."""

    share: Finite
    basis: Literal["tokens", "requests"]


class ServerWindow(Stored):
    """What the server counted: generated tokens between the first and the last reading inside the window.

    tokens_per_second: their ratio, null with a reason. counter: name of the family. seconds: between the readings.
    at_end: the counter moves when an answer ends, so that what the window dropped is not in it either.
    """

    tokens_per_second: Finite | None = None
    reason: str | None = None
    counter: str | None = None
    at_end: bool = False
    tokens: Finite | None = None
    seconds: Finite | None = None


class PrefixCache(Stored):
    """Prompt tokens that the server looked for in its prefix cache, and those that it found there, in the window."""

    queries: int
    hits: int


class Drafts(Stored):
    """Counters of the answers that the window completed, summed; by category too.

    A window favours short answers, so this is no acceptance length of the suite. requests: with usable counters.
    answers: completed ones. prompts: distinct ones among them. unknown_prompts: records of a prompt that was not sent.
    drafted, histogram: null where any request does not know them. no_counters: requests without, by reason.
    """

    answers: int
    requests: int
    prompts: int
    unknown_prompts: int = 0
    steps: int
    accepted: int
    drafted: int | None
    histogram: tuple[int, ...] | None
    no_counters: dict[str, int] = Field(default_factory=dict)
    by_category: dict[str, "Sums"] = Field(default_factory=dict)

    @property
    def acceptance_length(self) -> float | None:
        """1 + ΣA / ΣS, of the window."""
        return 1 + self.accepted / self.steps if self.steps else None


class Sums(Stored):
    """Of one category."""

    requests: int
    steps: int
    accepted: int


class WindowCell(Stored):
    """One line of cells.jsonl: one level of concurrency, one repeat.

    folder: of AIPerf's files, seen from the run folder. detail: what went wrong, or null. native: AIPerf's own
    metrics, as parsed: {name: {"unit": …, "avg": …}}. command: as it was run. start_ns, end_ns: of the window.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    concurrency: int
    repeat: int
    outcome: Outcome
    detail: str | None = None
    folder: str
    command: tuple[str, ...]
    started: str
    ended: str
    seconds: Finite
    exit_code: int | None = None
    aiperf_version: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    native: dict[str, dict[str, Any]] = Field(default_factory=dict)
    requests: Requests = Requests()
    dropped: Dropped | None = None
    server_window: ServerWindow = ServerWindow()
    prefix_cache: PrefixCache | None = None
    drafts: Drafts | None = None
    drafts_reason: str | None = None

    @property
    def key(self) -> tuple[int, int]:
        """What is measured once."""
        return self.concurrency, self.repeat

    @property
    def name(self) -> str:
        """As its folder is called."""
        return cell_name(self.concurrency, self.repeat)

    def fails_more_than(self, allowed: float) -> bool:
        """Whether of the requests that came to an end a larger share than that failed; not where nobody counted."""
        completed, failed = self.requests.completed, self.requests.failed
        if completed is None or failed is None or not completed + failed:
            return False
        return failed / (completed + failed) > allowed

    def average(self, metric: str) -> float | None:
        """AIPerf's own mean; null where the cell has none."""
        return figure(self.native.get(metric, {}).get("avg")) if self.outcome == OK else None


class WindowSession(Stored):
    """One stretch of measuring, with what the server said of itself. settings_sha256: of the plan."""

    schema_version: Literal[1] = SCHEMA_VERSION
    started: str
    settings_sha256: str | None = None
    server: dict[str, Any]


class WindowManifest(Stored):
    """manifest.json of a throughput run: every planned cell was tried."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    started: str
    ended: str
    server: dict[str, Any]
    sessions: tuple[WindowSession, ...]
    packages: dict[str, str]
    platform: dict[str, Any]
    notes: tuple[str, ...] = ()


def figure(value: object) -> float | None:
    """A number of AIPerf's that can be one: finite, and not below zero; else null."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond every float
        return None
    return number if math.isfinite(number) and number >= 0 else None


def cell_name(concurrency: int, repeat: int) -> str:
    """As c4-r1."""
    return f"c{concurrency}-r{repeat}"


class WindowFolder(Folder):
    """The folder of one throughput run."""

    def write_plan(self, plan: WindowPlan) -> None:
        """Before anything else."""
        write_model(self.path / "plan.json", plan)

    def plan(self) -> WindowPlan:
        """As written."""
        return read_model(self.path / "plan.json", WindowPlan)

    def write_manifest(self, manifest: WindowManifest) -> None:
        """After everything else."""
        write_model(self.path / "manifest.json", manifest)

    def manifest(self) -> WindowManifest | None:
        """Null while the run is not whole."""
        return read_model(self.path / "manifest.json", WindowManifest) if self.is_whole else None

    def start_session(self, session: WindowSession) -> None:
        """The run is not whole again until it ends."""
        (self.path / "manifest.json").unlink(missing_ok=True)
        append_line(self.path / "sessions.jsonl", session.model_dump(mode="json"))

    def sessions(self) -> tuple[WindowSession, ...]:
        """In order; a line that a kill tore is left out."""
        return tuple(_lines(self.path / "sessions.jsonl", WindowSession))

    def settings(self) -> str | None:
        """settings_sha256 that the first session began with; None before it, and of a run that kept none."""
        return next((session.settings_sha256 for session in self.sessions()), None)

    def append(self, cell: WindowCell) -> None:
        """One line, on the disk before this returns."""
        append_line(self.path / "cells.jsonl", cell.model_dump(mode="json"))

    def cells(self) -> dict[tuple[int, int], WindowCell]:
        """The line that counts of every cell that was tried: the first that is ok, else the last."""
        kept: dict[tuple[int, int], WindowCell] = {}
        for cell in _lines(self.path / "cells.jsonl", WindowCell):
            held = kept.get(cell.key)
            if held is None or held.outcome != OK:
                kept[cell.key] = cell
        return kept

    def fresh(self, concurrency: int, repeat: int) -> Path:
        """A folder for AIPerf's files that is not there yet; one of an attempt before stays as it is."""
        parent = self.path / "cells"
        parent.mkdir(exist_ok=True)
        name = cell_name(concurrency, repeat)
        tries = [parent / name, *(parent / f"{name}.{n}" for n in range(2, 1000))]
        return next(path for path in tries if not path.exists())

    def write_prompts(self, repeat: int, lines: Sequence[dict[str, Any]]) -> Path:
        """AIPerf's input of one repeat."""
        folder = self.path / "prompts"
        folder.mkdir(exist_ok=True)
        path = folder / f"r{repeat}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="ascii")
        return path

    def discard_unused(self) -> None:
        """Remove the folder of a run that never started a cell."""
        names = {path.name for path in self.path.iterdir()}
        if names <= {"plan.json", "run.lock"}:
            for name in names:
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()


def _lines(path: Path, model: type[T]) -> list[T]:
    """Whole lines; what a kill tore is left out, UsageError names a line of another version or shape."""
    found = []
    for line in jsontext.read_lines(path) if path.is_file() else ():
        if isinstance(line, jsontext.Damaged):
            continue  # torn by a kill: that cell is measured again
        version = line.value.get("schema_version", SCHEMA_VERSION)
        if not jsontext.is_version(version, SCHEMA_VERSION):
            raise UsageError(
                f"{path}: line {line.number} has schema version {version!r}, this spec-eval reads {SCHEMA_VERSION}; "
                "use the version that wrote it"
            )
        try:
            found.append(model.model_validate(line.value))
        except ValidationError as error:
            raise damaged(f"{path}: line {line.number}", error) from error
    return found
