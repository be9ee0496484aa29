"""Rows into conversations, as the suite's [prompt] table says."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from spec_eval import jsontext
from spec_eval.errors import UsageError
from spec_eval.prompts import mrcr, mt_bench, speed_bench
from spec_eval.prompts.conversation import Conversation, Message
from spec_eval.prompts.rows import Problem, Row, refuse
from spec_eval.suite import PromptSpec

NO_CATEGORY = "(none)"
_FIELD = re.compile(r"\{(\w+)\}")
_ROLES = ("system", "user", "assistant")
_ADAPTERS: dict[str, Callable[[Row], Row]] = {
    "speed-bench": speed_bench.adapt,
    "mt-bench": mt_bench.adapt,
    "mrcr": mrcr.adapt,
}


def conversations(
    rows: Iterable[tuple[str, Row | Problem]],
    prompt: PromptSpec,
    source: str,
    *,
    first_turn_only: bool = False,
    subcategory_needed: bool = True,
) -> Iterator[Conversation]:
    """One conversation a row; every row that cannot be one is named in a single UsageError at the end.

    subcategory_needed: whether any row must have that column. Other editions of a known set leave it out.
    """
    problems: list[str] = []
    masked: list[tuple[str, str]] = []
    seen: dict[str, str] = {}
    count = 0
    labelled = prompt.subcategory is None or not subcategory_needed
    for number, (where, row) in enumerate(rows):
        count += 1
        if isinstance(row, Problem):
            problems.append(f"{where}: {row.text}")
            continue
        labelled = labelled or prompt.subcategory in row
        try:
            conversation = _build(row, number, prompt, first_turn_only)
        except speed_bench.Masked as placeholder:
            masked.append((where, placeholder.source))
            continue
        except (KeyError, ValueError) as error:
            problems.append(f"{where}: {error.args[0]}")
            continue
        if first := seen.get(conversation.prompt_id):
            problems.append(f"{where}: id {conversation.prompt_id!r} is taken by {first}")
            continue
        seen[conversation.prompt_id] = where
        yield conversation
    if masked:
        problems.insert(0, speed_bench.describe(masked, count))
        refuse(source, problems, speed_bench.REMEDY)
    refuse(source, problems)
    if count and not labelled:
        raise UsageError(f"{source}: no row has a column {prompt.subcategory!r}; mend prompt.subcategory of the suite")


def check_spec(prompt: PromptSpec, where: str) -> None:
    """UsageError where a template asks for nothing of a row."""
    if prompt.template is not None and not _FIELD.search(prompt.template):
        raise UsageError(f"{where}: prompt.template names no column; write one as {{column}}")


def category_notes(categories: Iterable[str]) -> list[str]:
    """Notes on categories that differ only by case or by space at the ends, and on rows without one."""
    counts = Counter(categories)
    groups: dict[str, set[str]] = {}
    for category in counts:
        groups.setdefault(category.strip().casefold(), set()).add(category)
    notes = [
        f"categories {', '.join(map(repr, sorted(group)))} differ only by case or space and are kept apart"
        for group in groups.values()
        if len(group) > 1
    ]
    if 0 < counts[NO_CATEGORY] < sum(counts.values()):
        notes.append(f"{counts[NO_CATEGORY]} rows have no category and are counted under {NO_CATEGORY}")
    return notes


def _build(row: Row, number: int, prompt: PromptSpec, first_turn_only: bool) -> Conversation:
    if prompt.adapter is not None:
        row = _ADAPTERS[prompt.adapter](row)
    turns = _turns(row, prompt)
    built = Conversation(
        prompt_id=_name(row, prompt.id) if prompt.id else str(number),
        category=prompt.category_name or (_label(row, prompt.category) if prompt.category else NO_CATEGORY),
        subcategory=_label(row, prompt.subcategory) if prompt.subcategory else None,
        turns=turns[:1] if first_turn_only else turns,
        reference=mrcr.reference(row) if prompt.adapter == "mrcr" else None,
    )
    texts = [built.prompt_id, built.category, built.subcategory or "", *(m["content"] for t in turns for m in t)]
    if any(0xD800 <= ord(c) < 0xE000 for text in texts for c in text if not text.isascii()):
        raise ValueError("holds half a surrogate pair, which cannot be sent")
    return built


def _turns(row: Row, prompt: PromptSpec) -> tuple[tuple[Message, ...], ...]:
    if prompt.template is not None:
        return ((_user(_FIELD.sub(lambda field: _text(row, field[1]), prompt.template)),),)
    if prompt.turns is not None:
        texts = _column(row, prompt.turns)
        if not isinstance(texts, list) or not texts:
            raise ValueError(f"column {prompt.turns!r} holds no turns")
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"turn {number} is {'empty' if isinstance(text, str) else f'{text!r}, not text'}")
            _no_placeholder(text, f"turn {number}")
        return tuple((_user(text),) for text in texts)
    return (_messages(_column(row, str(prompt.messages))),)


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _messages(value: object) -> tuple[Message, ...]:
    """A list of messages, perhaps as JSON text, in the order given: nobody says that user and assistant alternate."""
    if isinstance(value, str):
        try:
            value = jsontext.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"messages are not JSON ({error.msg})") from error
    if not isinstance(value, list) or not value:
        raise ValueError("no messages")
    for number, message in enumerate(value, 1):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise ValueError(f"message {number} has no role of {', '.join(_ROLES)}")
        if not isinstance(message.get("content"), str):
            raise ValueError(f"message {number} has no text")
        _no_placeholder(message["content"], f"message {number}")
    if value[-1]["role"] != "user":
        raise ValueError("the last message is not the user's")
    return tuple({"role": m["role"], "content": m["content"]} for m in value)


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
    _no_placeholder(value, f"column {name!r}")
    return value


def _no_placeholder(text: str, what: str) -> None:
    """It would be measured like a prompt, in a set of any shape."""
    if speed_bench.is_placeholder(text):
        raise ValueError(f"{what} is a placeholder")


def _name(row: Row, name: str) -> str:
    value = _column(row, name)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"id column {name!r} is {value!r}, not text or a number")
    return str(value)


def _label(row: Row, name: str) -> str:
    value = row.get(name)
    return str(value) if value not in (None, "") else NO_CATEGORY
