"""Rows into conversations, as the suite's [prompt] table says."""

import re
from collections.abc import Iterable, Iterator

from spec_eval.errors import UsageError
from spec_eval.prompts.conversation import Conversation
from spec_eval.prompts.rows import Row, refuse
from spec_eval.suite import PromptSpec

_FIELD = re.compile(r"\{(\w+)\}")
NO_CATEGORY = "(none)"


def conversations(rows: Iterable[tuple[str, Row]], prompt: PromptSpec, source: str) -> Iterator[Conversation]:
    """One conversation a row; every row that cannot be one is named in a single UsageError at the end."""
    problems: list[str] = []
    seen: dict[str, str] = {}
    for number, (where, row) in enumerate(rows):
        try:
            conversation = _build(row, number, prompt)
        except (KeyError, ValueError) as error:
            problems.append(f"{where}: {error.args[0]}")
            continue
        if first := seen.get(conversation.prompt_id):
            problems.append(f"{where}: id {conversation.prompt_id!r} is taken by {first}")
            continue
        seen[conversation.prompt_id] = where
        yield conversation
    refuse(source, problems)


def _build(row: Row, number: int, prompt: PromptSpec) -> Conversation:
    text = _FIELD.sub(lambda field: _text(row, field[1]), prompt.template)
    return Conversation(
        prompt_id=_name(row, prompt.id) if prompt.id else str(number),
        category=prompt.category_name or (_label(row, prompt.category) if prompt.category else NO_CATEGORY),
        subcategory=_label(row, prompt.subcategory) if prompt.subcategory else None,
        turns=(({"role": "user", "content": text},),),
    )


def _column(row: Row, name: str) -> object:
    if name not in row:
        raise KeyError(f"no column {name!r}, there are {', '.join(map(str, row))}")
    return row[name]


def _text(row: Row, name: str) -> str:
    value = _column(row, name)
    if not isinstance(value, str):
        raise ValueError(f"column {name!r} is {type(value).__name__}, not text")
    if not value.strip():
        raise ValueError(f"column {name!r} is empty")
    return value


def _name(row: Row, name: str) -> str:
    value = _column(row, name)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"id column {name!r} is {value!r}, not text or a number")
    return str(value)


def _label(row: Row, name: str) -> str:
    value = row.get(name)
    return str(value) if value not in (None, "") else NO_CATEGORY


def check_categories(categories: Iterable[str]) -> list[str]:
    """Notes on categories that differ only by case or by space at the ends; they are kept apart."""
    groups: dict[str, set[str]] = {}
    for category in categories:
        groups.setdefault(category.strip().casefold(), set()).add(category)
    return [
        f"categories {', '.join(map(repr, sorted(group)))} differ only by case or space and are kept apart"
        for group in groups.values()
        if len(group) > 1
    ]


def check_template(prompt: PromptSpec, where: str) -> None:
    """UsageError where a template asks for nothing of a row."""
    if not _FIELD.search(prompt.template):
        raise UsageError(f"{where}: prompt.template names no column; write one as {{column}}")
