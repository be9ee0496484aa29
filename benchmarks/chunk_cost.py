"""Processor time of the client for each streamed chunk: our chat client beside the OpenAI client's own stream.

    python benchmarks/chunk_cost.py [--concurrency 128] [--requests 384] [--chunks 66] [--pace MS] [--rounds 3]

A server of our own in another process sends ready-made chunks as fast as it can (or one every MS milliseconds). Both
clients read the same bytes in the same process, in turns, on uvloop as `spec-eval run` does.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import openai
import uvloop

from spec_eval.drivers.chat import ChatRequest, open_client
from spec_eval.engines import ENGINES
from spec_eval.engines.endpoint import Endpoint

WARM_UP = 32
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(content: str | None, *, token: int, kind: str) -> dict[str, object]:
    """One chunk as llama.cpp (with its timings) or as vLLM writes it."""
    delta = {"role": "assistant", "content": ""} if content is None else {"content": content}
    chunk: dict[str, object] = {
        "id": "chatcmpl-vUDieXUhVekvwZ8a03b5MsX5Yv9GhmJE",
        "object": "chat.completion.chunk",
        "created": 1796069046,
        "model": "tiny",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}],
    }
    if kind == "llamacpp" and token:
        steps = (token + 1) // 3
        chunk["timings"] = {
            "cache_n": 0,
            "prompt_n": 16,
            "prompt_ms": 68.26,
            "prompt_per_token_ms": 4.26625,
            "prompt_per_second": 234.3978904189862,
            "predicted_n": token,
            "predicted_ms": 108.825,
            "predicted_per_token_ms": 36.275,
            "predicted_per_second": 27.567195037904895,
            **({"draft_n": 4 * steps, "draft_n_accepted": 2 * steps} if steps else {}),
        }
    return chunk


def answer(chunks: int, kind: str) -> list[bytes]:
    """The frames of one answer, each an HTTP chunk of its own."""
    events = [event(None if not token else " token", token=token, kind=kind) for token in range(chunks - 1)]
    usage = {"prompt_tokens": 16, "completion_tokens": chunks - 2, "total_tokens": chunks + 14}
    last: dict[str, object] = {**event("", token=chunks - 2, kind=kind), "choices": [], "usage": usage}
    if kind == "vllm":
        steps = (chunks - 2) // 3
        last["metrics"] = {
            "speculative_decoding": {
                "acceptance_histogram": [0, 0, steps, 0, 0],
                "num_spec_steps": steps,
                "num_accepted_draft_tokens": 2 * steps,
                "num_draft_tokens": 4 * steps,
                "num_spec_tokens": 4,
            }
        }
    lines = [b"data: " + json.dumps(e, separators=(",", ":")).encode() + b"\n\n" for e in (*events, last)]
    return [b"%x\r\n%b\r\n" % (len(line), line) for line in (*lines, b"data: [DONE]\n\n")] + [b"0\r\n\r\n"]


async def serve(kind: str, chunks: int, pace_s: float) -> None:
    """Answer every POST with the same frames until standard input ends."""
    frames = answer(chunks, kind)

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                writer.write(HEAD)
                for frame in frames:
                    writer.write(frame)
                    await asyncio.sleep(pace_s)  # one frame a turn of the loop: a write of its own
        writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


@contextlib.contextmanager
def served(kind: str, chunks: int, pace_ms: float) -> Iterator[str]:
    """The server in a process of its own; its root address."""
    argv = [sys.executable, __file__, "--serve", kind, "--chunks", str(chunks), "--pace", str(pace_ms)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


async def spread(ask: Callable[[], Awaitable[None]], requests: int, concurrency: int) -> tuple[float, float]:
    """(processor seconds, wall seconds) of `requests` questions, so many at a time."""
    left = iter(range(requests))

    async def worker() -> None:
        for _ in left:
            await ask()

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return time.process_time() - cpu, time.perf_counter() - wall


MESSAGES = ({"role": "user", "content": "hello"},)


async def ours(root: str, kind: str, requests: int, concurrency: int) -> tuple[float, float]:
    """Through spec-eval's chat client, counters read and all."""
    request = ChatRequest("tiny", MESSAGES, {"temperature": 0.0, "max_tokens": 64})
    async with open_client(Endpoint(root), ENGINES[kind], k=4, concurrency=concurrency) as client:

        async def ask() -> None:
            result = await client.ask(request)
            if result.failure or result.reading is None or result.reading.counters is None:
                raise RuntimeError(f"not an answer: {result}")

        await spread(ask, WARM_UP, concurrency)
        return await spread(ask, requests, concurrency)


async def normal(root: str, kind: str, requests: int, concurrency: int) -> tuple[float, float]:
    """Through the OpenAI client's stream of chunk objects."""
    async with openai.AsyncOpenAI(base_url=f"{root}/v1", api_key="none", max_retries=0) as client:

        async def ask() -> None:
            stream = await client.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": "hello"}],
                temperature=0.0,
                max_tokens=64,
                stream=True,
                stream_options={"include_usage": True},
            )
            usage = None
            async for chunk in stream:
                usage = chunk.usage or usage
            if usage is None:
                raise RuntimeError(f"no usage from {kind}")

        await spread(ask, WARM_UP, concurrency)
        return await spread(ask, requests, concurrency)


def main() -> None:
    """Rounds of both in turn; the median is printed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve")
    parser.add_argument("--concurrency", type=int, default=128)
    parser.add_argument("--requests", type=int, default=384)
    parser.add_argument("--chunks", type=int, default=66)
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(options.serve, options.chunks, options.pace / 1000))
        return
    chunks = options.requests * (options.chunks + 1)
    print(f"{options.requests} answers of {options.chunks} chunks, c={options.concurrency}, pace {options.pace:g} ms")
    for kind in ("llamacpp", "vllm"):
        costs: dict[str, list[float]] = {"ours": [], "normal": []}
        rates: dict[str, list[float]] = {"ours": [], "normal": []}
        with served(kind, options.chunks, options.pace) as root:
            for _ in range(options.rounds):
                for name, client in (("ours", ours), ("normal", normal)):
                    cpu, wall = uvloop.run(client(root, kind, options.requests, options.concurrency))
                    costs[name].append(cpu / chunks * 1e6)
                    rates[name].append(chunks / wall)
        mine, theirs = (statistics.median(costs[name]) for name in ("ours", "normal"))
        print(
            f"{kind:9} chat client {mine:6.1f} µs a chunk ({statistics.median(rates['ours']):,.0f} chunks/s), "
            f"OpenAI stream {theirs:6.1f} µs ({statistics.median(rates['normal']):,.0f} chunks/s): "
            f"1/{theirs / mine:.1f}"
        )


if __name__ == "__main__":
    main()
