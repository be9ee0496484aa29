"""TOML into frozen types, with errors that name file, key and the nearest known key."""

import difflib
import tomllib
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from spec_eval.errors import UsageError
from spec_eval.jsontext import is_version

SCHEMA_VERSION = 1


class Frozen(BaseModel):
    """Base of everything that is read from TOML: a key nobody knows is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


T = TypeVar("T", bound=Frozen)


def read_text(path: Path) -> str:
    """A UTF-8 file; UsageError where it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}; it should be a UTF-8 TOML file") from error


def parse(model: type[T], text: str, where: Path) -> T:
    """`text` as `model`, its schema version checked first; UsageError in one line where it does not fit."""
    raw = tables(text, where)
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise UsageError(f"{where}: {_explain(error, model)}") from error


def tables(text: str, where: Path) -> dict[str, Any]:
    """The raw content, its schema version checked."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: not TOML: {error}") from error
    if not is_version(raw.get("schema_version"), SCHEMA_VERSION):
        raise UsageError(
            f"{where}: schema_version {raw.get('schema_version')!r}, this spec-eval reads {SCHEMA_VERSION}; "
            f"set `schema_version = {SCHEMA_VERSION}` or install the version that wrote it"
        )
    return raw


def nearest(word: str, known: Iterable[str]) -> str:
    """ ", did you mean …?" with the closest of `known`, or the list of all of them."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f", did you mean {close[0]!r}?" if close else (f"; known: {', '.join(names)}" if names else "")


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    errors = error.errors()
    # A misspelt key often brings "field required" along; the misspelling is what to mend.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    location = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        return f"unknown key {'.'.join(location)!r}{nearest(location[-1], _known_keys(model, location[:-1]))}"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{'.'.join(location) or 'file'}: {first['msg']}{more}"


def _known_keys(model: type[BaseModel], location: list[str]) -> list[str]:
    current: type[BaseModel] | None = model
    for part in location:
        if current is None or part.isdigit():
            continue
        field = current.model_fields.get(part)
        current = _model_in(field.annotation) if field else None
    return list(current.model_fields) if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model behind `X`, `X | None` or `tuple[X, ...]`."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, BaseModel) else None
    if get_origin(annotation) in (tuple, list, Union, types.UnionType):
        return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
    return None
