import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from spec_eval.drivers.chat import ChatClient, ChatRequest, ChatResult, Timeouts, open_client, sampling_body
from spec_eval.engines import ENGINES
from spec_eval.engines.endpoint import Endpoint
from spec_eval.records import SpecCounters
from spec_eval.suite import Sampling
from tests.llamacpp_server import LlamaCppServer, Reply, quick_waits

SECRET = "sk-very-secret-4711"
BODY = {"temperature": 0.0, "max_tokens": 32}


@asynccontextmanager
async def connected(
    server: LlamaCppServer,
    *,
    concurrency: int = 1,
    timeouts: Timeouts | None = None,
    key: str | None = None,
    engine: str = "llamacpp",
) -> AsyncIterator[ChatClient]:
    endpoint = Endpoint(server.root, key)
    async with open_client(endpoint, ENGINES[engine], k=4, concurrency=concurrency, timeouts=timeouts) as client:
        yield client


def question(text: str = "hello") -> ChatRequest:
    return ChatRequest("tiny", ({"role": "user", "content": text},), BODY)


async def asked(server: LlamaCppServer, *, timeouts: Timeouts | None = None, key: str | None = None) -> ChatResult:
    async with connected(server, timeouts=timeouts, key=key) as client:
        return await asyncio.wait_for(client.ask(question()), 10)


def refusing(status: int, body: object, **headers: str) -> Reply:
    plain = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(status=status, plain=plain, headers=tuple((k.replace("_", "-"), v) for k, v in headers.items()))


async def test_a_streamed_answer_comes_back_with_times_usage_and_counters() -> None:
    before = time.time_ns()
    with LlamaCppServer(lambda _: Reply(reasoning="hm", text="four words of text", pause=0.002)) as server:
        result = await asked(server)
    after = time.time_ns()
    assert (result.failure, result.attempt, result.connected, result.finish_reason) == (None, 1, True, "stop")
    assert (result.text, result.reasoning_text) == ("four words of text", "hm")
    assert (result.prompt_tokens, result.cached_tokens, result.completion_tokens) == (7, 0, 9)
    assert result.reasoning_tokens is None
    assert result.first_token_ns is not None
    # the wall clock may be set while a test runs, so a second is allowed at both ends
    assert before - 10**9 < result.start_ns < result.first_token_ns < result.end_ns < after + 10**9
    assert result.reading is not None
    assert result.reading.counters == SpecCounters(
        steps=3,
        accepted=5,
        drafted=11,
        histogram=(1, 0, 1, 1, 0),
        k=4,
        per_step_accepted=(2, 0, 3),
        per_step_drafted=(4, 4, 3),
        source="timings",
    )


async def test_the_request_carries_what_was_asked_and_what_switches_the_counters_on() -> None:
    body = sampling_body(Sampling(temperature=0.5, max_tokens=9, top_k=3, thinking=False), seed=11)
    with LlamaCppServer() as server:
        async with connected(server, key=SECRET) as client:
            await client.ask(ChatRequest("tiny", ({"role": "user", "content": "hi"},), body))
    ask = server.asks[0]
    assert ask.body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "max_tokens": 9,
        "top_k": 3,
        "chat_template_kwargs": {"enable_thinking": False},
        "seed": 11,
        "timings_per_token": True,
        "cache_prompt": False,
    }
    headers = {name.lower(): value for name, value in ask.headers.items()}
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert headers["accept-encoding"] == "identity"


def test_sampling_sends_only_what_is_set() -> None:
    assert sampling_body(Sampling(temperature=0.0, max_tokens=5), seed=None) == {"temperature": 0.0, "max_tokens": 5}
    assert sampling_body(Sampling(temperature=1.0, max_tokens=5, top_p=0.9, thinking=True), seed=0) == {
        "temperature": 1.0,
        "max_tokens": 5,
        "top_p": 0.9,
        "chat_template_kwargs": {"enable_thinking": True},
        "seed": 0,
    }


async def test_an_answer_that_was_not_streamed_is_taken_whole() -> None:
    body = {
        "choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 2, "prompt_tokens": 3},
        "timings": {"predicted_n": 2, "draft_n": 4, "draft_n_accepted": 1},
    }
    with LlamaCppServer(lambda _: refusing(200, body)) as server:
        result = await asked(server)
    assert (result.failure, result.text, result.first_token_ns, result.completion_tokens) == (None, "yes", None, 2)
    assert result.reading is not None
    assert result.reading.counters is None
    assert str(result.reading.reason).startswith("steps not reported")


