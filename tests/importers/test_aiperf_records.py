import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from spec_eval.engines import ENGINES
from spec_eval.errors import UsageError
from spec_eval.importers.aiperf_records import RAW, RECORDS, Reader, entries, records
from spec_eval.records import RequestRecord, breach
from tests.importers.test_aiperf import RECORDED, profiling, put, rows

START = 1796068515316199309
READER = Reader(ENGINES["vllm"], None, nominal_drafts=False)


def first(name: str) -> dict[str, Any]:
    """The recorded request of conversation 0."""
    (found,) = (
        line for line in rows(RECORDED / "vllm" / name) if line["metadata"]["conversation_id"] == "session_000000"
    )
    return profiling(found)


def only(
    folder: Path, kept: dict[str, Any] | None, raw: dict[str, Any] | None = None, reader: Reader = READER
) -> RequestRecord:
    for name, line in ((RECORDS, kept), (RAW, raw)):
        if line is not None:
            put(folder / name, [line])
    (found,) = records(entries(folder, []), "set", reader)
    return found.record


def test_record_alone_has_counters_times_and_the_servers_token_counts(tmp_path: Path) -> None:
    got = only(tmp_path, first(RECORDS))
    assert (got.cell_id, got.dataset, got.prompt_id, got.category) == ("set", "set", "session_000000", "(none)")
    assert (got.status, got.turn, got.repeat, got.seed_sent, got.attempt) == ("ok", 0, 0, None, 1)
    assert (got.prompt_tokens, got.completion_tokens, got.reasoning_tokens, got.cached_tokens) == (19, 46, 23, None)
    # 84.057751 ms after the start
    assert (got.start_ns, got.first_token_ns, got.end_ns) == (START, START + 84057751, 1796068515835436018)
    assert (got.text, got.reasoning_text, got.finish_reason) == (None, None, None)
    assert got.counters is not None
    assert (got.counters.steps, got.counters.accepted, got.counters.drafted, got.counters.k) == (19, 28, 57, 3)
    assert got.counters.histogram == (4, 6, 5, 4)
    assert got.counters.per_step_drafted == (3,) * 19
    assert breach(got.counters, got.completion_tokens) is None
    assert got.raw_counters == first(RECORDS)["spec_decode_acceptance"]


def test_raw_record_has_the_answer_too(tmp_path: Path) -> None:
    got = only(tmp_path, first(RECORDS), first(RAW))
    assert (got.status, got.finish_reason, got.text, got.reasoning_text) == ("ok", "stop", " tok" * 24, " tok" * 22)
    assert (got.prompt_tokens, got.completion_tokens, got.reasoning_tokens) == (19, 46, 23)
    # the first chunk with words came at 528071711380 on AIPerf's clock, which stood at 527987653629 at the start
    assert got.first_token_ns == START + 528071711380 - 527987653629
    assert got.counters is not None
    assert (got.counters.steps, got.counters.accepted, got.counters.histogram) == (19, 28, (4, 6, 5, 4))


def test_raw_record_is_enough(tmp_path: Path) -> None:
    alone = only(tmp_path / "a", None, first(RAW))
    both = only(tmp_path / "b", first(RECORDS), first(RAW))
    assert alone == both


def test_positions_that_the_sparse_histogram_leaves_out_are_zero(tmp_path: Path) -> None:
    line = first(RECORDS)
    line["spec_decode_acceptance"] |= {
        "acceptance_histogram": {"0": 2, "2": 1},
        "num_accepted_draft_tokens": 2,
        "num_draft_tokens": 12,
        "num_spec_steps": 3,
        "num_spec_tokens": 4,
        "per_step_accepted": None,
        "per_step_drafted": None,
    }
    counters = only(tmp_path, line).counters
    assert counters is not None
    assert (counters.k, counters.histogram, counters.per_step_accepted) == (4, (2, 0, 1, 0, 0), None)
    assert breach(counters, 46) is None


@pytest.mark.parametrize(
    ("key", "broken"), [("5", "histogram is not k + 1 long"), ("99999999", None), ("-1", None), ("x", None)]
)
def test_keys_that_are_no_position_are_not_believed(tmp_path: Path, key: str, broken: str | None) -> None:
    line = first(RECORDS)
    line["spec_decode_acceptance"]["acceptance_histogram"][key] = 1
    counters = only(tmp_path, line).counters
    assert counters is not None
    assert breach(counters, 46) == broken
    assert (counters.histogram is None) is (broken is None)


