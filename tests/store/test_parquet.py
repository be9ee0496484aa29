from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from spec_eval.records import RequestRecord
from spec_eval.store.parquet import write_parquet
from tests.factories import answered, failed, from_histogram, from_steps, not_sent


def table(folder: Path, *records: RequestRecord) -> list[dict[str, Any]]:
    path = folder / "requests.parquet"
    write_parquet(records, path)
    assert [p.name for p in folder.iterdir()] == ["requests.parquet"]
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


def test_one_row_a_record_with_its_counters_beside(tmp_path: Path) -> None:
    stepped = answered(from_steps([(3, 2), (1, 0)], k=3), prompt_id="a", turn=1, repeat=2, completion_tokens=5)
    first, second, third = table(tmp_path, stepped, failed(prompt_id="b"), not_sent(prompt_id="c"))
    assert (first["prompt_id"], first["turn"], first["repeat"], first["status"]) == ("a", 1, 2, "ok")
    assert (first["steps"], first["accepted"], first["drafted"], first["k"]) == (2, 2, 4, 3)
    assert (first["histogram"], first["per_step_drafted"]) == ([1, 0, 1, 0], [3, 1])
    assert (first["source"], first["exact"], first["completion_tokens"]) == ("timings", True, 5)
    assert (second["failure_reason"], second["steps"], second["exact"]) == ("http 500: boom", None, None)
    assert (third["status"], third["start_ns"]) == ("not_sent", None)
    assert "raw_counters" not in first


def test_null_is_not_zero(tmp_path: Path) -> None:
    nominal = replace(from_histogram((1, 1)), drafted=None, histogram=None)
    none, zero, nothing = table(tmp_path, answered(None), answered(from_histogram((0, 0))), answered(nominal))
    assert (none["steps"], none["no_counters_reason"]) == (None, "no metrics object")
    assert (zero["steps"], zero["accepted"], zero["histogram"]) == (0, 0, [0, 0])
    assert (nothing["steps"], nothing["drafted"], nothing["histogram"]) == (2, None, None)


def test_columns_keep_their_types_without_any_value(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    for records in ((), (failed(),)):
        write_parquet(records, path)
        schema = pyarrow.parquet.read_schema(path)
        assert str(schema.field("steps").type) == "int64"
        assert str(schema.field("first_token_ns").type) == "int64"
        assert str(schema.field("text").type) == "string"
        assert str(schema.field("exact").type) == "bool"
        assert str(schema.field("histogram").type.value_type) == "int64"


def test_half_a_surrogate_pair_becomes_a_question_mark(tmp_path: Path) -> None:
    (row,) = table(tmp_path, answered(None, text="half \ud83d here", category="\udc00"))
    assert (row["text"], row["category"]) == ("half ? here", "?")


@pytest.mark.parametrize("bad", [float("nan"), 1.5, "1", -1, True])
def test_invalid_counter_is_null(tmp_path: Path, bad: Any) -> None:
    counters = replace(from_histogram((1, 1)), steps=bad, histogram=(1, bad))
    (row,) = table(tmp_path, answered(counters))
    assert (row["steps"], row["histogram"], row["accepted"]) == (None, None, 1)


def test_file_is_replaced_whole(tmp_path: Path) -> None:
    assert len(table(tmp_path, answered(None), answered(None, prompt_id="b"))) == 2
    assert len(table(tmp_path, answered(None))) == 1
