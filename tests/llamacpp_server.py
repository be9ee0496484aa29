"""A llama.cpp server for tests: its streaming format, timings, counters and pages, and every fault on request.

It runs in a thread of its own with a loop of its own, so that plain tests, async tests and child processes may all
ask it. Every wait in it is bounded.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from aiohttp import web

real_sleep = asyncio.sleep
LONGEST_HOLD_S = 10.0
MODEL = "tiny"
TEMPLATE = "{{ messages }}"

Steps = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Ask:
    """One chat request as it arrived; number counts all of them from 0, a probe included."""

    number: int
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def prompt(self) -> str:
        return str(self.body["messages"][-1]["content"])


@dataclass(frozen=True)
class Reply:
    """How one answer goes.

    steps: (drafted, accepted) of each decode step after the first token; (0, 0) is a step without drafts.
    counted: the steps that /metrics shows instead, where it lies.
    plain: a body that is sent whole, with status and content type; stream: raw bytes sent as an event stream, `piece`
    of them at a time.
    hold: the headers wait until it is true. pause: seconds between chunks.
    hang_up: close the connection behind a whole answer without having said so, as llama.cpp does.
    drop_after, stall_after: cut the connection, or fall silent, after so many chunks; 0 is before the headers.
    """

    steps: Steps = ((4, 2), (4, 0), (3, 3))
    text: str = "one two three four five six seven"
    reasoning: str = ""
    reasoning_field: str = "reasoning_content"
    finish: str = "stop"
    usage: bool = True
    timings: bool = True
    counted: Steps | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    plain: bytes | None = None
    content_type: str = "application/json"
    stream: bytes | None = None
    piece: int = 0
    hold: Callable[["LlamaCppServer"], bool] | None = None
    pause: float = 0.0
    drop_after: int | None = None
    stall_after: int | None = None
    hang_up: bool = False

    @property
    def tokens(self) -> int:
        return 1 + sum(accepted + 1 for _, accepted in self.steps)


@dataclass
class LlamaCppServer:
    """Use as a context manager. pages: GET answers by path, (status, content type, text), instead of the usual ones.

    die_after: finished answers after which the whole server goes away. hidden_in: numbers of the scrapes, from 1, that
    do not show the last step yet. context: tokens of prompt and answer together. tokenizer: whether prompts can be
    counted before they are sent; here a word is a token. counted_prompts: how many tokens each such question found.
    """

    behaviour: Callable[[Ask], Reply] = lambda _ask: Reply()
    pages: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    speculative: bool = True
    models: tuple[str, ...] = (MODEL,)
    die_after: int | None = None
    hidden_in: frozenset[int] = frozenset()
    context: int = 512
    tokenizer: bool = True
    counted_prompts: list[int] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    finished: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    scrapes: int = 0
    connections: set[Any] = field(default_factory=set)
    counted: list[tuple[int, int]] = field(default_factory=list)
    port: int = 0
    _ready: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _end: asyncio.Event | None = None
    _open: set[asyncio.Transport] = field(default_factory=set)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def __enter__(self) -> "LlamaCppServer":
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(10), "the server did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Go away as a killed server does: no port, every connection cut."""
        assert self._thread is not None
        if self._thread.is_alive() and self._loop is not None and self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def until(self, condition: Callable[["LlamaCppServer"], bool], seconds: float = 20.0) -> None:
        """Wait in the test's thread."""
        deadline = time.monotonic() + seconds
        while not condition(self):
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.005)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/apply-template", self._template)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/{path:.*}", self._page)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._end.wait()
        await site.stop()
        for transport in list(self._open):
            transport.abort()
        await runner.cleanup()

    async def _page(self, request: web.Request) -> web.Response:
        if request.path == "/metrics":
            self.scrapes += 1
        pages = {
            "/v1/models": (200, "application/json", json.dumps(self._model_list())),
            "/props": (
                200,
                "application/json",
                json.dumps({"total_slots": 4, "build_info": "b4242-cafe", "chat_template": TEMPLATE}),
            ),
            "/slots": (200, "application/json", json.dumps([{"id": 0, "speculative": self.speculative}])),
            "/metrics": (200, "text/plain", self.metrics()),
            **self.pages,
        }
        status, content_type, text = pages.get(request.path, (404, "text/plain", "no such page"))
        return web.Response(status=status, content_type=content_type, text=text)

    async def _template(self, request: web.Request) -> web.Response:
        if not self.tokenizer:
            return web.Response(status=404)
        messages = (await request.json())["messages"]
        return web.json_response({"prompt": "\n".join(m["content"] for m in messages)})

    async def _tokenize(self, request: web.Request) -> web.Response:
        """Of llama.cpp, which takes text, and of vLLM, which takes messages."""
        if not self.tokenizer:
            return web.Response(status=404)
        body = await request.json()
        texts = [m["content"] for m in body["messages"]] if "messages" in body else [body["content"]]
        words = [word for text in texts for word in text.split()]
        self.counted_prompts.append(len(words))
        return web.json_response({"count": len(words)} if "messages" in body else {"tokens": [1] * len(words)})

    def _model_list(self) -> dict[str, Any]:
        return {
            "object": "list",
            "data": [
                {"id": m, "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx": self.context}}
                for m in self.models
            ],
        }

    def metrics(self) -> str:
        counted = self.counted[:-1] if self.scrapes in self.hidden_in else self.counted
        steps = [step for step in counted if step[0]]
        sums = {
            "num_drafts": len(steps),
            "num_draft_tokens": sum(d for d, _ in steps),
            "num_accepted_tokens": sum(a for _, a in steps),
        }
        lines = []
        for name, value in sums.items():
            lines += [f"# TYPE llamacpp:spec_decode_{name}_total counter", f"llamacpp:spec_decode_{name}_total {value}"]
        name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
        lines.append(f"# TYPE {name} counter")
        for place in range(max((a for _, a in steps), default=0)):
            lines.append(f'{name}{{position="{place}"}} {sum(a > place for _, a in steps)}')
        return "\n".join(lines) + "\n"

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        self._open.add(transport)
        self.connections.add(transport.get_extra_info("peername"))
        ask = Ask(len(self.asks), await request.json(), dict(request.headers))
        self.asks.append(ask)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._answer(request, transport, self.behaviour(ask))
        except ConnectionError:
            return web.Response(status=499)
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.Request, transport: asyncio.Transport, reply: Reply) -> web.StreamResponse:
        if reply.hold is not None:
            hold = reply.hold
            await self._wait(lambda: hold(self), transport)
        if await self._fault(reply, 0, transport):
            return web.Response(status=499)
        if reply.plain is not None:
            self.finished += 1
            return web.Response(
                status=reply.status,
                body=reply.plain,
                headers={**dict(reply.headers), "Content-Type": reply.content_type},
            )
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        if reply.stream is not None:
            piece = reply.piece or max(len(reply.stream), 1)
            for start in range(0, len(reply.stream), piece):
                await answer.write(reply.stream[start : start + piece])
            self.finished += 1
            return answer
        for number, (chunk, step) in enumerate(_chunks(reply), 1):
            if step is not None and reply.counted is None:
                self.counted.append(step)
            await answer.write(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n")
            if await self._fault(reply, number, transport):
                return answer
            if reply.pause:
                await real_sleep(reply.pause)
        self.counted.extend(reply.counted or ())
        self.finished += 1
        await answer.write(b"data: [DONE]\n\n")
        if reply.hang_up:
            await answer.write_eof()
            transport.close()
        if self.die_after is not None and self.finished >= self.die_after:
            assert self._end is not None
            await answer.write_eof()
            self._end.set()
        return answer

    async def _fault(self, reply: Reply, sent: int, transport: asyncio.Transport) -> bool:
        if reply.drop_after == sent:
            await real_sleep(0.01)  # what was written is on its way
            transport.abort()
            return True
        if reply.stall_after == sent:
            await self._wait(lambda: False, transport)
            return True
        return False

    async def _wait(self, condition: Callable[[], bool], transport: asyncio.Transport) -> None:
        deadline = time.monotonic() + LONGEST_HOLD_S
        while not condition() and time.monotonic() < deadline and not transport.is_closing():
            assert self._end is not None
            if self._end.is_set():
                return
            await real_sleep(0.002)


def _chunks(reply: Reply) -> list[tuple[dict[str, Any], tuple[int, int] | None]]:
    """Every event of an answer, with the verification step that begins on it."""
    size = -(-len(reply.text) // max(reply.tokens - bool(reply.reasoning), 1))
    pieces = [reply.text[i : i + size] for i in range(0, len(reply.text), size)] if reply.text else []
    deltas = ([{reply.reasoning_field: reply.reasoning}] if reply.reasoning else []) + [{"content": p} for p in pieces]
    deltas += [{"content": ""}] * (reply.tokens - len(deltas))
    starts: dict[int, tuple[int, int]] = {}
    token = 1
    for one in reply.steps:
        starts[token] = one
        token += one[1] + 1
    drafted = accepted = 0
    events: list[tuple[dict[str, Any], tuple[int, int] | None]] = [
        (_chunk({"role": "assistant", "content": None}), None)
    ]
    timings: dict[str, int] = {}
    for number, delta in enumerate(deltas[: reply.tokens]):
        step = starts.get(number)
        drafted, accepted = drafted + (step[0] if step else 0), accepted + (step[1] if step else 0)
        timings = {"predicted_n": number + 1}
        if drafted:
            timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
        events.append((_chunk(delta) | ({"timings": timings} if reply.timings else {}), step))
    events.append((_chunk({}, reply.finish), None))
    if reply.usage:
        usage = {
            "completion_tokens": reply.tokens,
            "prompt_tokens": 7,
            "total_tokens": 7 + reply.tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        last = {"object": "chat.completion.chunk", "choices": [], "usage": usage}
        events.append((last | ({"timings": timings} if reply.timings else {}), None))
    return events


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "object": "chat.completion.chunk",
        "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def quick_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make every wait of half a second or more a short one; gives the list of what was asked for."""
    waits: list[float] = []

    async def quick(delay: float, result: Any = None) -> Any:
        if delay >= 0.5:
            waits.append(delay)
            delay = 0.01
        return await real_sleep(delay, result)

    monkeypatch.setattr(asyncio, "sleep", quick)
    return waits


def write_suite(folder: Path, *, prompts: int = 6, concurrency: int = 2, extra: str = "") -> Path:
    """A suite of `prompts` one-turn conversations p0, p1, … in the categories even and odd, and its rows."""
    rows = [
        {"id": f"p{i}", "kind": "odd" if i % 2 else "even", "question": f"Question number {i}?"} for i in range(prompts)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    path = folder / "pair.toml"
    path.write_text(
        f"""schema_version = 1
name = "pair"
title = "Pair"
[data]
file = "rows.jsonl"
licence = "Apache-2.0"
[prompt]
id = "id"
category = "kind"
template = "Answer: {{question}}"
[sampling]
temperature = 0.0
max_tokens = 32
[load]
concurrency = {concurrency}
{extra}""",
        encoding="utf-8",
    )
    return path
