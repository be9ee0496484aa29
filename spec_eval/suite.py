"""Suites: TOML into frozen types.

A suite says what is measured: the data set and its revision, how a row becomes a prompt, sampling and limits.
A misspelt key is an error that names the nearest known one, since a setting silently ignored spoils a figure.
"""

import difflib
import hashlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from spec_eval import shipped
from spec_eval.errors import UsageError

SCHEMA_VERSION = 1


class Frozen(BaseModel):
    """Base of everything that is read from TOML."""

    model_config = ConfigDict(frozen=True, extra="forbid")


T = TypeVar("T", bound=Frozen)


class DataSpec(Frozen):
    """Where the rows come from.

    Either `file` (beside the suite), or `hub` with `config`, `split` and a pinned `revision`; `local` are the
    patterns under `--data-dir` that hold the same rows. `rows` and `sha256` (of the prompts as built) are checked.
    """

    file: str | None = None
    hub: str | None = None
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    local: tuple[str, ...] = ()
    rows: int | None = Field(default=None, gt=0)
    sha256: str | None = None
    licence: str
    gated: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> "DataSpec":
        if (self.file is None) == (self.hub is None):
            raise ValueError("data needs exactly one of file and hub")
        if self.hub is not None and (self.revision is None or self.split is None):
            raise ValueError("data.hub needs data.revision and data.split")
        return self


class PromptSpec(Frozen):
    """How a row becomes a conversation.

    template: one user turn; `{column}` is replaced, every other brace stays as it is.
    id: column of the prompt's name (the row's number where absent). category: column, or `category_name` for all.
    """

    template: str
    id: str | None = None
    category: str | None = None
    category_name: str | None = None
    subcategory: str | None = None


class Sampling(Frozen):
    """What is sent with every request; null is not sent, and recorded as the server's default.

    A suite must name temperature and max_tokens; only what is imported may not know them.
    """

    temperature: float | None = Field(default=None, ge=0, strict=True, allow_inf_nan=False)
    max_tokens: int | None = Field(default=None, gt=0, strict=True)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = None
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    thinking: bool | None = None


class Load(Frozen):
    """How the requests are sent: concurrent conversations, and how often each prompt is asked."""

    concurrency: int = Field(default=1, gt=0)
    repeats: int = Field(default=1, gt=0)


class Suite(Frozen):
    """One suite file."""

    schema_version: int
    name: str
    title: str
    description: str = ""
    data: DataSpec
    prompt: PromptSpec
    sampling: Sampling
    load: Load = Load()

    @model_validator(mode="after")
    def _sampling_is_stated(self) -> "Suite":
        if missing := [name for name in ("temperature", "max_tokens") if getattr(self.sampling, name) is None]:
            raise ValueError(f"sampling needs {' and '.join(missing)}")
        return self


class SuiteFile(Frozen):
    """A suite with the text it was read from: the text and its hash go into the plan."""

    suite: Suite
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


def find(name: str) -> SuiteFile:
    """The suite called `name` among the shipped ones, or the TOML file at that path."""
    shipped_path = shipped.folder("suites") / f"{name}.toml"
    path = shipped_path if shipped_path.is_file() else Path(name)
    if path.suffix != ".toml" or not path.is_file():
        known = [p.stem for p in _files()]
        hint = _nearest(name, known)
        raise UsageError(f"no suite {name!r}{hint}; shipped: {', '.join(known)}; or give the path of a .toml file")
    return read(path)


def restored(text: str, name: str, path: str | None) -> SuiteFile:
    """A suite as a plan holds it: its text, and where files named in it lie (null: among the shipped ones)."""
    where = Path(path) if path else shipped.folder("suites") / f"{name}.toml"
    return SuiteFile(suite=parse_toml(Suite, text, where), path=where, text=text)


def read(path: Path) -> SuiteFile:
    """Parse one suite file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}; a suite is a UTF-8 TOML file") from error
    return SuiteFile(suite=parse_toml(Suite, text, path), path=path, text=text)


def shipped_suites() -> Iterator[SuiteFile]:
    """Every suite that comes with spec-eval, by name."""
    return map(read, _files())


def parse_toml(model: type[T], text: str, where: Path) -> T:
    """`text` as `model`, its `schema_version` checked first; UsageError names file, key and the nearest known key."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: not TOML: {error}") from error
    if raw.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(
            f"{where}: schema_version {raw.get('schema_version')!r}, this spec-eval reads {SCHEMA_VERSION}; "
            f"set `schema_version = {SCHEMA_VERSION}` or install the version that wrote it"
        )
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise UsageError(f"{where}: {_explain(error, model)}") from error


def _files() -> list[Path]:
    return sorted(shipped.folder("suites").glob("*.toml"))


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    errors = error.errors()
    # A misspelt key often brings "field required" along; the misspelling is what to mend.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    location = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        known = _known_keys(model, location[:-1])
        return f"unknown key {'.'.join(location)!r}{_nearest(location[-1], known)}"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{'.'.join(location) or 'file'}: {first['msg']}{more}"


def _known_keys(model: type[BaseModel], location: list[str]) -> list[str]:
    current: Any = model
    for part in location:
        annotation = current.model_fields[part].annotation if part in current.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        current = annotation
    return list(current.model_fields)


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f", did you mean {close[0]!r}?" if close else (f"; known keys: {', '.join(known)}" if known else "")
