"""How many streams one core can play with `--timing gpu`: the pace wanted, the pace that clients saw, and the cost.

The server runs in this process, so its processor time is this process's; the clients are a child.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from urllib.parse import urlsplit

from spec_eval.emulator import Settings
from spec_eval.emulator.casting import cast
from spec_eval.emulator.draws import DECK
from spec_eval.emulator.server import Emulator, base_url, bind
from spec_eval.emulator.timing import Gpu

ROW = "glm-5.3-dflash2-preview:basic-t0:HumanEval"


async def one(host: str, port: int, number: int) -> tuple[int, float]:
    """Chunks with tokens, and seconds from the first to the last of them."""
    body = {
        "messages": [{"role": "user", "content": f"Question {number}"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 100_000,
    }
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(host, port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n"
    writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
    chunks, first, last = 0, 0.0, 0.0
    while read := await reader.read(65536):
        if found := read.count(b'"delta":{"content":"'):
            last = time.monotonic()
            first = first or last
            chunks += found
    writer.close()
    return chunks, last - first


async def clients(url: str, streams: int) -> None:
    parts = urlsplit(url)
    found = await asyncio.gather(*(one(str(parts.hostname), int(parts.port or 0), n) for n in range(streams)))
    print(json.dumps(found))


async def measured(streams: int, steps: int) -> tuple[list[tuple[int, float]], float, float]:
    """What each client saw, the seconds that all took, and the server's processor seconds."""
    gpu = Gpu(prefill_base_s=0.001)  # all streams soon run together
    settings = Settings(like="vllm", casting=cast(ROW, hands=DECK // steps), gpu=gpu)
    bound, ended = bind("127.0.0.1", 0), asyncio.Event()
    server = asyncio.create_task(Emulator(settings).serve(bound, ended))
    command = [sys.executable, __file__, "--client", base_url(bound), "--streams", str(streams)]
    began, used = time.monotonic(), time.process_time()
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await child.communicate()
    took, cost = time.monotonic() - began, time.process_time() - used
    ended.set()
    await server
    return [(int(chunks), float(seconds)) for chunks, seconds in json.loads(output)], took, cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--steps", type=int, default=300, help="of each answer")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        asyncio.run(clients(options.client, options.streams))
        return
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        found, took, cost = runner.run(measured(options.streams, options.steps))
    wanted = 1 / Gpu().step_s(options.streams)
    paces = sorted((chunks - 1) / seconds for chunks, seconds in found)
    chunks = sum(chunks for chunks, _ in found)
    print(f"{options.streams} streams, {chunks} chunks in {took:.1f} s")
    print(f"steps a second and stream: {wanted:.1f} wanted at this size, {paces[0]:.1f} to {paces[-1]:.1f} seen")
    print(
        f"server: {cost:.1f} s of processor time, {cost / took:.0%} of one core, {cost / chunks * 1e6:.0f} µs a chunk"
    )


if __name__ == "__main__":
    main()
