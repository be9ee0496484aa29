"""JSON from anywhere: whatever cannot be read is one kind of error."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MARK = b"\xef\xbb\xbf"
# Nothing that a server or a file has to tell is nested like this, and what is could not be written back.
DEEPEST = 200


def loads(text: str | bytes) -> Any:
    """The value. Bytes are UTF-8, as half a surrogate pair may be; NaN is read as a number.

    json.JSONDecodeError, a ValueError, for all that is no JSON, for nesting beyond `DEEPEST` and for integers that
    Python does not read. Only bytes of another encoding are a UnicodeDecodeError.
    """
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", "", 0) from None
    except ValueError as error:
        raise json.JSONDecodeError(str(error), "", 0) from error
    if _may_be_deep(text) and _is_deep(value):
        raise json.JSONDecodeError("nested too deeply", "", 0)
    return value


@dataclass(frozen=True, slots=True)
class Row:
    """A line that holds an object. where: file and line, as an error names it; number: of the line, from 1."""

    where: str
    number: int
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Damaged:
    """A line that holds none.

    problem: why, in a few words. torn: whether the file ends within it, as where its writer was killed. unfinished:
    whether all of it is JSON, as far as it goes: so begins an object that was written over several lines.
    """

    where: str
    number: int
    problem: str
    torn: bool = False
    unfinished: bool = False


def read_lines(path: Path) -> Iterator[Row | Damaged]:
    """Each line of a file of JSON objects, one a line, in order; OSError where the file cannot be read."""
    with path.open("rb") as stream:
        yield from lines(stream, path.name)


def lines(source: Iterable[bytes], name: str) -> Iterator[Row | Damaged]:
    """The same of what is open already. One line of `source` is taken at a time, and none is kept.

    A byte-order mark, blank lines and any line end are read over; no line is left out for its damage.
    """
    for number, line in enumerate(source, 1):
        if text := line.removeprefix(_MARK).strip():
            yield _line(text, f"{name}: line {number}", number, ended=line.endswith(b"\n"))


def _line(text: bytes, where: str, number: int, *, ended: bool) -> Row | Damaged:
    try:
        decoded = text.decode()
        value = loads(decoded)
    except UnicodeDecodeError as error:
        return Damaged(where, number, f"not UTF-8 at byte {error.start + 1}", torn=not ended)
    except json.JSONDecodeError as error:
        problem = f"not JSON ({error.msg} at column {error.colno})"
        return Damaged(where, number, problem, torn=not ended, unfinished=error.pos >= len(decoded))
    return Row(where, number, value) if isinstance(value, dict) else Damaged(where, number, "not a JSON object")


def is_version(value: object, version: int) -> bool:
    """Whether a file's `schema_version` is that one: 1.0 and true are equal to 1, and nobody's version."""
    return type(value) is int and value == version


def _may_be_deep(text: str | bytes) -> bool:
    """Counting brackets, those in texts among them, settles nearly all."""
    if isinstance(text, str):
        return text.count("[") + text.count("{") > DEEPEST
    return text.count(b"[") + text.count(b"{") > DEEPEST


def _is_deep(value: object) -> bool:
    """Level by level, since a recursion is what has to be kept away."""
    level = [value]
    for _ in range(DEEPEST + 1):
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [child for children in inner for child in children if isinstance(child, dict | list)]
        if not inner:
            return False
    return True