@pytest.mark.parametrize(
    ("engine", "spec", "reason"),
    [
        ("vllm", None, "AIPerf kept no counters: the server sent none, or took no verification step"),
        ("vllm", {"engine": "other"}, "counters of another engine: other"),
        ("vllm", {"engine": "vllm"}, "k not in the answer, give --k"),
        (
            "sglang",
            {"engine": "vllm"},
            "AIPerf keeps this engine's counters in its raw export alone: run aiperf with --export-level raw",
        ),
    ],
)
def test_missing_counters_have_a_reason(tmp_path: Path, engine: str, spec: object, reason: str) -> None:
    line = first(RECORDS) | {"spec_decode_acceptance": spec}
    got = only(tmp_path, line, reader=Reader(ENGINES[engine], None, nominal_drafts=False))
    assert (got.status, got.counters, got.no_counters_reason) == ("ok", None, reason)


def test_k_and_nominal_drafts_are_the_users_word(tmp_path: Path) -> None:
    line = first(RECORDS)
    line["spec_decode_acceptance"]["num_spec_tokens"] = None
    counters = only(tmp_path, line, reader=Reader(ENGINES["vllm"], 5, nominal_drafts=True)).counters
    assert counters is not None
    assert (counters.k, counters.drafted, counters.histogram) == (5, None, (4, 6, 5, 4, 0, 0))


def test_clients_count_of_the_prompt_stands_in(tmp_path: Path) -> None:
    line = first(RECORDS)
    del line["metrics"]["usage_prompt_tokens"], line["metrics"]["usage_completion_tokens"]
    line["metrics"]["input_sequence_length"] = {"value": 21.0, "unit": "tokens"}
    got = only(tmp_path, line)
    assert (got.prompt_tokens, got.completion_tokens) == (21, None)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        ({"code": 503, "type": "Service Unavailable", "message": "busy"}, 503, "http 503: busy"),
        ({"code": None, "type": "ClientError", "message": "connection reset"}, None, "ClientError: connection reset"),
        ({"code": None, "type": "TimeoutError", "message": "timed out"}, None, "timeout: TimeoutError: timed out"),
        (
            {"code": 400, "type": "Bad", "message": "maximum context length"},
            400,
            "context limit: maximum context length",
        ),
        ({"type": "NoContent", "message": "no text came"}, 200, "NoContent: no text came"),
        (None, 500, "http 500"),
    ],
)
def test_failed_request_says_why(tmp_path: Path, error: object, status: int | None, reason: str) -> None:
    got = only(tmp_path, first(RECORDS) | {"error": error}, first(RAW) | {"status": status, "error": error})
    assert (got.status, got.failure_reason, got.counters, got.text) == ("failed", reason, None, None)


def test_error_is_found_in_the_raw_record_too(tmp_path: Path) -> None:
    got = only(tmp_path, first(RECORDS), first(RAW) | {"error": {"code": 502, "message": "gone"}})
    assert (got.status, got.failure_reason) == ("failed", "http 502: gone")


def test_cancelled_request_is_failed_whatever_it_holds(tmp_path: Path) -> None:
    line = first(RECORDS)
    line["metadata"]["was_cancelled"] = True
    got = only(tmp_path, line)
    assert (got.status, got.failure_reason, got.counters) == ("failed", "cancelled: by AIPerf", None)


def test_stream_without_its_end_is_failed_and_keeps_its_text(tmp_path: Path) -> None:
    raw = first(RAW)
    raw["responses"] = raw["responses"][:3]
    got = only(tmp_path, first(RECORDS), raw)
    assert (got.status, got.failure_reason) == ("failed", "stream ended before [DONE]")
    assert (got.counters, got.reasoning_text) == (None, " tok" * 7)


