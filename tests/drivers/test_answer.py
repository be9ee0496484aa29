import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from spec_eval.drivers.answer import Answer, AnswerError
from spec_eval.engines import ENGINES
from spec_eval.records import is_count

DONE = b"data: [DONE]\n\n"


def answer() -> Answer:
    return Answer(ENGINES["llamacpp"].reader(4))


def event(delta: dict[str, Any] | None = None, *, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    chunk = {"object": "chat.completion.chunk", "choices": choices, **more}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def clock() -> Iterator[int]:
    yield from range(100, 10_000, 100)


def streamed(*events: bytes) -> Answer:
    """Each event in a read of its own, at 100, 200, … ns."""
    found = answer()
    for now, data in zip(clock(), events, strict=False):
        found.feed(data, now)
    found.close()
    return found


@pytest.mark.parametrize("key", ["content", "reasoning_content", "reasoning"])
def test_the_first_token_is_the_first_words_of_either_kind(key: str) -> None:
    found = streamed(event({"role": "assistant", "content": ""}), event({key: "a"}), event({"content": "b"}), DONE)
    assert found.first_token_ns == 200


def test_a_first_token_may_be_a_tool_call() -> None:
    found = streamed(event({"role": "assistant"}), event({"tool_calls": [{"index": 0}]}), DONE)
    assert found.first_token_ns == 200


def test_text_and_reasoning_are_kept_apart_and_whole() -> None:
    found = streamed(
        event({"reasoning_content": "想一"}),
        event({"reasoning": "想 🤔"}),
        event({"content": "na\u2028ïve"}),
        event({"content": " ✅"}),
        event({}, finish="stop"),
        DONE,
    )
    assert ("".join(found.reasoning), "".join(found.text)) == ("想一想 🤔", "na\u2028ïve ✅")
    assert found.finish_reason == "stop"


def test_a_stream_in_seven_byte_pieces_with_mixed_framing_and_counters_in_the_choiceless_last_chunk() -> None:
    usage = {
        "prompt_tokens": 21,
        "completion_tokens": 13,
        "completion_tokens_details": {"reasoning_tokens": 5},
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    stream = (
        b": hello\n\n"
        + event({"role": "assistant", "content": ""})
        + event({"reasoning_content": "mm 🤔"}).replace(b"\n", b"\r\n")
        + event({"content": "fin\u2028e — é"}, finish=None)
        + event({}, finish="stop")
        + event(None, usage=usage, timings={"predicted_n": 13, "draft_n": 8, "draft_n_accepted": 3})
        + DONE
    )
    found = answer()
    for i in range(0, len(stream), 7):
        found.feed(stream[i : i + 7], i)
    found.close()
    assert found.first_token_ns is not None
    assert stream[: found.first_token_ns].count(b"reasoning_content") == 1
    assert "fin\u2028e".encode() not in stream[: found.first_token_ns]
    assert ("".join(found.text), found.finish_reason) == ("fin\u2028e — é", "stop")
    assert (found.count("prompt_tokens"), found.count("completion_tokens")) == (21, 13)
    assert found.count("reasoning_tokens", of="completion_tokens_details") == 5
    assert found.count("cached_tokens", of="prompt_tokens_details") == 2
    assert found.reader.reading().raw == {"predicted_n": 13, "draft_n": 8, "draft_n_accepted": 3}


def test_usage_beside_choices_counts_as_well() -> None:
    found = streamed(event({"content": "x"}, usage={"completion_tokens": 1}), DONE)
    assert found.count("completion_tokens") == 1


def test_done_but_no_usage_is_an_answer_without_counters() -> None:
    found = streamed(event({"content": "partial answer"}), event({}, finish="stop"), DONE)
    assert (found.done, found.finish_reason, found.count("completion_tokens")) == (True, "stop", None)
    reading = found.reader.reading()
    assert reading.counters is None
    assert reading.reason == "no timings in the answer"


def test_done_may_lack_its_last_line_end() -> None:
    assert streamed(event({"content": "x"}), b"data: [DONE]").received


@pytest.mark.parametrize("tail", [b"", b'data: {"choices":[{"ind', b"data: [DO"])
def test_a_stream_that_is_cut_is_no_answer(tail: bytes) -> None:
    found = answer()
    found.feed(event({"content": "partial"}) + tail, 1)
    with pytest.raises(AnswerError, match=r"^stream ended before \[DONE\]$"):
        found.close()


@pytest.mark.parametrize("data", [DONE, b": keep-alive\n\n" + DONE, b"event: end\ndata: [DONE]"])
def test_an_end_with_nothing_before_it_is_no_answer(data: bytes) -> None:
    found = answer()
    found.feed(data, 100)
    with pytest.raises(AnswerError, match=r"^no answer before \[DONE\]$"):
        found.close()


def test_nothing_at_all_is_an_empty_body() -> None:
    with pytest.raises(AnswerError, match=r"^empty body$"):
        answer().close()
    with pytest.raises(AnswerError, match=r"^empty body$"):
        answer().whole(b" \n")


@pytest.mark.parametrize(
    "data",
    [
        b'data: {"error":{"message":"engine process died","type":"internal_server_error","code":500}}\n\n',
        b'data: {"error":"engine process died"}\n\n',
        b'data: {"object":"error","message":"engine process died","code":500}\n\n',
        # llama.cpp before its errors became data lines: the bare error object, and [DONE] still follows
        b'error: {"code":500,"message":"engine process died","type":"server_error"}\n\n',
        # a router's error rides on a last choice
        b'data: {"error":{"message":"engine process died"},'
        b'"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}\n\n',
    ],
)
def test_an_error_after_200_is_a_failure_with_the_servers_words(data: bytes) -> None:
    found = answer()
    found.feed(event({"content": "half"}), 1)
    with pytest.raises(AnswerError, match=r"^server error: engine process died$"):
        found.feed(data + DONE, 2)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"data: <html>oops</html>\n\n", "not JSON: <html>oops</html>"),
        (b"data: {'choices': []}\n\n", "not JSON: {'choices': []}"),
        (b"data: [1, 2]\n\n", "not a JSON object: [1, 2]"),
        (b"data: null\n\n", "not a JSON object: null"),
        (
            b'data: {"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n",
            'not JSON: {"choices": ' + "[" * 188 + "…",
        ),
        (b'data: {"choices": ' + b"9" * 5000 + b"}\n\n", 'not JSON: {"choices": ' + "9" * 188 + "…"),
        (b"data: \xff\xfe\n\n", "not JSON: \ufffd\ufffd"),
    ],
)
def test_an_event_that_is_no_json_object_is_a_failure(data: bytes, reason: str) -> None:
    with pytest.raises(AnswerError, match=f"^{re.escape(reason)}$"):
        answer().feed(data, 1)


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": ["text"]},
        {"choices": {"index": 0}},
        {"choices": "text"},
        {"choices": [None]},
        {"choices": [{"delta": "text"}]},
        {"choices": [{"delta": ["text"]}]},
    ],
)
def test_oddly_shaped_events_are_failures_not_crashes(odd: dict[str, Any]) -> None:
    with pytest.raises(AnswerError):
        answer().feed(b"data: " + json.dumps(odd).encode() + b"\n\n", 1)


