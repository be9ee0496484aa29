import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval import acceptance
from spec_eval.engines import ENGINES
from spec_eval.errors import UsageError
from spec_eval.importers.answers import Imported
from spec_eval.importers.captures import read
from spec_eval.records import RequestRecord

VLLM = ENGINES["vllm"]


def body(histogram: list[int] | None = None, *, tokens: int = 20, prompt: int | None = 30, **more: Any) -> Any:
    """A vLLM body with these counters, every step drafting k, or with `more` in place of its metrics."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
    usage = {"completion_tokens": tokens} | ({"prompt_tokens": prompt} if prompt is not None else {})
    made: dict[str, Any] = {"object": "chat.completion", "choices": [choice], "usage": usage}
    if histogram is not None:
        k, steps = len(histogram) - 1, sum(histogram)
        counters = {
            "acceptance_histogram": histogram,
            "num_spec_steps": steps,
            "num_accepted_draft_tokens": sum(j * n for j, n in enumerate(histogram)),
            "num_draft_tokens": k * steps,
            "num_spec_tokens": k,
        }
        made["metrics"] = {"speculative_decoding": counters}
    return made | more


def line(request_id: object, response: Any, **more: Any) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "dataset": "talk",
        "category": "easy",
        "http_status": 200,
        "error": None,
        "response": response,
        **more,
    }


def written(folder: Path, lines: list[dict[str, Any]], tail: bytes = b"") -> Path:
    path = folder / "captures.jsonl"
    path.write_bytes("".join(json.dumps(one) + "\n" for one in lines).encode() + tail)
    return path


def imported(folder: Path, *lines: dict[str, Any], **options: Any) -> Imported:
    return read(written(folder, list(lines)), VLLM, **options)


def only(folder: Path, one: dict[str, Any], **options: Any) -> RequestRecord:
    (record,) = imported(folder, one, **options).records
    return record


def test_line_becomes_a_record(tmp_path: Path) -> None:
    got = only(tmp_path, line("r1", body([1, 2, 1])))
    assert (got.cell_id, got.dataset, got.prompt_id, got.category) == ("talk", "talk", "r1", "easy")
    assert (got.status, got.finish_reason, got.text, got.turn, got.repeat) == ("ok", "stop", "fine", 0, 0)
    assert (got.prompt_tokens, got.completion_tokens, got.start_ns, got.seed_sent) == (30, 20, None, None)
    assert got.counters is not None
    assert (got.counters.steps, got.counters.accepted, got.counters.drafted, got.counters.k) == (4, 4, 8, 2)


def test_each_data_set_is_a_cell_with_the_hash_of_the_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        [line("a", body([1, 1])), line("b", body([1, 1]), dataset="other"), line("c", body([1, 1]), category="")],
    )
    got = read(path, VLLM)
    assert [(c.cell_id, c.title, c.concurrency, c.sampling.temperature) for c in got.cells] == [
        ("talk", "talk", None, None),
        ("other", "other", None, None),
    ]
    assert got.cells[0].prompts.units == (("a", "easy", 1), ("c", "(none)", 1))
    assert got.cells[0].prompts.files == {"captures.jsonl": hashlib.sha256(path.read_bytes()).hexdigest()}
    assert got.set_aside == ()


@pytest.mark.parametrize("name", [None, ""])
def test_line_without_a_data_set_is_one_of_captures(tmp_path: Path, name: object) -> None:
    assert only(tmp_path, line(7, body([1, 1]), dataset=name)).cell_id == "captures"


def test_keys_that_nobody_knows_are_passed_over(tmp_path: Path) -> None:
    assert only(tmp_path, line("r1", body([1, 1]), latency=3.5)).status == "ok"


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (
            body(
                metrics={"speculative_decoding": None},
                choices=[{"index": i, "message": {"content": "x"}} for i in (0, 1)],
            ),
            "null, n=2",
        ),
        (body(metrics=None), "metrics null"),
        (body(), "no metrics object"),
        (body(metrics={"time_to_first_token_ms": 80.1}), "metrics without speculative_decoding"),
        (body(metrics={"speculative_decoding": None}), "speculative_decoding null"),
    ],
)
def test_counters_that_are_null_or_missing_are_told_apart(tmp_path: Path, response: Any, reason: str) -> None:
    got = only(tmp_path, line("r", response))
    assert (got.status, got.counters, got.no_counters_reason) == ("ok", None, reason)


@pytest.mark.parametrize(
    ("status", "error", "response", "reason", "kind"),
    [
        (503, "overloaded", {"error": {"message": "overloaded"}}, "http 503: overloaded", "http 503"),
        (503, {"message": "busy", "code": 503}, None, "http 503: busy", "http 503"),
        (500, None, None, "http 500", "http 500"),
        (0, "timeout after 600 s", None, "timeout: timeout after 600 s", "timeout"),
        (None, "Request timed out.", None, "timeout: Request timed out.", "timeout"),
        (0, "connection reset", None, "connection reset", "connection reset"),
        (
            400,
            "This model's maximum context length is 65536 tokens",
            None,
            "context limit: This model's maximum context length is 65536 tokens",
            "context limit",
        ),
        (200, None, {"error": {"message": "engine died"}}, "server error: engine died", "server error"),
        (200, None, None, "no response body", "no response body"),
        (200, None, {"choices": []}, "no choices in the answer: {'choices': []}", "no choices in the answer"),
        (200, None, ["x"], "not a JSON object: ['x']", "not a JSON object"),
    ],
)
def test_failure_is_told_by_its_reason(
    tmp_path: Path, status: object, error: object, response: object, reason: str, kind: str
) -> None:
    got = only(tmp_path, line("r", response, http_status=status, error=error))
    assert (got.status, got.failure_reason, got.counters, got.text) == ("failed", reason, None, None)
    assert acceptance.kind(got.failure_reason) == kind


def test_answer_beside_an_error_is_not_counted(tmp_path: Path) -> None:
    got = only(tmp_path, line("r", body([1, 1]), error="client gave up"))
    assert (got.status, got.counters, got.no_counters_reason) == ("failed", None, None)


@pytest.mark.parametrize(
    ("server", "local", "expected"),
    [(30, 99, 30), (0, 99, 0), (None, 99, 99), (None, None, None), (None, "99", None), (None, 99.0, None)],
)
def test_servers_count_of_the_prompt_comes_before_the_clients(
    tmp_path: Path, server: int | None, local: object, expected: int | None
) -> None:
    got = only(tmp_path, line("r", body([1, 1], prompt=server), prompt_tokens_local=local))
    assert got.prompt_tokens == expected


def test_failed_request_has_the_clients_count(tmp_path: Path) -> None:
    got = only(tmp_path, line("r", None, http_status=503, error="busy", prompt_tokens_local=50000))
    assert (got.status, got.prompt_tokens) == ("failed", 50000)


def test_k_and_nominal_drafts_are_the_users_word(tmp_path: Path) -> None:
    answer = body([1, 1, 0])
    del answer["metrics"]["speculative_decoding"]["num_spec_tokens"]
    counters = only(tmp_path, line("r", answer), k=4, nominal_drafts=True).counters
    assert counters is not None
    assert (counters.k, counters.drafted, counters.histogram) == (4, None, (1, 1, 0, 0, 0))


def test_torn_last_line_is_set_aside_and_the_file_left_alone(tmp_path: Path) -> None:
    torn = json.dumps(line("r2", body([1, 1]))).encode()[:40]
    path = written(tmp_path, [line("r1", body([1, 1]))], torn)
    before = path.read_bytes()
    got = read(path, VLLM)
    assert [r.prompt_id for r in got.records] == ["r1"]
    assert got.set_aside == ("captures.jsonl: torn last line set aside",)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", [None, "", True, 1.5, ["r1"], {"id": "r1"}])
def test_line_whose_name_is_none_refuses_the_file(tmp_path: Path, name: object) -> None:
    path = written(tmp_path, [line("r1", body([1, 1])), line(name, body([1, 1]))])
    with pytest.raises(UsageError, match="line 2: no request_id"):
        read(path, VLLM)


def test_line_within_the_file_that_is_broken_refuses_it(tmp_path: Path) -> None:
    path = written(tmp_path, [line("r1", body([1, 1]))])
    path.write_bytes(path.read_bytes() + b'{"request_id"\n\xff\n[1]\n{"dataset":"x"}\n' + b"\n  \n")
    with pytest.raises(UsageError) as caught:
        read(path, VLLM)
    message = str(caught.value)
    for problem in ("2: not JSON", "3: not UTF-8", "4: not a JSON object", "5: no request_id"):
        assert f"line {problem}" in message


def test_body_over_several_lines_is_told_as_that(tmp_path: Path) -> None:
    path = tmp_path / "captures.jsonl"
    path.write_text(json.dumps(line("r1", body([1, 1])), indent=2), encoding="utf-8")
    with pytest.raises(UsageError, match="line 1 ends within a JSON value; write one object a line"):
        read(path, VLLM)


def test_mark_and_blank_lines_are_read_over(tmp_path: Path) -> None:
    path = written(tmp_path, [line("r1", body([1, 1])), line("r2", body([1, 1]))])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n\r\n"))
    assert [r.prompt_id for r in read(path, VLLM).records] == ["r1", "r2"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"request_id": "torn'])
def test_file_without_a_response_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "captures.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="no captured responses in it"):
        read(path, VLLM)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.jsonl: no such file"):
        read(tmp_path / "nowhere.jsonl", VLLM)


def test_completion_and_llamacpp_bodies_are_read_too(tmp_path: Path) -> None:
    completion = body([1, 1], choices=[{"index": 0, "text": "more", "finish_reason": "length"}])
    got = only(tmp_path, line("r", completion))
    assert (got.text, got.finish_reason) == ("more", "length")
    timings = body(timings={"predicted_n": 9, "draft_n": 8, "draft_n_accepted": 2})
    (other,) = read(written(tmp_path, [line("r", timings)]), ENGINES["llamacpp"], k=4).records
    assert other.no_counters_reason is not None
    assert other.no_counters_reason.startswith("steps not reported: ")


def test_request_that_comes_back_under_another_category_is_one_unit(tmp_path: Path) -> None:
    again = {**line("r1", body([0, 2])), "category": "hard"}
    path = tmp_path / "captures.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (line("r1", body([1, 1])), again)))
    (cell,) = read(path, VLLM).cells
    assert cell.prompts.units == (("r1", "easy", 1),)


@pytest.mark.parametrize("error", ["", False, {}, []])
def test_error_that_says_nothing_is_none(error: object, tmp_path: Path) -> None:
    assert only(tmp_path, line("r1", body([1, 1]), error=error)).status == "ok"


def test_status_written_as_text_is_a_number(tmp_path: Path) -> None:
    assert only(tmp_path, line("r1", body([1, 1]), http_status="200")).status == "ok"


@pytest.mark.parametrize("mark", [{"id": "chatcmpl-emulated00000001"}, {"system_fingerprint": "vllm-0.32.0+emulator"}])
def test_one_emulated_answer_makes_all_synthetic(tmp_path: Path, mark: dict[str, Any]) -> None:
    real: dict[str, Any] = {"id": "chatcmpl-81", "system_fingerprint": "vllm-0.32.0"}
    lines = line("a", body([1, 2], **real)), line("b", body([1, 2], **mark))
    assert imported(tmp_path, *lines).synthetic == "captures.jsonl: 1 of 2 answers bear an emulator's mark"
    assert imported(tmp_path, lines[0]).synthetic is None


@pytest.mark.parametrize("odd", [{"id": 7}, {"id": None, "system_fingerprint": ["+emulator"]}, {}])
def test_odd_ids_are_no_mark(tmp_path: Path, odd: dict[str, Any]) -> None:
    assert imported(tmp_path, line("a", body([1, 2], **odd))).synthetic is None
