import asyncio
import time
from typing import Any

import pytest

from spec_eval.drivers.chat import ChatRequest, Timeouts, sampling_body
from spec_eval.drivers.outcome import Outcome
from spec_eval.records import SpecCounters
from spec_eval.suite import Sampling
from tests.drivers.asking import SECRET, asked, connected, lasted_ns, question, refusing
from tests.llamacpp_server import LlamaCppServer, Reply, quick_waits


async def test_a_streamed_answer_comes_back_with_times_usage_and_counters() -> None:
    before = time.time_ns()
    with LlamaCppServer(lambda _: Reply(reasoning="hm", text="four words of text", pause=0.002)) as server:
        result = await asked(server)
    after = time.time_ns()
    assert (result.failure, result.attempt, result.connected, result.finish_reason) == (None, 1, True, "stop")
    assert (result.text, result.reasoning_text) == ("four words of text", "hm")
    assert (result.prompt_tokens, result.cached_tokens, result.completion_tokens) == (7, 0, 9)
    assert result.reasoning_tokens is None
    assert result.start_ns is not None
    assert result.first_token_ns is not None
    assert result.end_ns is not None
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

            async def worker() -> list[Outcome]:
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

            async def worker() -> list[Outcome]:
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
    assert lasted_ns(result) < took * 1e9  # the start is the last attempt's


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
