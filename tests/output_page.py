"""docs/design/output.md as patterns, and outputs as paths, so that the one can be held against the other.

A path is the keys from the top of a document down; lists add nothing to it, and an interval or a spread is one thing.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel

PAGE = Path(__file__).parent.parent / "docs" / "design" / "output.md"
# What the page says once for all outputs.
SHAPES = ({"value", "low", "high"}, {"mean", "low", "high"}, {"mean", "low", "high", "repeats"})
BELOW = "…"
Paths = set[tuple[str, ...]]


def tables(text: str) -> dict[str, list[str]]:
    """By heading, the keys in the first column of the table under it."""
    found: dict[str, list[str]] = {}
    heading, inside = "", False
    for line in text.splitlines():
        if line.startswith("#"):
            heading, inside = line.lstrip("# "), False
        elif line.startswith("| --"):
            inside = True
            assert heading not in found, heading
            found[heading] = []
        elif inside and line.startswith("|"):
            found[heading] += re.findall(r"`([^`]+)`", line.split("|")[1])
    return found


def paths(document: Any) -> Paths:
    """Of every key."""
    return set(_paths(document))


def _paths(value: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _paths(one)
    elif isinstance(value, dict) and set(value) not in SHAPES:
        for key, below in value.items():
            yield (key,)
            yield from ((key, *rest) for rest in _paths(below))


def model_paths(model: type) -> Paths:
    """Of every field that a model or a dataclass may write; `*` for the names in a table of models."""
    hints = get_type_hints(model)
    names = [field.name for field in fields(model)] if is_dataclass(model) else model.model_fields  # type: ignore[attr-defined]
    found: Paths = set()
    for name in names:
        found.add((name,))
        found |= {(name, *rest) for rest in _below(hints[name])}
    return found


def _below(hint: Any) -> Paths:
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, BaseModel)):
        return model_paths(hint)
    below = {path for part in get_args(hint) for path in _below(part)}
    return {("*",)} | {("*", *path) for path in below} if get_origin(hint) is dict and below else below


def off_the_page(written: Iterable[tuple[str, ...]], named: Iterable[str]) -> list[str]:
    """Paths that no key of the page covers; a key covers the objects that it stands in."""
    steps = [key.split(".") for key in named]
    patterns = [_pattern(".".join(key[:i])) for key in steps for i in range(1, len(key) + 1)]
    return sorted(".".join(path) for path in written if not any(p.fullmatch("\0".join(path)) for p in patterns))


def not_written(written: Iterable[tuple[str, ...]], named: Iterable[str]) -> list[str]:
    """Keys of the page that no output has."""
    texts = ["\0".join(path) for path in written]
    return sorted(key for key in named if not any(_pattern(key).fullmatch(text) for text in texts))


def _pattern(key: str) -> re.Pattern[str]:
    steps = key.removesuffix(BELOW).replace("[]", "").split(".")
    body = "\0".join("[^\0]+" if step == "*" else re.escape(step) for step in steps)
    return re.compile(body + (r"(\0.+)?" if key.endswith(BELOW) else ""), re.DOTALL)
