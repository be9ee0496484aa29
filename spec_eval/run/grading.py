"""After driving: answers against their references, where a data set has some.

Grades stand in a file of their own, grades.jsonl, and can be made anew: they are no acceptance figure. Beside each
stands the length of prompt and reference in o200k_base tokens, by which MRCR's own tables are binned.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from spec_eval.prompts import PromptSet, mrcr
from spec_eval.records import RequestRecord
from spec_eval.store import Plan


def grades(
    plan: Plan, prompts: Mapping[str, PromptSet], records: tuple[RequestRecord, ...]
) -> Iterator[dict[str, Any]]:
    """One line for each recorded request whose prompt has a reference; `grade` is null where there was no answer."""
    if not any(prompts[cell.cell_id].graded for cell in plan.cells):
        return  # the tokenizer's vocabulary is not worth a download then
    by_prompt: dict[tuple[str, str], list[RequestRecord]] = {}
    for record in records:
        by_prompt.setdefault((record.cell_id, record.prompt_id), []).append(record)
    count = mrcr.o200k_counter()
    for cell in plan.cells:
        for conversation in prompts[cell.cell_id] if prompts[cell.cell_id].graded else ():
            reference = conversation.reference
            if reference is None:
                continue
            tokens = count(conversation, reference)
            for record in by_prompt.get((cell.cell_id, conversation.prompt_id), []):
                answered = record.status == "ok" and record.text is not None
                yield {
                    "schema_version": 1,
                    "cell_id": record.cell_id,
                    "prompt_id": record.prompt_id,
                    "turn": record.turn,
                    "repeat": record.repeat,
                    "grade": mrcr.grade(record.text or "", reference.answer, reference.prefix) if answered else None,
                    "o200k_tokens": tokens,
                }
