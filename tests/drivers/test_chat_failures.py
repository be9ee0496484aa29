"""What a server may do to a request, and how it is told."""

import asyncio
import socket

import pytest

from spec_eval.drivers.chat import Timeouts, open_client
from spec_eval.engines import ENGINES
from spec_eval.engines.endpoint import Endpoint
from tests.drivers.asking import SECRET, asked, connected, lasted_ns, question, refusing
from tests.llamacpp_server import LlamaCppServer, Reply, quick_waits


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
    assert 0.2e9 < lasted_ns(result) < 5e9


async def test_a_role_chunk_is_no_sign_of_a_token() -> None:
    quick = Timeouts(first_token=0.3, between_chunks=0.05)
    with LlamaCppServer(lambda _: Reply(stall_after=1)) as server:
        result = await asked(server, timeouts=quick)
    assert str(result.failure).startswith("timeout: ")
    assert lasted_ns(result) > 0.3e9


async def test_silence_between_chunks_ends_a_request_and_keeps_what_came() -> None:
    quick = Timeouts(first_token=60, between_chunks=0.2)
    with LlamaCppServer(lambda _: Reply(stall_after=4)) as server:
        result = await asked(server, timeouts=quick)
    assert str(result.failure).startswith("timeout: ")
    assert result.text
    assert result.first_token_ns is not None
    assert lasted_ns(result) < 10e9


async def test_a_slow_answer_is_no_silent_one() -> None:
    quick = Timeouts(first_token=1, between_chunks=0.2)
    with LlamaCppServer(lambda _: Reply(pause=0.05)) as server:
        result = await asked(server, timeouts=quick)
    assert result.failure is None
    assert lasted_ns(result) > 0.4e9


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
