"""Suites: what is measured.

A simple suite names a data set and its revision, how a row becomes a conversation, sampling and load. A compound
suite makes the tables of a card in one call: it lists cells, each a simple suite at settings of its own. A throughput
suite puts load on a server with the prompts of a simple one, in windows of fixed length.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from spec_eval import rules, shipped, toml
from spec_eval.errors import UsageError
from spec_eval.toml import Frozen


class DataSpec(Frozen):
    """Where the rows come from.

    Either `file` (beside the suite), or `hub` with `config`, `split` and a pinned `revision`; `hub_files` names the
    files of the repository where it has no configs. `local` are the patterns under `--data-dir` that hold the same
    rows. `rows` and `sha256` (of the prompts as built) are checked; `local_sha256` where the local rows are another
    edition. `standin` is what a stand-in of the set is called, after "stand-in-", so that made-up rows never carry
    the real name.
    """

    file: str | None = None
    hub: str | None = None
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    hub_files: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    rows: int | None = Field(default=None, gt=0)
    sha256: str | None = None
    local_sha256: str | None = None
    standin: str | None = None
    licence: str
    gated: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> "DataSpec":
        if (self.file is None) == (self.hub is None):
            raise ValueError("data needs exactly one of file and hub")
        beside = ("config", "split", "revision", "hub_files", "local", "local_sha256", "standin")
        if self.file is not None and (extra := [name for name in beside if getattr(self, name)]):
            raise ValueError(f"data.{extra[0]} is for data.hub and has no effect beside data.file; drop it")
        if self.hub is not None and (self.revision is None or self.split is None):
            raise ValueError("data.hub needs data.revision and data.split")
        return self


class PromptSpec(Frozen):
    """How a row becomes a conversation, in exactly one of three ways.

    template: one user turn; `{column}` is replaced, every other brace stays as it is.
    turns: column with a list of user turns. messages: column with a list of messages, sent as they are.
    adapter: reads rows of an odd shape first. id: column of the prompt's name (the row's number where absent).
    category: column, or `category_name` for all.
    """

    template: str | None = None
    turns: str | None = None
    messages: str | None = None
    adapter: Literal["speed-bench", "mt-bench", "mrcr"] | None = None
    id: str | None = None
    category: str | None = None
    category_name: str | None = None
    subcategory: str | None = None

    @model_validator(mode="after")
    def _one_way(self) -> "PromptSpec":
        if sum(way is not None for way in (self.template, self.turns, self.messages)) != 1:
            raise ValueError("prompt needs exactly one of template, turns and messages")
        if self.category is not None and self.category_name is not None:
            raise ValueError("prompt has both category and category_name; drop one")
        return self


class Sampling(Frozen):
    """What is sent with every request; null is not sent, and recorded as the server's default.

    A suite must name temperature and max_tokens; only what is imported may not know them.
    """

    temperature: float | None = Field(default=None, ge=0, strict=True, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, gt=0, strict=True)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    top_k: int | None = None
    min_p: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    presence_penalty: float | None = Field(default=None, allow_inf_nan=False)
    frequency_penalty: float | None = Field(default=None, allow_inf_nan=False)
    thinking: bool | None = None

    def over(self, other: "Sampling") -> "Sampling":
        """These settings, and those of `other` where these are null."""
        return other.model_copy(update=self.model_dump(exclude_none=True))


class Load(Frozen):
    """How the requests are sent: concurrent conversations, and how often each prompt is asked."""

    concurrency: int = Field(default=1, gt=0)
    repeats: int = Field(default=1, gt=0)


class Select(Frozen):
    """Which rows: those of these categories, and of them the first so many of each."""

    categories: tuple[str, ...] = ()
    first: int | None = Field(default=None, gt=0)


def _is_rule(text: str) -> str:
    rules.parse(text)
    return text


GateRules = tuple[Annotated[str, AfterValidator(_is_rule)], ...]


class Suite(Frozen):
    """One data set at one setting. `first_turn_only` drops later turns, as several tools do.

    gate: rules that `spec-eval gate` holds a run of it to, where its command line names none.
    """

    schema_version: int
    name: str
    title: str
    description: str = ""
    data: DataSpec
    prompt: PromptSpec
    sampling: Sampling
    load: Load = Load()
    select: Select = Select()
    first_turn_only: bool = False
    gate: GateRules = ()

    @model_validator(mode="after")
    def _sampling_is_stated(self) -> "Suite":
        if missing := [name for name in ("temperature", "max_tokens") if getattr(self.sampling, name) is None]:
            raise ValueError(f"sampling needs {' and '.join(missing)}")
        return self


class CellSpec(Frozen):
    """One cell of a compound suite.

    id: unique in the suite. table: heading of the table its rows go into. title: of its row, or of its rows' prefix.
    rows: one row for the cell, or one for each category in the order of `order`.
    profile: the published row that it measures, as CARD:TABLE:ROW, or its table, as CARD:TABLE, where it has a row for
    each category or for each bin of prompt lengths. Only the emulator reads it.
    """

    id: str
    suite: str
    table: str
    title: str
    rows: Literal["cell", "category"] = "cell"
    order: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    concurrency: int | None = Field(default=None, gt=0)
    repeats: int | None = Field(default=None, gt=0)
    select: Select | None = None
    profile: str | None = None

    @model_validator(mode="after")
    def _order_has_an_effect(self) -> "CellSpec":
        if self.order and self.rows == "cell":
            raise ValueError('order has no effect on one row; set rows = "category" or drop it')
        if doubled := {name for name in self.order if self.order.count(name) > 1}:
            raise ValueError(f"order names {min(doubled)!r} twice")
        return self


class CompoundSuite(Frozen):
    """The tables of a card. not_stated: facts that the card leaves open; choices: how we filled them, by name.

    gate: as of a simple suite.
    """

    schema_version: int
    name: str
    title: str
    description: str = ""
    not_stated: tuple[str, ...] = ()
    choices: dict[str, str] = Field(default_factory=dict)
    engine: str | None = None
    drafter: str | None = None
    sampling: Sampling
    load: Load = Load()
    gate: GateRules = ()
    cells: tuple[CellSpec, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _ids_differ(self) -> "CompoundSuite":
        ids = [cell.id for cell in self.cells]
        if doubled := {name for name in ids if ids.count(name) > 1}:
            raise ValueError(f"cells share the id {min(doubled)!r}")
        return self


class Window(Frozen):
    """When load is measured: for so long, at each level of concurrency, so often.

    warmup_s, duration_s: seconds; requests of the warm-up count nowhere. grace_s: seconds that a request may take
    beyond the end of the window; one that takes longer is dropped. order: every level once and then all again, so
    that a drift of the machine reaches every level, or the repeats of a level one after another.
    """

    concurrency: tuple[Annotated[int, Field(gt=0)], ...] = Field(min_length=1)
    warmup_s: float = Field(ge=0, allow_inf_nan=False)
    duration_s: float = Field(gt=0, allow_inf_nan=False)
    grace_s: float = Field(default=0, ge=0, allow_inf_nan=False)
    repeats: int = Field(default=1, gt=0)
    order: Literal["repeat", "concurrency"] = "repeat"

    @model_validator(mode="after")
    def _levels_differ(self) -> "Window":
        if len(set(self.concurrency)) < len(self.concurrency):
            raise ValueError("concurrency names a level twice")
        return self

    def cells(self) -> tuple[tuple[int, int], ...]:
        """(concurrency, repeat from 1) of every cell, in the order in which they are measured."""
        repeats = range(1, self.repeats + 1)
        if self.order == "repeat":
            return tuple((level, repeat) for repeat in repeats for level in self.concurrency)
        return tuple((level, repeat) for level in self.concurrency for repeat in repeats)


class ThroughputSuite(Frozen):
    """Throughput against interactivity. prompts: the simple suite whose prompts are sent, their first turns alone.

    The load that suite names has no part in it, nor has its sampling: a null here is the server's default.
    """

    schema_version: int
    name: str
    title: str
    description: str = ""
    prompts: str
    sampling: Sampling
    window: Window

    @model_validator(mode="after")
    def _answers_end(self) -> "ThroughputSuite":
        if self.sampling.max_tokens is None:
            raise ValueError("sampling needs max_tokens")
        return self


class SuiteFile(Frozen):
    """A suite with the text it was read from: the text and its hash go into the plan."""

    suite: Suite | CompoundSuite | ThroughputSuite
    path: Path
    text: str

    @property
    def is_shipped(self) -> bool:
        """Whether it comes with spec-eval."""
        return self.path.parent == shipped.folder("suites")

    @property
    def sha256(self) -> str:
        """Of the file's text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def simple(self) -> Suite:
        """The suite, where it is a simple one; UsageError where it is not."""
        if not isinstance(self.suite, Suite):
            kind = "compound" if isinstance(self.suite, CompoundSuite) else "throughput"
            raise UsageError(f"{self.path}: a {kind} suite; a cell names a simple one")
        return self.suite


