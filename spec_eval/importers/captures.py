"""Response bodies, as servers sent them, one JSON object a line.

A line is {request_id, dataset, category, http_status, error, response}, and perhaps prompt_tokens_local: a count of
the client's own, which stands in where the server gave none. Other keys are passed over. The engine is declared by
the user: key names alone do not tell it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_eval.drivers.answer import Answer, AnswerError, is_context_limit
from spec_eval.engines import Engine
from spec_eval.engines.endpoint import head
from spec_eval.errors import UsageError
from spec_eval.prompts import rows
from spec_eval.prompts.build import NO_CATEGORY
from spec_eval.records import RequestRecord, is_count
from spec_eval.store import Cell, PromptRef
from spec_eval.suite import Sampling

_TIMEOUT = re.compile(r"\btime(d )?[ -]?out\b", re.IGNORECASE)


@dataclass(frozen=True)
class Imported:
    """What a file held: one cell a data set, and a record a line, in the order of the file."""

    cells: tuple[Cell, ...]
    records: tuple[RequestRecord, ...]
    set_aside: tuple[str, ...]


def read(path: Path, engine: Engine, *, k: int | None = None, nominal_drafts: bool = False) -> Imported:
    """Every line of `path`; UsageError where it cannot be read. A torn last line is set aside and named."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file; give a file of captured responses, one JSON object a line")
    aside: list[str] = []
    records = []
    for number, line in _lines(path, aside):
        records.append(_record(line, f"{path.name}: line {number}", engine, k, nominal_drafts))
    if not records:
        raise UsageError(f"{path}: no captured responses in it; it holds one JSON object a line")
    return Imported(_cells(records, path), tuple(records), tuple(aside))


def _lines(path: Path, aside: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    problems: list[str] = []
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            text = line.removeprefix(b"\xef\xbb\xbf").strip()
            if not text:
                continue
            try:
                row = json.loads(text)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    aside.append(f"{path.name}: torn last line set aside")
                else:
                    problems.append(f"line {number}: {'not UTF-8' if isinstance(error, UnicodeError) else 'not JSON'}")
                continue
            if not isinstance(row, dict) or not isinstance(row.get("request_id"), str | int):
                problems.append(f"line {number}: no request_id")
                continue
            yield number, row
    rows.refuse(str(path), problems, "mend or remove these lines")


def _record(row: dict[str, Any], where: str, engine: Engine, k: int | None, nominal_drafts: bool) -> RequestRecord:
    answer = Answer(engine.reader(k, nominal_drafts=nominal_drafts))
    failure = _failure(row)
    if failure is None:
        try:
            body = row.get("response")
            answer.whole_object(engine.normalised(body) if isinstance(body, dict) else body)
        except AnswerError as error:
            failure = str(error)
        except (TypeError, AttributeError, KeyError) as error:
            raise UsageError(f"{where}: not a response body ({error}); captures hold what the server sent") from error
    reading = answer.reader.reading() if failure is None else None
    dataset = str(row.get("dataset") or "captures")
    return RequestRecord(
        cell_id=dataset,
        dataset=dataset,
        prompt_id=str(row["request_id"]),
        category=str(row.get("category") or NO_CATEGORY),
        subcategory=None,
        turn=0,
        repeat=0,
        seed_sent=None,
        attempt=1,
        status="failed" if failure else "ok",
        failure_reason=failure,
        finish_reason=answer.finish_reason,
        start_ns=None,
        first_token_ns=None,
        end_ns=None,
        prompt_tokens=_prompt_tokens(answer, row),
        cached_tokens=answer.count("cached_tokens", of="prompt_tokens_details"),
        completion_tokens=answer.count("completion_tokens"),
        reasoning_tokens=answer.count("reasoning_tokens", of="completion_tokens_details"),
        text="".join(answer.text) if failure is None else None,
        reasoning_text="".join(answer.reasoning) or None,
        counters=reading.counters if reading else None,
        no_counters_reason=reading.reason if reading else None,
        raw_counters=reading.raw if reading else None,
    )


def _prompt_tokens(answer: Answer, row: dict[str, Any]) -> int | None:
    counted, local = answer.count("prompt_tokens"), row.get("prompt_tokens_local")
    return counted if counted is not None or not is_count(local) else local


def _failure(row: dict[str, Any]) -> str | None:
    """Why a captured request failed: "reason: detail", with the reasons of our own driver; http_status 0 is none."""
    error, status = row.get("error"), row.get("http_status") or None
    if isinstance(status, str) and status.isdigit():
        status = int(status)
    if error:  # "", false and an empty object say that there was none
        text = head(str(error.get("message", error) if isinstance(error, dict) else error))
        if is_context_limit(text):
            return f"context limit: {text}"
        if isinstance(status, int) and status != 200:
            return f"http {status}: {text}"
        return f"timeout: {text}" if _TIMEOUT.search(text) else text
    if status is not None and status != 200:
        return f"http {status}"
    return None


def _cells(records: list[RequestRecord], path: Path) -> tuple[Cell, ...]:
    digest = rows.sha256(path)
    cells = []
    for dataset in dict.fromkeys(record.dataset for record in records):
        # A request that comes back, perhaps under another category, is still one unit: the first naming counts.
        categories: dict[str, str] = {}
        for record in records:
            if record.dataset == dataset:
                categories.setdefault(record.prompt_id, record.category)
        units = [(prompt_id, category, 1) for prompt_id, category in categories.items()]
        reference = PromptRef(
            source=path.name, revision=None, files={path.name: digest}, sha256=None, rows=len(units), units=tuple(units)
        )
        cells.append(
            Cell(
                cell_id=dataset,
                dataset=dataset,
                title=dataset,
                sampling=Sampling(),
                concurrency=None,
                repeats=1,
                prompts=reference,
            )
        )
    return tuple(cells)
