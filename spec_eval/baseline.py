"""A baseline: the integers of a run by conversation, small enough for git, in an order that makes readable diffs."""

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from spec_eval.errors import NoVerdict, UsageError
from spec_eval.jsontext import is_version
from spec_eval.pairs import Conversation, Side, Tally
from spec_eval.records import is_count
from spec_eval.rules import LEAST_COVERAGE
from spec_eval.verdict import is_low

SCHEMA_VERSION = 1
KIND = "spec-eval baseline"
_COLUMNS = "steps, accepted, drafted, then steps that accepted at least 1, 2, … drafts; null is not known"
_DAMAGED = "the file is damaged; make it again with `spec-eval baseline`"


def text(side: Side) -> str:
    """The file: a header, then one line a conversation; null for one that was not measured whole.

    NoVerdict where the run may not be a baseline: not whole, or too few of its answers have counters.
    """
    if side.problem is not None:
        raise NoVerdict(f"{side.problem}; a baseline needs a whole run")
    if is_low(side.measured, side.ok) or not side.measured:
        raise NoVerdict(
            f"{side.name}: {side.measured} of {side.ok} answers have usable counters, "
            f"a baseline needs {float(LEAST_COVERAGE):.0%}; see its report"
        )
    header = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "run_id": side.name,
        "columns": _COLUMNS,
        "measured": side.measured,
        "ok": side.ok,
        "facts": side.facts,
        "settings": side.settings,
    }
    head = json.dumps(header, indent=1, ensure_ascii=False, allow_nan=False).removesuffix("\n}")
    return f'{head},\n "cells": {{\n{_joined(_cells(side), 2)}\n }}\n}}\n'


def _cells(side: Side) -> Iterator[str]:
    for (cell_id, dataset), members in groupby(side.conversations, lambda one: (one.cell_id, one.dataset)):
        by_category: dict[str, list[str]] = {}
        for one in members:
            by_category.setdefault(one.category, []).append(f"{_word(one.prompt_id)}: {_row(one)}")
        categories = (f"{_word(name)}: {{\n{_joined(rows, 5)}\n    }}" for name, rows in by_category.items())
        yield f'{_word(cell_id)}: {{"dataset": {_word(dataset)}, "categories": {{\n{_joined(categories, 4)}\n  }}}}'


def _row(one: Conversation) -> str:
    if not one.full:
        return "null"
    tally = one.tally
    return json.dumps([tally.steps, tally.accepted, tally.drafted, *(tally.reached or [])])


def _joined(lines: Any, indent: int) -> str:
    return ",\n".join(f"{' ' * indent}{line}" for line in lines)


def _word(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def parse(content: Mapping[str, Any], path: Path) -> Side:
    """A baseline from its JSON; UsageError in one line where it is none, or another version's."""
    version = content.get("schema_version")
    if not is_version(version, SCHEMA_VERSION):
        raise UsageError(
            f"{path}: baseline schema version {version!r}, this spec-eval reads {SCHEMA_VERSION}; "
            "make the baseline again, or use the version that wrote it"
        )
    try:
        if content["kind"] != KIND:
            raise ValueError(f"kind {content['kind']!r}")
        settings = {str(cell): dict(values) for cell, values in content["settings"].items()}
        side = Side(
            name=str(content["run_id"]),
            settings=settings,
            facts=dict(content["facts"]),
            conversations=tuple(_conversations(content["cells"])),
            measured=_count(content["measured"]),
            ok=_count(content["ok"]),
        )
        if settings.keys() != content["cells"].keys():
            raise ValueError("settings and counters of different cells")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path}: not a baseline ({what}); {_DAMAGED}") from error
    return side


def _conversations(cells: Mapping[str, Any]) -> Iterator[Conversation]:
    for cell_id, cell in cells.items():
        for category, prompts in cell["categories"].items():
            for prompt_id, row in prompts.items():
                place = (cell_id, str(cell["dataset"]), prompt_id, category)
                if row is None:
                    yield Conversation(*place, Tally(), full=False)
                    continue
                try:
                    yield Conversation(*place, _tally(row), full=True)
                except ValueError as error:
                    raise ValueError(f"{cell_id}, {prompt_id}: {error}") from error


def _tally(row: Any) -> Tally:
    """Checked: what was summed up keeps the identities of its parts."""
    steps, accepted, drafted, *reached = row
    counts = [steps, accepted, *([] if drafted is None else [drafted]), *reached]
    if not all(map(is_count, counts)):
        raise ValueError("not counts")
    if drafted is not None and not max(steps, accepted) <= drafted:
        raise ValueError("fewer drafted than accepted, or than steps")
    if reached and (sum(reached) != accepted or [steps, *reached] != sorted([steps, *reached], reverse=True)):
        raise ValueError("positions that do not add up")
    return Tally(steps, accepted, drafted, tuple(reached) if reached or not steps else None)


def _count(value: Any) -> int:
    if not is_count(value):
        raise ValueError(f"{value!r} is no count")
    return int(value)