def find(name: str, beside: Path = Path()) -> SuiteFile:
    """The suite called `name` among the shipped ones, or the TOML file at that path, seen from the folder `beside`."""
    shipped_path = shipped.folder("suites") / f"{name}.toml"
    try:
        path = shipped_path if shipped_path.is_file() else beside / name
        there = path.suffix == ".toml" and path.is_file()
    except OSError:  # a name that no file can have
        there = False
    if not there:
        known = [p.stem for p in _files()]
        raise UsageError(
            f"no suite {name!r}{toml.nearest(name, known)}; `spec-eval list suites` names them, or give a .toml file"
        )
    return read(path)


def read(path: Path) -> SuiteFile:
    """Parse one suite file."""
    return restored(toml.read_text(path), path)


def restored(text: str, path: Path) -> SuiteFile:
    """A suite from its text; `path` anchors the files that it names, and stands in messages."""
    keys = toml.tables(text, path)
    model: Any = CompoundSuite if "cells" in keys else ThroughputSuite if "window" in keys else Suite
    return SuiteFile(suite=toml.parse(model, text, path), path=path, text=text)


def shipped_suites() -> Iterator[SuiteFile]:
    """Every suite that comes with spec-eval, by name."""
    return map(read, _files())


def _files() -> list[Path]:
    return sorted(shipped.folder("suites").glob("*.toml"), key=lambda path: path.stem)
