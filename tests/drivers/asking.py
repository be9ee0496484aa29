"""Requests of our own chat client to a scripted server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from spec_eval.drivers.chat import ChatClient, ChatRequest, Timeouts, open_client
from spec_eval.drivers.outcome import Outcome
from spec_eval.engines import ENGINES
from spec_eval.engines.endpoint import Endpoint
from tests.llamacpp_server import LlamaCppServer, Reply

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


async def asked(server: LlamaCppServer, *, timeouts: Timeouts | None = None, key: str | None = None) -> Outcome:
    async with connected(server, timeouts=timeouts, key=key) as client:
        return await asyncio.wait_for(client.ask(question()), 10)


def refusing(status: int, body: object, **headers: str) -> Reply:
    plain = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(status=status, plain=plain, headers=tuple((k.replace("_", "-"), v) for k, v in headers.items()))


def lasted_ns(result: Outcome) -> int:
    """From the start of the last attempt to its end."""
    assert result.start_ns is not None
    assert result.end_ns is not None
    return result.end_ns - result.start_ns