async def test_too_many_requests_waits_as_long_as_the_server_says_and_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = quick_waits(monkeypatch)
    busy = refusing(429, {"error": {"message": "slow down"}}, Retry_After="17")
    with LlamaCppServer(lambda ask: busy if ask.number == 0 else Reply()) as server:
        result = await asked(server)
    assert (result.failure, result.attempt, len(server.asks)) == (None, 2, 2)
    assert 17.0 in waits


@pytest.mark.parametrize(("said", "waited"), [("100000", 60.0), ("Wed, 21 Oct 2035 07:28:00 GMT", 1.0), ("", 1.0)])
async def test_a_retry_after_that_is_no_sane_number_of_seconds_is_bounded(
    said: str, waited: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = quick_waits(monkeypatch)
    with LlamaCppServer(lambda a: refusing(503, {}, Retry_After=said) if a.number == 0 else Reply()) as server:
        result = await asked(server)
    assert (result.failure, result.attempt) == (None, 2)
    assert waited in waits
    assert max(waits) == waited


@pytest.mark.parametrize("said", ["-5", "nan", "inf", "-inf"])
async def test_a_retry_after_that_is_nonsense_ends_in_an_answer_all_the_same(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = quick_waits(monkeypatch)
    with LlamaCppServer(lambda a: refusing(429, {}, Retry_After=said) if a.number == 0 else Reply()) as server:
        result = await asked(server)
    assert (result.failure, result.attempt) == (None, 2)
    assert all(0 <= wait <= 60 for wait in waits)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_server_that_stays_busy_is_asked_four_times(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = quick_waits(monkeypatch)
    with LlamaCppServer(lambda _: refusing(status, {"error": {"message": "overloaded"}})) as server:
        result = await asked(server)
    assert (result.failure, result.attempt, len(server.asks)) == (f"http {status}: overloaded", 4, 4)
    assert result.connected
    assert [w for w in waits if w > 1] == [2.0, 4.0]


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (500, {"error": {"message": "tensor went missing"}}, "http 500: tensor went missing"),
        (400, {"error": {"message": "bad field"}}, "http 400: bad field"),
        (404, {"error": {"message": "model `x` does not exist"}}, "http 404: model `x` does not exist"),
        (404, {"detail": "Not Found"}, 'http 404: {"detail": "Not Found"}'),
        (422, b"", "http 422: "),
        (
            400,
            {"error": {"message": "the request exceeds the available context size (512 tokens)", "type": "x"}},
            "context limit: the request exceeds the available context size (512 tokens)",
        ),
        (
            400,
            {"object": "error", "message": "This model's maximum context length is 512 tokens.", "code": 400},
            "context limit: This model's maximum context length is 512 tokens.",
        ),
    ],
)
async def test_a_refusal_is_final_and_named(status: int, body: object, failure: str) -> None:
    with LlamaCppServer(lambda _: refusing(status, body)) as server:
        result = await asked(server)
    assert (result.failure, result.attempt, len(server.asks)) == (failure, 1, 1)
    assert (result.text, result.reading, result.first_token_ns) == (None, None, None)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_never_told(status: int) -> None:
    echo = {"error": {"message": f"Incorrect API key provided: {SECRET}"}}
    with LlamaCppServer(lambda _: refusing(status, echo)) as server:
        result = await asked(server, key=SECRET)
    assert result.failure == f"http {status}: key refused; set the key in the variable that --api-key-env names"
    assert SECRET not in repr(result)
    assert SECRET not in repr(Endpoint(server.root, SECRET))


async def test_a_page_of_a_gateway_is_told_by_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_waits(monkeypatch)
    page = Reply(
        status=502,
        plain=b"<html>\n<body><h1>502 Bad Gateway</h1></body></html>" + b"<!-- -->" * 500,
        content_type="text/html",
    )
    with LlamaCppServer(lambda _: page) as server:
        result = await asked(server)
    assert str(result.failure).startswith("http 502: <html> <body><h1>502 Bad Gateway</h1>")
    assert len(str(result.failure)) < 300
    assert "\n" not in str(result.failure)


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (Reply(plain=b""), "empty body"),
        (Reply(stream=b""), "empty body"),
        (Reply(plain=b'{"object":"error","message":"not with streaming"}'), "server error: not with streaming"),
        (Reply(plain=b"<p>Login</p>", content_type="text/html"), "not an event stream but text/html: <p>Login</p>"),
        (Reply(plain=b"welcome"), "not JSON: welcome"),
        (Reply(stream=b"<p>Login</p>\n\n"), "stream ended before [DONE]"),
        (Reply(stream=b"data: {oops\n\n"), "not JSON: {oops"),
        (Reply(stream=b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'), "stream ended before [DONE]"),
        (Reply(stream=b'data: {"error":{"message":"died"}}\n\ndata: [DONE]\n\n'), "server error: died"),
    ],
)
async def test_a_200_that_is_no_answer_is_a_failure(reply: Reply, failure: str) -> None:
    with LlamaCppServer(lambda _: reply) as server:
        result = await asked(server)
        assert len(server.asks) == 1
    assert (result.failure, result.attempt, result.connected, result.reading) == (failure, 1, True, None)


@pytest.mark.parametrize(
    "event", [b'{"choices":["x"]}', b'{"choices":{"a":1}}', b'{"choices":[{"delta":{"content":[1]}}]}']
)
async def test_ask_never_raises_for_what_a_server_may_send(event: bytes) -> None:
    with LlamaCppServer(lambda _: Reply(stream=b"data: " + event + b"\n\ndata: [DONE]\n\n")) as server:
        result = await asked(server)
    assert result.failure is not None


async def test_nobody_at_the_port_is_no_connection_after_four_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = quick_waits(monkeypatch)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with open_client(Endpoint(f"http://127.0.0.1:{port}"), ENGINES["llamacpp"], k=4, concurrency=1) as client:
        result = await client.ask(question())
    assert (result.attempt, result.connected, result.text) == (4, False, None)
    failure = str(result.failure)
    assert failure.startswith("no connection: ")
    assert "refused" in failure or "Connect call failed" in failure
    assert [w for w in waits if w > 1] == [2.0, 4.0]


async def test_a_connection_dropped_before_anything_came_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_waits(monkeypatch)
    with LlamaCppServer(lambda ask: Reply(drop_after=0 if ask.number == 0 else None)) as server:
        result = await asked(server)
    assert (result.failure, result.attempt, len(server.asks)) == (None, 2, 2)


async def test_a_connection_dropped_within_an_answer_is_a_failure_at_once() -> None:
    with LlamaCppServer(lambda _: Reply(drop_after=4, pause=0.002)) as server:
        result = await asked(server)
        assert len(server.asks) == 1
    assert str(result.failure).startswith("connection lost: ")
    assert (result.attempt, result.connected, result.reading) == (1, True, None)
    assert result.first_token_ns is not None
    assert result.text
    assert "one two three four five six seven".startswith(result.text)


async def test_silence_before_the_first_token_ends_a_request() -> None:
    quick = Timeouts(first_token=0.2, between_chunks=0.2)
    with LlamaCppServer(lambda _: Reply(stall_after=0)) as server:
        result = await asked(server, timeouts=quick)
    assert str(result.failure).startswith("timeout: ")
    assert (result.attempt, result.connected, result.first_token_ns) == (1, True, None)
    assert 0.2e9 < result.end_ns - result.start_ns < 5e9


async def test_a_role_chunk_is_no_sign_of_a_token() -> None:
    quick = Timeouts(first_token=0.3, between_chunks=0.05)
    with LlamaCppServer(lambda _: Reply(stall_after=1)) as server:
        result = await asked(server, timeouts=quick)
    assert str(result.failure).startswith("timeout: ")
    assert result.end_ns - result.start_ns > 0.3e9


async def test_silence_between_chunks_ends_a_request_and_keeps_what_came() -> None:
    quick = Timeouts(first_token=60, between_chunks=0.2)
    with LlamaCppServer(lambda _: Reply(stall_after=4)) as server:
        result = await asked(server, timeouts=quick)
    assert str(result.failure).startswith("timeout: ")
    assert result.text
    assert result.first_token_ns is not None
    assert result.end_ns - result.start_ns < 10e9


async def test_a_slow_answer_is_no_silent_one() -> None:
    quick = Timeouts(first_token=1, between_chunks=0.2)
    with LlamaCppServer(lambda _: Reply(pause=0.05)) as server:
        result = await asked(server, timeouts=quick)
    assert result.failure is None
    assert result.end_ns - result.start_ns > 0.4e9


async def test_a_silent_request_leaves_the_client_fit_for_the_next() -> None:
    quick = Timeouts(first_token=0.2, between_chunks=0.2)
    with LlamaCppServer(lambda ask: Reply(stall_after=0 if ask.number == 0 else None)) as server:
        async with connected(server, timeouts=quick) as client:
            first, second = await client.ask(question()), await client.ask(question())
            assert client.aborted == 0
    assert first.failure is not None
    assert second.failure is None
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_request_cancelled_in_flight_is_counted_as_aborted() -> None:
    with LlamaCppServer(lambda _: Reply(stall_after=3)) as server:
        async with connected(server) as client:
            task = asyncio.create_task(client.ask(question()))
            await asyncio.to_thread(server.until, lambda s: len(s.counted) > 0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert client.aborted == 1


async def test_a_cancellation_that_meets_the_watchdog_is_not_swallowed() -> None:
    with LlamaCppServer(lambda _: Reply(stall_after=0)) as server:
        async with connected(server) as client:
            task = asyncio.create_task(client.ask(question()))
            await asyncio.to_thread(server.until, lambda s: len(s.asks) > 0)
            for pulse in client._pulses:
                pulse.expired = "timeout: silent"
                pulse.task.cancel()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), 5)


