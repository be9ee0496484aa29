"""The chat client: one request out, one answer back, exact times, every failure under a name.

The OpenAI client sends; its aiohttp transport hands over raw bytes and our own splitter reads them, for a fraction
of the processor time that the client's chunk objects cost (docs/design/driver.md, benchmarks/chunk_cost.py).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai
from openai import AsyncOpenAI, AsyncStream, DefaultAioHttpClient
from openai.types.chat import ChatCompletionChunk

from spec_eval.drivers.answer import Answer, AnswerError
from spec_eval.drivers.outcome import Outcome, http_failure, outcome
from spec_eval.engines import Engine
from spec_eval.engines.endpoint import Endpoint, head
from spec_eval.prompts import Message
from spec_eval.suite import Sampling

ATTEMPTS = 4
_RETRY_STATUS = frozenset({429, 502, 503, 504})
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. No limit on a whole answer: a slow one is a result, a silent one is not."""

    connect: float = 30.0
    first_token: float = 1800.0
    between_chunks: float = 300.0


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is asked once. body holds the sampling fields and the engine's own."""

    model: str
    messages: tuple[Message, ...]
    body: Mapping[str, Any]


def sampling_body(sampling: Sampling, seed: int | None) -> dict[str, Any]:
    """The request fields of `sampling`; what is null stays the server's default."""
    fields = sampling.model_dump(exclude_none=True, exclude={"thinking"})
    if sampling.thinking is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": sampling.thinking}
    if seed is not None:
        fields["seed"] = seed
    return fields


@dataclass(slots=True, eq=False)
class _Pulse:
    """When an answer last showed life, for the watchdog."""

    task: asyncio.Task[Any]
    deadline: float
    expired: str | None = None


