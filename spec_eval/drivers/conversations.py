"""Conversations at a fixed concurrency, slots kept full, one record a turn."""

import asyncio
import gc
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from spec_eval.drivers.chat import ChatClient, ChatRequest, sampling_body
from spec_eval.drivers.outcome import Outcome, record
from spec_eval.drivers.room import Room
from spec_eval.prompts import Conversation, Message
from spec_eval.records import OVERSIZED, RequestRecord, Unit
from spec_eval.suite import Sampling

EARLIER_TURN = "earlier turn failed"


@dataclass(frozen=True)
class Job:
    """One cell's share of the work, as the driver needs it.

    done: records of turns that need not be asked again, so that their answers can stand in the history.
    room: what the server takes; a longer prompt is not sent (null: all are).
    reasoning_in_history: whether the model's reasoning goes back in with its answers.
    """

    cell_id: str
    dataset: str
    model: str
    sampling: Sampling
    concurrency: int
    repeats: int
    seed: int | None
    conversations: Callable[[], Iterator[Conversation]]
    room: Room | None = None
    done: dict[Unit, RequestRecord] = field(default_factory=dict)
    reasoning_in_history: bool = False


class ServerGone(Exception):
    """So many requests in a row found no server that there is none."""


def request_seed(run_seed: int, prompt_id: str, turn: int, repeat: int) -> int:
    """The first 31 bits of sha256("run_seed|prompt_id|turn|repeat").

    One seed for all requests would make copies: equal prompts would accept equal sequences.
    """
    digest = hashlib.sha256(f"{run_seed}|{prompt_id}|{turn}|{repeat}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


async def drive(job: Job, client: ChatClient, on_record: Callable[[RequestRecord], None]) -> None:
    """Ask everything in `job` that is not done; `on_record` gets each turn as it ends.

    ServerGone ends the work early; cancelling it leaves the turns in flight without a record.
    """
    work = ((repeat, c) for repeat in range(job.repeats) for c in job.conversations() if not _is_done(job, c, repeat))
    strikes = _Strikes(job.concurrency + 2)

    async def worker() -> None:
        for repeat, conversation in work:
            await _converse(job, client, conversation, repeat, on_record, strikes)

    gc.freeze()  # what lives now stays; a full collection in the middle would stop the clock to look through it
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(job.concurrency):
                group.create_task(worker())
    except ExceptionGroup as group:
        raise _first(group) from None
    finally:
        gc.unfreeze()


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass
class _Strikes:
    """Requests in a row that could not reach the server."""

    limit: int
    count: int = 0

    last: str | None = None

    def note(self, result: Outcome) -> None:
        self.count, self.last = (0, None) if result.connected else (self.count + 1, result.failure)

    def judge(self) -> None:
        if self.count >= self.limit:
            raise ServerGone(self.last)


def _is_done(job: Job, conversation: Conversation, repeat: int) -> bool:
    turns = range(len(conversation.turns))
    return all((job.cell_id, conversation.prompt_id, turn, repeat) in job.done for turn in turns)


async def _converse(
    job: Job,
    client: ChatClient,
    conversation: Conversation,
    repeat: int,
    on_record: Callable[[RequestRecord], None],
    strikes: _Strikes,
) -> None:
    """All turns in order; the model's own answers go back in, its reasoning only where asked for."""
    history: list[Message] = []
    failed = False
    for turn, messages in enumerate(conversation.turns):
        history.extend(messages)
        held = job.done.get((job.cell_id, conversation.prompt_id, turn, repeat))
        if held is None:
            held = await _turn(job, client, conversation, turn, repeat, history, failed, strikes)
            on_record(held)
            strikes.judge()
        failed = failed or held.status != "ok"
        history.append(_answer(held, job))


async def _turn(
    job: Job,
    client: ChatClient,
    conversation: Conversation,
    turn: int,
    repeat: int,
    history: list[Message],
    failed: bool,
    strikes: "_Strikes",
) -> RequestRecord:
    """Ask, unless it would be in vain."""
    if failed:
        return _record(job, conversation, turn, repeat, Outcome(failure=EARLIER_TURN))
    if job.room is not None and (tokens := await job.room.too_long(history)) is not None:
        reason = f"{OVERSIZED}: {tokens} tokens, the server takes {job.room.limit}"
        return _record(job, conversation, turn, repeat, Outcome(failure=reason, prompt_tokens=tokens))
    result = await _ask(job, client, conversation, turn, repeat, history)
    strikes.note(result)
    return _record(job, conversation, turn, repeat, result)


def _answer(record: RequestRecord, job: Job) -> Message:
    message = {"role": "assistant", "content": _sendable(record.text or "")}
    if job.reasoning_in_history and record.reasoning_text:
        message["reasoning_content"] = _sendable(record.reasoning_text)
    return message


def _sendable(text: str) -> str:
    """With half a surrogate pair as a replacement character, and two halves that belong together as one."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


async def _ask(
    job: Job, client: ChatClient, conversation: Conversation, turn: int, repeat: int, history: list[Message]
) -> Outcome:
    seed = None if job.seed is None else request_seed(job.seed, conversation.prompt_id, turn, repeat)
    return await client.ask(ChatRequest(job.model, tuple(history), sampling_body(job.sampling, seed)))


def _record(job: Job, conversation: Conversation, turn: int, repeat: int, result: Outcome) -> RequestRecord:
    """Of an answer, or of a turn that was not sent."""
    sent = job.seed is not None and result.attempt > 0
    return record(
        result,
        cell_id=job.cell_id,
        dataset=job.dataset,
        prompt_id=conversation.prompt_id,
        category=conversation.category,
        subcategory=conversation.subcategory,
        turn=turn,
        repeat=repeat,
        seed_sent=request_seed(job.seed or 0, conversation.prompt_id, turn, repeat) if sent else None,
    )


@dataclass
class LoopLag:
    """How late the event loop wakes, in milliseconds: times to first token are only as exact as that."""

    samples: list[float] = field(default_factory=list)

    @property
    def p99_ms(self) -> float | None:
        """The 99th percentile, or None without samples."""
        ordered = sorted(self.samples)
        return ordered[int(0.99 * (len(ordered) - 1))] if ordered else None


@asynccontextmanager
async def loop_lag(interval_s: float = 0.1) -> AsyncIterator[LoopLag]:
    """Measure while inside."""
    lag = LoopLag()
    loop = asyncio.get_running_loop()

    async def sample() -> None:
        while True:
            due = loop.time() + interval_s
            await asyncio.sleep(interval_s)
            lag.samples.append(max(0.0, loop.time() - due) * 1000)

    task = asyncio.create_task(sample())
    try:
        yield lag
    finally:
        task.cancel()
