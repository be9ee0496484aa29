import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval.drivers.answer import Answer
from spec_eval.engines import ENGINES, Reading
from spec_eval.errors import UsageError
from spec_eval.importers import answers


def answer(body: dict[str, Any] | None = None) -> Answer:
    made = Answer(ENGINES["vllm"].reader(None))
    if body is not None:
        made.whole_object(body)
    return made


BODY = {
    "choices": [{"index": 0, "message": {"content": "yes", "reasoning": "hm"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 1}},
}


def test_answer_is_a_record_in_the_cell_of_its_data_set() -> None:
    got = answers.answered(answer(BODY), None, dataset="set", prompt_id="p", category="c", turn=1, start_ns=5).record
    assert (got.cell_id, got.dataset, got.unit) == ("set", "set", ("set", "p", 1, 0))
    assert (got.status, got.text, got.reasoning_text, got.finish_reason) == ("ok", "yes", "hm", "stop")
    assert (got.prompt_tokens, got.completion_tokens, got.reasoning_tokens, got.start_ns) == (7, 3, 1, 5)
    assert (got.counters, got.no_counters_reason) == (None, "no metrics object")


def test_failed_answer_has_no_counters_and_no_reason_for_that() -> None:
    got = answers.answered(answer(), "http 500", dataset="set", prompt_id="p", category="c", prompt_tokens=9).record
    assert (got.status, got.failure_reason, got.text, got.no_counters_reason) == ("failed", "http 500", None, None)
    assert got.prompt_tokens == 9


def test_answer_that_nobody_kept_has_no_text_and_the_counters_that_are_given() -> None:
    kept = Reading(None, "not kept", {"raw": 1})
    got = answers.answered(answer(), None, dataset="set", prompt_id="p", category="c", counted=kept).record
    assert (got.status, got.text, got.no_counters_reason, got.raw_counters) == ("ok", None, "not kept", {"raw": 1})


def test_lines_that_cannot_be_used_are_named_together(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n{"b": 2}\nnope\n[1]\n{"a": 3')
    aside: list[str] = []
    with pytest.raises(UsageError) as caught:
        list(answers.json_lines(path, aside, lambda row: None if "a" in row else "no a"))
    assert str(caught.value) == (
        f"{path}: line 3: no a; line 4: not JSON (Expecting value at column 1); line 5: not a JSON object; "
        "mend or remove these lines"
    )
    assert aside == ["lines.jsonl: torn last line set aside"]


def test_lines_are_taken_before_the_file_is_known_to_be_good(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\nnope\n')
    lines = answers.json_lines(path, [], lambda row: None)
    assert next(lines) == (1, {"a": 1})
    with pytest.raises(UsageError, match="line 2: not JSON"):
        next(lines)


@pytest.mark.parametrize("text", [json.dumps(BODY, indent=2), json.dumps([BODY], indent=1), '[{"a": 1},\n{"a": 2}]'])
def test_value_over_several_lines_is_told_as_that(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text(f"\n{text}\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        list(answers.json_lines(path, [], lambda row: None))
    assert str(caught.value) == (f"{path}: line 2 ends within a JSON value; write one object a line, as `jq -c .` does")


def test_line_that_is_cut_within_a_text_is_no_value_over_several(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": "cut\n{"a": 1}\n')
    with pytest.raises(UsageError, match=r"line 1: not JSON \(.*; mend or remove these lines"):
        list(answers.json_lines(path, [], lambda row: None))
