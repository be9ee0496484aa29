"""When tokens come: all at once, or as a GPU's scheduler would give them."""

import asyncio
import contextlib
import heapq
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

# Without timing, so many steps share a chunk: vLLM too puts tokens that wait for the network into one.
LUMP = 64


@dataclass(frozen=True, slots=True)
class Gpu:
    """A model of a GPU, linear in what it is given. Seconds, and tokens a second.

    A prompt takes prefill_base_s + tokens / prefill_tokens_per_s; prompts take turns. A decode step of all running
    streams takes step_base_s + streams · step_stream_s. The defaults make 64 steps a second alone and 32 at 128.
    """

    prefill_tokens_per_s: float = 20_000.0
    prefill_base_s: float = 0.02
    step_base_s: float = 0.0155
    step_stream_s: float = 0.000123

    def prefill_s(self, tokens: int) -> float:
        """Of one prompt."""
        return self.prefill_base_s + tokens / self.prefill_tokens_per_s

    def step_s(self, streams: int) -> float:
        """Of one step of so many streams."""
        return self.step_base_s + streams * self.step_stream_s


class Pace(Protocol):
    """Beats of a stream: the first is the first token, each later one a verification step."""

    def beats(self, prompt_tokens: int, total: int) -> AsyncIterator[int]:
        """How many further beats are due, until `total` are given."""

    async def close(self) -> None:
        """Give no more."""


class AtOnce:
    """No waiting at all."""

    async def beats(self, prompt_tokens: int, total: int) -> AsyncIterator[int]:  # noqa: ARG002 # takes no time
        """Lumps, with a turn for others in between."""
        for start in range(0, total, LUMP):
            yield min(LUMP, total - start)
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Nothing to end."""


@dataclass(eq=False, slots=True)
class Stream:
    """One answer in the batch. due: beats that it has not taken yet."""

    due: int = 0
    rung: asyncio.Event = field(default_factory=asyncio.Event)

    def beat(self) -> None:
        """One more is due."""
        self.due += 1
        self.rung.set()


class Batch:
    """The streams of a GPU in time; knows no clock of its own."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._running: set[Stream] = set()
        self._waiting: list[tuple[float, int, Stream]] = []
        self._number = count()
        self._prefilled_at = 0.0
        self._next_step = 0.0

    def join(self, stream: Stream, prompt_tokens: int, now: float) -> None:
        """Queue its prompt behind those that wait."""
        self._prefilled_at = max(now, self._prefilled_at) + self._gpu.prefill_s(prompt_tokens)
        heapq.heappush(self._waiting, (self._prefilled_at, next(self._number), stream))

    def leave(self, stream: Stream) -> None:
        """It is done, or its client is gone."""
        self._running.discard(stream)
        self._waiting = [entry for entry in self._waiting if entry[2] is not stream]
        heapq.heapify(self._waiting)

    def due(self) -> float | None:
        """When something happens next; never, where nobody is in it."""
        if self._running:
            return self._next_step
        return self._waiting[0][0] if self._waiting else None

    def advance(self, now: float) -> None:
        """One step for all that run, if its time has come, and the first token of those whose prompt is done."""
        at = self.due()
        if at is None or at > now:
            return
        for stream in self._running:
            stream.beat()
        while self._waiting and self._waiting[0][0] <= now:
            stream = heapq.heappop(self._waiting)[2]
            stream.beat()
            self._running.add(stream)
        step = self._gpu.step_s(len(self._running))
        # A late wake is made up for, unless a whole step is lost: then the server is too slow, and says so by it.
        self._next_step = (at if now - at < step else now) + step


class Scheduler:
    """Beats from a batch by the clock: one task for all streams."""

    def __init__(self, gpu: Gpu) -> None:
        self._batch = Batch(gpu)
        self._joined = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def beats(self, prompt_tokens: int, total: int) -> AsyncIterator[int]:
        """As the batch gives them; a slow reader finds several."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        stream = Stream()
        self._batch.join(stream, prompt_tokens, time.monotonic())
        self._joined.set()
        try:
            while total > 0:
                await stream.rung.wait()
                stream.rung.clear()
                due, stream.due = min(stream.due, total), 0
                total -= due
                if total == 0:
                    self._batch.leave(stream)
                yield due
        finally:
            self._batch.leave(stream)

    async def _run(self) -> None:
        while True:
            due = self._batch.due()
            if due is None:
                self._joined.clear()
                await self._joined.wait()
                continue
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self._batch.advance(time.monotonic())

    async def close(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
