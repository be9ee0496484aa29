"""The emulated server: aiohttp in front of a player, a pace and a wire format."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from spec_eval.emulator import asks, faults, words
from spec_eval.emulator.asks import Ask, BadAsk
from spec_eval.emulator.faults import Fault
from spec_eval.emulator.player import Player
from spec_eval.emulator.reply import Facts, Json, Reply, Wire
from spec_eval.emulator.settings import Settings
from spec_eval.emulator.timing import AtOnce, Pace, Scheduler
from spec_eval.emulator.totals import EngineTotals, Totals
from spec_eval.emulator.wire_sglang import SglangWire
from spec_eval.emulator.wire_trtllm import TrtLlmWire
from spec_eval.emulator.wire_vllm import VllmWire
from spec_eval.engines.endpoint import STAMP
from spec_eval.errors import EnvironmentFault, UsageError

SLOW_START_S = 5.0
_LARGEST_BODY = 64 * 2**20
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_WIRES: dict[str, Callable[[Facts], Wire]] = {"vllm": VllmWire, "sglang": SglangWire, "trtllm": TrtLlmWire}


class Emulator:
    """One server; `serve` runs it. requests: how many were asked of it, a probe included."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        named = settings.faults.named
        facts = Facts(
            model=faults.OTHER_MODEL if named("wrong-model") else settings.model,
            drafter=settings.casting.name,
            k=settings.casting.k,
            context=settings.context,
            created=int(time.time()),
            why=settings.why,
            detail=settings.detail,
            prompt_details=settings.prompt_details,
            adaptive=named("adaptive") is not None,
        )
        self.wire: Wire = _WIRES[settings.like](facts)
        self.player = Player(settings)
        self.totals = Totals(2 if named("two-engines") else 1, settings.casting.k)
        self.requests = 0
        self._refusing = asyncio.Event()
        self._pace: Pace = AtOnce() if settings.gpu is None else Scheduler(settings.gpu)

    async def serve(
        self, bound: socket.socket, until: asyncio.Event, ready: Callable[[], object] = lambda: None
    ) -> None:
        """Answer on a bound socket until `until` is set; `ready` is called once it listens, or waits to.

        A refusing server stops listening, and stays.
        """
        runner = web.AppRunner(self._app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        ended = asyncio.create_task(until.wait())
        refusing = asyncio.create_task(self._refusing.wait())
        try:
            if slow := self.settings.faults.named("slow-start"):
                ready()
                await asyncio.wait([ended], timeout=slow.seconds or SLOW_START_S)
            if not until.is_set():
                site = web.SockSite(runner, bound)
                await site.start()
                ready()
                await asyncio.wait([ended, refusing], return_when=asyncio.FIRST_COMPLETED)
                await site.stop()
            await ended
        finally:
            for task in (ended, refusing):
                task.cancel()
            await self._pace.close()
            await runner.cleanup()
            bound.close()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=_LARGEST_BODY, middlewares=[self._stamped])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completion)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/health", self._page({}))
        app.router.add_get("/v1/models", self._page(self.wire.models()))
        for path, page in self.wire.pages().items():
            app.router.add_get(path, self._page(page))
        app.router.add_get(self.wire.metrics_path, self._metrics)
        return app

    @web.middleware
    async def _stamped(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Every answer that is not streamed; a stream stamps itself before it begins."""
        try:
            answer = await handler(request)
        except web.HTTPException as error:
            answer = web.json_response({"detail": error.reason}, status=error.status)
        if not answer.prepared:
            answer.headers[STAMP] = self.settings.why
        return answer

    def _page(self, page: Json) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_request: web.Request) -> web.Response:
            return web.json_response(page)

        return answer

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=self.wire.metrics(self.totals), content_type="text/plain")

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        if not isinstance(body, dict):
            return self._refused(BadAsk("the body is not a JSON object"))
        if "messages" in body:
            ask = asks.parse({**body, "max_tokens": 1}, chat=True, context=2**62)
            tokens = ask.prompt_tokens[0]
        else:
            tokens = words.count(str(body.get("prompt") or ""))
        return web.json_response(self.wire.tokenized(tokens))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._ask(request, chat=True)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._ask(request, chat=False)

    async def _ask(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        self.requests += 1
        number = self.requests
        try:
            struck = self.settings.faults.of(number, request.headers.get(faults.HEADER))
            ask = asks.parse(await request.json(), chat=chat, context=self.settings.context)
            if ask.model not in (None, self.wire.facts.model):
                raise BadAsk(f"The model `{ask.model}` does not exist.", 404, "NotFoundError", "model")
            instead = await self._instead(struck, request)
            if instead is not None:
                return instead
            reply = self._reply(ask, struck, number)
        except (BadAsk, UsageError) as error:
            return self._refused(error if isinstance(error, BadAsk) else BadAsk(str(error)))
        except (ValueError, TypeError, AttributeError) as error:
            return self._refused(BadAsk(f"unreadable request: {error}"))
        engine = self.totals.engine(number)
        engine.prompt_tokens += reply.prompt_tokens
        self.totals.running += 1
        try:
            if ask.stream:
                return await self._stream(request, reply, engine, struck)
            await self._play(reply, engine, None)
            return web.json_response(self.wire.whole(reply), dumps=_encode)
        except ConnectionError:
            return web.Response(status=499)
        finally:
            self.totals.running -= 1
            if "counter-reset" in struck:
                self.totals.reset()

    async def _instead(self, struck: dict[str, Fault], request: web.Request) -> web.Response | None:
        """What a fault sends in place of an answer, or None."""
        if "refuse" in struck:
            self._refusing.set()
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=499)
        if "hang" in struck:
            await asyncio.Event().wait()
        if "429" in struck:
            wait = str(round(struck["429"].seconds or 1))
            answer = self._refused(BadAsk("emulated: too many requests", 429, "RateLimitError"))
            answer.headers["Retry-After"] = wait
            return answer
        if "500" in struck:
            return self._refused(BadAsk("emulated: internal server error", 500, "InternalServerError"))
        if "error-body" in struck:
            body = self.wire.error("emulated: the engine died", 500, "InternalServerError")
            return web.json_response(body, status=200)
        if "html" in struck:
            return web.Response(
                text="<html><body>emulated: welcome to the proxy</body></html>", content_type="text/html"
            )
        return None

    def _refused(self, error: BadAsk) -> web.Response:
        body = self.wire.error(str(error), error.status, error.kind, error.param)
        return web.json_response(body, status=error.status)

    def _reply(self, ask: Ask, struck: dict[str, Fault], number: int) -> Reply:
        answers = self.player.play(ask, struck)
        return Reply(
            ask=ask,
            id=f"{'chatcmpl' if ask.chat else 'cmpl'}-emulated{number:08x}",
            created=int(time.time()),
            model=self.wire.facts.model,
            answers=answers,
            cached_tokens=self.player.cached(ask),
            counters="null-counters" not in struck,
            usage="no-usage" not in struck,
        )

    async def _play(
        self, reply: Reply, engine: EngineTotals, send: Callable[[list[Json]], Awaitable[None]] | None
    ) -> None:
        """Give the answers beat by beat, count them, and hand their chunks to `send`."""
        began = time.monotonic()
        total = max(len(answer.ends) for answer in reply.answers)
        given = 0
        async with contextlib.aclosing(self._pace.beats(reply.prompt_tokens, total)) as beats:  # type: ignore[type-var]
            async for due in beats:
                reply.whole_s = time.monotonic() - began
                reply.first_s = reply.first_s or reply.whole_s
                chunks: list[Json] = []
                for index, answer in enumerate(reply.answers):
                    last = len(answer.ends)
                    start, end = min(given, last), min(given + due, last)
                    if start == end:
                        continue
                    first = answer.ends[start - 1] if start else 0
                    _count(engine, answer.accepted[max(start - 1, 0) : end - 1], answer.k)
                    engine.generation_tokens += answer.ends[end - 1] - first
                    if end == last:
                        engine.finished[answer.finish] += 1
                    if send is not None:
                        reasoning, content = answer.pieces(first, answer.ends[end - 1])
                        chunks += self.wire.delta(reply, index, reasoning, content, last=end == last)
                given += due
                if send is not None and chunks:
                    await send(chunks)

    async def _stream(
        self, request: web.Request, reply: Reply, engine: EngineTotals, struck: dict[str, Fault]
    ) -> web.StreamResponse:
        answer = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", STAMP: self.settings.why}
        )
        await answer.prepare(request)
        openings = [self.wire.opening(reply, index) for index in range(len(reply.answers))]
        waiting = [chunk for chunk in openings if chunk is not None]

        async def send(chunks: list[Json]) -> None:
            data = _events([*waiting, *chunks])  # an opening goes out with the first token
            waiting.clear()
            if "cut" in struck:
                await answer.write(data[: len(data) // 2])
                await asyncio.sleep(0.01)  # what was written is on its way
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError("emulated cut")
            await answer.write(data)

        await self._play(reply, engine, send)
        await answer.write(_events(self.wire.closing(reply)) + b"data: [DONE]\n\n")
        return answer


def _count(engine: EngineTotals, accepted: tuple[int, ...], k: int) -> None:
    engine.histogram.update(accepted)
    engine.drafted += k * len(accepted)


def _events(chunks: list[Json]) -> bytes:
    return b"".join(b"data: " + _encode(chunk).encode() + b"\n\n" for chunk in chunks)


def bind(host: str, port: int) -> socket.socket:
    """A socket that does not listen yet: until it does, a client is refused."""
    try:
        bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise EnvironmentFault(f"{host}:{port}: {error.strerror or error}; give another --host or --port") from error
    return bound


def base_url(bound: socket.socket) -> str:
    """Of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def run(
    settings: Settings,
    host: str,
    port: int,
    *,
    announce: Callable[[str], object],
    until: Callable[[asyncio.Event], object],
) -> None:
    """Serve on a loop of its own. `announce` is given the base URL once it listens, or, slow to start, waits to.

    `until` is given the event that ends it, inside the loop.
    """
    emulator = Emulator(settings)
    bound = bind(host, port)

    async def whole() -> None:
        event = asyncio.Event()
        until(event)
        await emulator.serve(bound, event, lambda: announce(base_url(bound)))

    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(whole())
