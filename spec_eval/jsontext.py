"""JSON from anywhere: whatever cannot be read is one kind of error."""

import json
from typing import Any

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
