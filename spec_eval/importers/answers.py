"""What the importers share: an answer that somebody else recorded, as a record of ours."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spec_eval import jsontext
from spec_eval.drivers.answer import Answer, is_context_limit
from spec_eval.drivers.outcome import http_failure, outcome, record
from spec_eval.engines import Reading
from spec_eval.engines.endpoint import head
from spec_eval.errors import UsageError
from spec_eval.prompts import rows
from spec_eval.records import RequestRecord
from spec_eval.store import Cell, Point, PromptRef

_TIMEOUT = re.compile(r"\btime(d )?[ -]?out\b", re.IGNORECASE)


@dataclass(frozen=True)
class Imported:
    """What was found: cells, and their records in the order of the source.

    set_aside: lines that were left out, and values that were read as missing; told to the user.
    points: totals of a server by cell_id, from a source that has nothing by request.
    synthetic: why its figures are not real, where an emulator made any of the answers; else null.
    model, tool: what was served and what wrote the source, with its version; null where the source does not tell.
    """

    cells: tuple[Cell, ...]
    records: tuple[RequestRecord, ...]
    set_aside: tuple[str, ...]
    points: Mapping[str, Point] = field(default_factory=dict)
    model: str | None = None
    tool: str | None = None
    synthetic: str | None = None


@dataclass(frozen=True)
class Answered:
    """A record, and whether the answer in it bears an emulator's mark."""

    record: RequestRecord
    emulated: bool


def synthetic(path: Path, answered: Sequence[Answered]) -> str | None:
    """Why figures over these are not real: one emulated answer among them is enough."""
    marked = sum(one.emulated for one in answered)
    return f"{path.name}: {marked} of {len(answered)} answers bear an emulator's mark" if marked else None


def answered(
    answer: Answer,
    failure: str | None,
    *,
    dataset: str,
    prompt_id: str,
    category: str,
    turn: int = 0,
    start_ns: int | None = None,
    end_ns: int | None = None,
    prompt_tokens: int | None = None,
    counted: Reading | None = None,
) -> Answered:
    """The record of `answer`, in the cell named like its data set; the rest is as `outcome` takes it."""
    found = outcome(answer, failure, start_ns=start_ns, end_ns=end_ns, prompt_tokens=prompt_tokens, counted=counted)
    made = record(found, cell_id=dataset, dataset=dataset, prompt_id=prompt_id, category=category, turn=turn)
    return Answered(made, found.emulated)


def failure(error: object, status: object) -> str | None:
    """Why a recorded request failed: "reason: detail", with the reasons of our own driver; null where it did not.

    error: a text, or an object with a message; "", false and an empty object say that there was none.
    status: of HTTP; 0 is none.
    """
    code = int(status) if isinstance(status, str) and status.isdigit() else status or None
    if error:
        text = head(str(error.get("message", error) if isinstance(error, dict) else error))
        if isinstance(code, int) and code != 200:
            return http_failure(code, text)
        if is_context_limit(text):
            return f"context limit: {text}"
        return f"timeout: {text}" if _TIMEOUT.search(text) else text
    if code is not None and code != 200:
        return f"http {code}"
    return None


def json_lines(
    path: Path, aside: list[str], fault: Callable[[dict[str, Any]], str | None]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line of `path`, one at a time; `fault` says what an object lacks, or null.

    A torn last line goes to `aside`; UsageError, at the end, names every other line that cannot be used.
    """
    problems: list[str] = []
    for place, line in enumerate(jsontext.read_lines(path)):
        if isinstance(line, jsontext.Row):
            if lack := fault(line.value):
                problems.append(f"line {line.number}: {lack}")
            else:
                yield line.number, line.value
        elif line.torn:
            aside.append(f"{path.name}: torn last line set aside")
        elif line.unfinished and place == 0:
            # An object over several lines; all of its other lines would be named as well.
            raise UsageError(
                f"{path}: line {line.number} ends within a JSON value; write one object a line, as `jq -c .` does"
            )
        else:
            problems.append(f"line {line.number}: {line.problem}")
    rows.refuse(str(path), problems, "mend or remove these lines")


def prompt_ref(
    source: str, files: Mapping[str, str], units: Sequence[tuple[str, str, int]], notes: Sequence[str] = ()
) -> PromptRef:
    """Units (prompt_id, category, turns) that were found in `files`, name to hash."""
    return PromptRef(
        source=source,
        revision=None,
        files=dict(files),
        sha256=None,
        rows=len(units),
        units=tuple(units),
        notes=tuple(notes),
    )
