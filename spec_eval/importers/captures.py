"""Response bodies, as servers sent them, one JSON object a line.

A line is {request_id, dataset, category, http_status, error, response}, and perhaps prompt_tokens_local: a count of
the client's own, which stands in where the server gave none. Other keys are passed over. The engine is declared by
the user: key names alone do not tell it.
"""

from pathlib import Path
from typing import Any

from spec_eval.drivers.answer import Answer, AnswerError
from spec_eval.engines import Engine
from spec_eval.errors import UsageError
from spec_eval.importers import answers
from spec_eval.importers.answers import Answered, Imported
from spec_eval.prompts import rows
from spec_eval.prompts.build import NO_CATEGORY
from spec_eval.records import RequestRecord, is_count
from spec_eval.store import Cell
from spec_eval.suite import Sampling


def read(path: Path, engine: Engine, *, k: int | None = None, nominal_drafts: bool = False) -> Imported:
    """Every line of `path`; UsageError where it cannot be read. A torn last line is set aside and named."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file; give a file of captured responses, one JSON object a line")
    aside: list[str] = []
    found = []
    for number, line in answers.json_lines(path, aside, _fault):
        found.append(_record(line, f"{path.name}: line {number}", engine, k, nominal_drafts))
    if not found:
        raise UsageError(f"{path}: no captured responses in it; it holds one JSON object a line")
    records = [one.record for one in found]
    synthetic = answers.synthetic(path, found)
    return Imported(_cells(records, path), tuple(records), tuple(aside), synthetic=synthetic)


def _fault(row: dict[str, Any]) -> str | None:
    name = row.get("request_id")
    return "no request_id" if isinstance(name, bool) or not isinstance(name, str | int) or name == "" else None


def _record(row: dict[str, Any], where: str, engine: Engine, k: int | None, nominal_drafts: bool) -> Answered:
    answer = Answer(engine.reader(k, nominal_drafts=nominal_drafts))
    failure = answers.failure(row.get("error"), row.get("http_status"))
    if failure is None:
        try:
            body = row.get("response")
            answer.whole_object(engine.normalised(body) if isinstance(body, dict) else body)
        except AnswerError as error:
            failure = str(error)
        except (TypeError, AttributeError, KeyError) as error:
            raise UsageError(f"{where}: not a response body ({error}); captures hold what the server sent") from error
    local = row.get("prompt_tokens_local")
    return answers.answered(
        answer,
        failure,
        dataset=str(row.get("dataset") or "captures"),
        prompt_id=str(row["request_id"]),
        category=str(row.get("category") or NO_CATEGORY),
        prompt_tokens=local if is_count(local) else None,
    )


def _cells(records: list[RequestRecord], path: Path) -> tuple[Cell, ...]:
    cells, files = [], {path.name: rows.sha256(path)}
    for dataset in dict.fromkeys(record.dataset for record in records):
        # A request that comes back, perhaps under another category, is still one unit: the first naming counts.
        categories: dict[str, str] = {}
        for record in records:
            if record.dataset == dataset:
                categories.setdefault(record.prompt_id, record.category)
        units = [(prompt_id, category, 1) for prompt_id, category in categories.items()]
        cells.append(
            Cell(
                cell_id=dataset,
                dataset=dataset,
                title=dataset,
                sampling=Sampling(),
                concurrency=None,
                repeats=1,
                prompts=answers.prompt_ref(path.name, files, units),
            )
        )
    return tuple(cells)