@pytest.mark.parametrize("content", [["part"], {"text": "part"}, 7])
def test_content_that_is_no_text_is_a_failure_not_a_crash(content: object) -> None:
    with pytest.raises(AnswerError):
        answer().feed(event({"content": content}), 1)


def test_a_choice_without_delta_is_passed_over() -> None:
    data = b'data: {"choices":[{"index":0,"delta":null,"finish_reason":"stop"}]}\n\n'
    assert streamed(event({"content": "x"}), data, DONE).finish_reason == "stop"


def test_a_long_error_is_cut_to_its_head_on_one_line() -> None:
    body = b"<html>\n<h1>Bad   Gateway</h1>" + b"x" * 5000
    with pytest.raises(AnswerError) as caught:
        answer().whole(body)
    message = str(caught.value)
    assert message.startswith("not JSON: <html> <h1>Bad Gateway</h1>xxx")
    assert "\n" not in message
    assert len(message) < 300


def test_a_whole_body_is_taken_without_a_first_token_time() -> None:
    found = answer()
    body = {
        "choices": [{"message": {"content": "yes", "reasoning_content": "hm"}, "finish_reason": "length"}],
        "usage": {"completion_tokens": 2},
        "timings": {"predicted_n": 2},
    }
    found.whole(json.dumps(body).encode())
    assert (found.text, found.reasoning, found.finish_reason) == (["yes"], ["hm"], "length")
    assert (found.first_token_ns, found.count("completion_tokens")) == (None, 2)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"object": "error", "message": "return_meta_info is refused", "code": 400}, "server error: return_meta_info"),
        ({"error": "Unauthorized"}, "server error: Unauthorized"),
        ({"error": {"message": "too big", "code": 400}}, "server error: too big"),
        ({"choices": []}, "no choices in the answer: "),
        ({"detail": "Not Found"}, "no choices in the answer: "),
        ({"choices": "text"}, "no choices in the answer: "),
    ],
)
def test_a_200_with_an_error_body_is_a_failure(body: dict[str, Any], reason: str) -> None:
    with pytest.raises(AnswerError, match=f"^{reason}"):
        answer().whole(json.dumps(body).encode())


@pytest.mark.parametrize("choices", [["text"], [None], [7]])
def test_a_whole_body_with_odd_choices_is_a_failure_not_a_crash(choices: list[object]) -> None:
    with pytest.raises(AnswerError):
        answer().whole(json.dumps({"choices": choices}).encode())


@pytest.mark.parametrize("value", ["true", "NaN", "Infinity", "-3", "2.0", '"9"', "null", "[4]"])
def test_a_usage_count_that_is_no_count_is_null(value: str) -> None:
    data = f'data: {{"choices":[],"usage":{{"completion_tokens":{value},"prompt_tokens":6}}}}\n\n'.encode()
    found = streamed(event({"content": "x"}), data, DONE)
    assert (found.count("completion_tokens"), found.count("prompt_tokens")) == (None, 6)


@pytest.mark.parametrize("details", ["null", "3", '"x"', "[]", '{"cached_tokens": true}'])
def test_usage_details_that_are_no_table_are_null(details: str) -> None:
    data = f'data: {{"choices":[],"usage":{{"prompt_tokens_details":{details}}}}}\n\n'.encode()
    found = streamed(event({"content": "x"}), data, DONE)
    assert found.count("cached_tokens", of="prompt_tokens_details") is None


def test_usage_that_is_no_table_is_as_good_as_none() -> None:
    found = streamed(event({"content": "x"}), b'data: {"choices":[],"usage":[1]}\n\n', DONE)
    assert found.count("completion_tokens") is None
    assert not is_count(True)


def test_half_a_surrogate_pair_in_a_text_is_kept() -> None:
    split = rb'data: {"choices":[{"delta":{"content":"a\ud83d"}}]}' + b"\n\n"
    rest = rb'data: {"choices":[{"delta":{"content":"\ude00b"}}]}' + b"\n\n"
    found = streamed(split, event({"content": "é"}), rest, DONE)
    assert found.text == ["a\ud83d", "é", "\ude00b"]


def test_a_whole_body_that_is_nested_too_deeply_is_not_read() -> None:
    with pytest.raises(AnswerError, match=r"^not JSON: "):
        answer().whole(b'{"choices": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001)