def test_answer_that_was_not_streamed(tmp_path: Path) -> None:
    raw = first(RAW)
    body = {
        "choices": [{"index": 0, "message": {"content": "fine"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 9},
        "metrics": {
            "speculative_decoding": {
                "acceptance_histogram": [1, 2, 1],
                "num_spec_steps": 4,
                "num_accepted_draft_tokens": 4,
                "num_draft_tokens": 8,
                "num_spec_tokens": 2,
            }
        },
    }
    raw["responses"] = [
        {"perf_ns": raw["start_perf_ns"] + 5, "text": json.dumps(body), "content_type": "application/json"}
    ]
    got = only(tmp_path, None, raw)
    assert (got.status, got.text, got.first_token_ns, got.completion_tokens) == ("ok", "fine", None, 9)
    assert got.counters is not None
    assert (got.counters.steps, got.counters.accepted) == (4, 4)


def test_requests_come_in_the_order_of_their_start(tmp_path: Path) -> None:
    lines = [profiling(line) for line in rows(RECORDED / "vllm" / RECORDS)]
    for line, start in zip(lines, (7, 3, 5, 1, 2, 6, 4), strict=True):
        line["metadata"]["request_start_ns"] = start
    put(tmp_path / RECORDS, lines)
    assert [one.record.start_ns for one in records(entries(tmp_path, []), "set", READER)] == [1, 2, 3, 4, 5, 6, 7]


def test_chunks_of_one_request_are_gone_before_the_next_is_read(tmp_path: Path) -> None:
    raw = first(RAW)
    raw["payload"]["messages"] = [{"role": "user", "content": "x" * 250_000}]
    raw["responses"][1]["packets"].append({"name": "comment", "value": "y" * 250_000})
    with (tmp_path / RAW).open("w", encoding="utf-8") as stream:
        for number in range(40):
            raw["metadata"] |= {"x_request_id": f"r{number}", "conversation_id": f"c{number}"}
            stream.write(json.dumps(raw) + "\n")
    assert (tmp_path / RAW).stat().st_size > 20_000_000
    tracemalloc.start()
    found = records(entries(tmp_path, []), "set", READER)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [one.record.status for one in found] == ["ok"] * 40
    # A line of half a megabyte, its bytes and its text, the objects made of it, and those of the line before.
    assert most < 6_000_000


def test_raw_records_are_read_as_far_as_entries_are_taken(tmp_path: Path) -> None:
    put(tmp_path / RAW, [first(RAW)], tail="broken\n")
    found = entries(tmp_path, [])
    assert next(found).start_ns == START
    with pytest.raises(UsageError, match="line 2: not JSON"):
        next(found)


def test_request_that_stands_in_a_file_twice_is_one(tmp_path: Path) -> None:
    earlier, later = first(RAW), first(RAW)
    earlier["responses"] = earlier["responses"][:3]
    put(tmp_path / RAW, [earlier, later])
    put(tmp_path / RECORDS, [first(RECORDS), first(RECORDS)])
    (found,) = records(entries(tmp_path, []), "set", READER)
    assert (found.record.status, found.record.repeat) == ("ok", 0)


@pytest.mark.parametrize("odd", ["soon", [1], -1, float("inf"), float("nan"), 2**63 - 1, 10**30, None])
def test_times_that_make_no_sense_are_null_and_lose_no_answer(tmp_path: Path, odd: object) -> None:
    recorded = first(RAW)
    for response in recorded["responses"]:
        response["perf_ns"] = odd
    found = only(tmp_path, None, raw=recorded)
    assert found.status == "ok"
    assert found.counters is not None
    assert found.first_token_ns is None
    assert RequestRecord.from_json(found.to_json()).prompt_id == found.prompt_id


def test_endless_wait_is_no_time_of_a_first_token(tmp_path: Path) -> None:
    kept = first(RECORDS)
    kept["metrics"]["time_to_first_token"] = {"value": float("inf")}
    assert only(tmp_path, kept).first_token_ns is None


def test_half_a_surrogate_pair_in_an_answer_is_a_question_mark(tmp_path: Path) -> None:
    recorded = first(RAW)
    body = '{"choices": [{"index": 0, "message": {"content": "a\ud800"}, "finish_reason": "stop"}]}'
    recorded["responses"] = [{"perf_ns": 1, "text": body}]
    assert only(tmp_path, None, raw=recorded).text == "a?"


def test_correlation_that_is_a_list_tells_instances_apart_all_the_same(tmp_path: Path) -> None:
    kept = first(RECORDS)
    kept["metadata"]["x_correlation_id"] = ["a"]
    assert only(tmp_path, kept).repeat == 0