@dataclass
class ChatClient:
    """Sends requests to one server. Use within `open_client`.

    chain: whether drafts are chains; positions of a tree's drafts are not kept. attempts: at a request, at most.
    aborted: requests that were cancelled in flight; the server may have counted their steps.
    """

    engine: Engine
    client: AsyncOpenAI
    k: int | None
    timeouts: Timeouts
    nominal_drafts: bool = False
    cold_cache: bool = True
    chain: bool = True
    scrub: Callable[[str], str] = str
    attempts: int = ATTEMPTS
    aborted: int = 0
    _pulses: set[_Pulse] = field(default_factory=set)
    _clock_offset_ns: int = field(default_factory=lambda: time.time_ns() - time.monotonic_ns())

    async def ask(self, request: ChatRequest) -> Outcome:
        """Send until something is generated; never raises for what a server may do."""
        for attempt in range(1, self.attempts + 1):
            start_ns = self._now_ns()
            answer = Answer(self.engine.reader(self.k, nominal_drafts=self.nominal_drafts))
            failure, wait_s, connected = await self._try(request, answer, attempt)
            if failure is None or wait_s is None or attempt == self.attempts:
                return outcome(
                    answer,
                    self.scrub(failure) if failure else None,
                    attempt=attempt,
                    start_ns=start_ns,
                    end_ns=self._now_ns(),
                    connected=connected,
                    chain=self.chain,
                )
            await asyncio.sleep(wait_s)
        raise AssertionError("the last attempt returns")

    async def _try(self, request: ChatRequest, answer: Answer, attempt: int) -> tuple[str | None, float | None, bool]:
        """(failure, seconds to wait before another try or None, whether the server was reached)."""
        backoff = float(2 ** (attempt - 1))
        try:
            await self._stream(request, answer)
        except AnswerError as error:
            return str(error), None, True
        except openai.APIStatusError as error:
            return _status_failure(error), _retry_after(error, backoff), True
        except (openai.APITimeoutError, openai.APIConnectionError, httpx2.TransportError, OSError) as error:
            # The transport reports a refused connection as a timeout; what caused it tells.
            reached = answer.received
            reason = "connection lost" if reached else "no connection"
            return f"{reason}: {_root_cause(error)}", None if reached else backoff, reached
        except _Silent as error:
            return str(error), None, True
        except Exception as error:  # whatever a broken answer makes a library raise: one failure, never the run's end
            return f"unreadable answer: {type(error).__name__}: {_root_cause(error)}", None, True
        return None, None, True

    async def _stream(self, request: ChatRequest, answer: Answer) -> None:
        body = {
            "model": request.model,
            "messages": list(request.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            **request.body,
            **self.engine.extra_body(cold_cache=self.cold_cache),
        }
        task = asyncio.current_task()
        assert task is not None
        pulse = _Pulse(task, time.monotonic() + self.timeouts.first_token)
        self._pulses.add(pulse)
        try:
            stream: AsyncStream[ChatCompletionChunk] = await self.client.post(
                "/chat/completions",
                cast_to=ChatCompletionChunk,
                body=body,
                stream=True,
                stream_cls=AsyncStream[ChatCompletionChunk],
                options={"headers": {"Accept-Encoding": "identity"} | self.engine.headers},
            )
            await self._read(stream.response, answer, pulse)
        except asyncio.CancelledError:
            # The watchdog's own cancellation is taken back; one from outside beside it is not.
            if pulse.expired is None or task.uncancel() > 0:
                self.aborted += 1
                raise
            raise _Silent(pulse.expired) from None
        finally:
            self._pulses.discard(pulse)

    async def _read(self, response: httpx2.Response, answer: Answer, pulse: _Pulse) -> None:
        try:
            content_type = response.headers.get("content-type", "text/event-stream")
            if "json" in content_type:
                answer.whole(await response.aread())
                return
            if "event-stream" not in content_type:
                raise AnswerError(
                    f"not an event stream but {content_type}: {head((await response.aread()).decode(errors='replace'))}"
                )
            between = self.timeouts.between_chunks
            async for data in response.aiter_raw():
                answer.feed(data, self._now_ns())
                if answer.first_token_ns is not None:
                    pulse.deadline = time.monotonic() + between
            answer.close()
        finally:
            await response.aclose()

    def _now_ns(self) -> int:
        return time.monotonic_ns() + self._clock_offset_ns

    async def watch(self) -> None:
        """Once a second, end the requests that have been silent for too long."""
        while True:
            await asyncio.sleep(min(1.0, self.timeouts.between_chunks / 4))
            now = time.monotonic()
            for pulse in list(self._pulses):
                if now > pulse.deadline and pulse.expired is None:
                    pulse.expired = "timeout: silent for too long (first token "
                    pulse.expired += (
                        f"{self.timeouts.first_token:g} s, between chunks {self.timeouts.between_chunks:g} s)"
                    )
                    pulse.task.cancel()


class _Silent(Exception):
    """The watchdog's verdict."""


@asynccontextmanager
async def open_client(
    endpoint: Endpoint,
    engine: Engine,
    *,
    k: int | None,
    concurrency: int,
    timeouts: Timeouts | None = None,
    nominal_drafts: bool = False,
    cold_cache: bool = True,
    chain: bool = True,
    attempts: int = ATTEMPTS,
) -> AsyncIterator[ChatClient]:
    """A client with as many connections as there may be requests, so that none waits for a free one unseen."""
    timeouts = timeouts or Timeouts()
    # Keep-alive ends before a server's own (vLLM: 5 s), else a request may go out on a dying connection.
    limits = httpx2.Limits(
        max_connections=concurrency + 8, max_keepalive_connections=concurrency + 8, keepalive_expiry=3.0
    )
    timeout = httpx2.Timeout(None, connect=timeouts.connect)
    http_client = DefaultAioHttpClient(
        limits=limits,
        timeout=timeout,
        trust_env=False,
        follow_redirects=False,
        # Plain http has no use for certificates, and reading those of all authorities takes a tenth of a second.
        verify=endpoint.root.startswith("https:"),
    )
    async with AsyncOpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.api_key or "none",
        max_retries=0,
        timeout=timeout,
        http_client=http_client,
    ) as client:
        chat = ChatClient(engine, client, k, timeouts, nominal_drafts, cold_cache, chain, endpoint.scrubbed, attempts)
        watchdog = asyncio.create_task(chat.watch())
        try:
            yield chat
        finally:
            watchdog.cancel()


def _status_failure(error: openai.APIStatusError) -> str:
    status, body = error.status_code, error.body
    message = body.get("message") if isinstance(body, dict) else None
    text = head(str(message if message is not None else error.response.text))
    if status in (401, 403):
        return f"http {status}: key refused; set the key in the variable that --api-key-env names"
    return http_failure(status, text)


def _retry_after(error: openai.APIStatusError, backoff: float) -> float | None:
    """Seconds to wait, or None where another try would not help."""
    if error.status_code not in _RETRY_STATUS:
        return None
    try:
        wait_s = float(error.response.headers["retry-after"])
    except (KeyError, ValueError):
        return backoff
    return min(wait_s, _LONGEST_WAIT_S) if wait_s >= 0 else backoff  # NaN is not >= 0


def _root_cause(error: BaseException) -> str:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return head(str(error) or type(error).__name__, 120)