async def test_many_requests_share_few_connections() -> None:
    with LlamaCppServer() as server:
        async with connected(server, concurrency=4, engine="vllm") as client:

            async def worker() -> list[ChatResult]:
                return [await client.ask(question()) for _ in range(15)]

            results = [r for rows in await asyncio.gather(*(worker() for _ in range(4))) for r in rows]
    assert [r.failure for r in results] == [None] * 60
    assert len(server.asks) == 60
    assert len(server.connections) <= 5


async def test_a_llamacpp_server_that_hangs_up_after_each_answer_costs_no_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It says `Keep-Alive: timeout=5` and closes the connection behind every streamed answer all the same.
    waits = quick_waits(monkeypatch)
    with LlamaCppServer(lambda _: Reply(hang_up=True)) as server:
        async with connected(server, concurrency=2) as client:

            async def worker() -> list[ChatResult]:
                return [await client.ask(question()) for _ in range(8)]

            results = [r for rows in await asyncio.gather(worker(), worker()) for r in rows]
    assert [(r.failure, r.attempt) for r in results] == [(None, 1)] * 16
    assert len(server.asks) == 16
    assert [w for w in waits if w != 1.0] == []  # the watchdog's own beat is one second


async def test_every_planned_request_is_really_in_flight_and_none_waits_for_a_connection() -> None:
    n = 130
    with LlamaCppServer(lambda _: Reply(hold=lambda s: s.most_in_flight >= n)) as server:
        async with connected(server, concurrency=n) as client:
            results = await asyncio.gather(*(client.ask(question(str(i))) for i in range(n)))
    assert [r.failure for r in results] == [None] * n
    assert server.most_in_flight == n


async def test_a_failed_attempt_leaves_nothing_in_the_next_ones_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_waits(monkeypatch)
    busy = refusing(503, {"error": {"message": "loading model"}})
    with LlamaCppServer(lambda ask: busy if ask.number < 2 else Reply(pause=0.002)) as server:
        began = time.monotonic()
        result = await asked(server)
        took = time.monotonic() - began
    assert (result.failure, result.attempt, result.text) == (None, 3, "one two three four five six seven")
    assert result.end_ns - result.start_ns < took * 1e9  # the start is the last attempt's


async def test_the_environment_sends_nothing_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with LlamaCppServer() as server:
        result = await asked(server)
    assert result.failure is None


def test_timeouts_bound_silence_and_not_length() -> None:
    fields: dict[str, Any] = {name: getattr(Timeouts(), name) for name in ("connect", "first_token", "between_chunks")}
    assert all(value > 0 for value in fields.values())
    assert fields["connect"] < fields["between_chunks"] < fields["first_token"]
