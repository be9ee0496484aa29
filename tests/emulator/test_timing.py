"""The GPU's model by a clock of the test's own."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from spec_eval.emulator.timing import AtOnce, Batch, Gpu, Scheduler, Stream

# 1 s for a prompt of 10 tokens, 2 s of 20; a step takes 1 s and a tenth more for each stream.
GPU = Gpu(prefill_tokens_per_s=10.0, prefill_base_s=0.0, step_base_s=1.0, step_stream_s=0.1)


def test_defaults_give_64_steps_a_second_alone_and_32_at_128_streams() -> None:
    assert 1 / Gpu().step_s(1) == pytest.approx(64, abs=0.05)
    assert 1 / Gpu().step_s(128) == pytest.approx(32, abs=0.05)
    assert Gpu().prefill_s(20_000) == pytest.approx(1.02)


def test_nobody_in_it_is_never_due() -> None:
    batch = Batch(GPU)
    assert batch.due() is None
    batch.advance(1e9)


def test_first_token_comes_when_the_prompt_is_done_and_steps_follow() -> None:
    batch, stream = Batch(GPU), Stream()
    batch.join(stream, 10, now=100.0)
    assert batch.due() == pytest.approx(101.0)
    batch.advance(100.5)
    assert stream.due == 0
    batch.advance(101.0)
    assert stream.due == 1
    assert batch.due() == pytest.approx(102.1)
    batch.advance(102.1)
    assert stream.due == 2
    batch.leave(stream)
    assert batch.due() is None


def test_prompts_take_turns_and_a_fuller_batch_steps_slower() -> None:
    batch, one, two = Batch(GPU), Stream(), Stream()
    batch.join(one, 10, now=0.0)  # done at 1
    batch.join(two, 10, now=0.0)  # done at 2
    batch.advance(1.0)
    assert (one.due, two.due) == (1, 0)
    assert batch.due() == pytest.approx(2.1)
    batch.advance(2.1)
    assert (one.due, two.due) == (2, 1)
    assert batch.due() == pytest.approx(2.1 + 1.2)
    batch.advance(3.3)
    assert (one.due, two.due) == (3, 2)


def test_late_wake_is_made_up_for_unless_a_step_is_lost() -> None:
    batch, stream = Batch(GPU), Stream()
    batch.join(stream, 10, now=0.0)
    batch.advance(1.0)
    batch.advance(2.5)  # due at 2.1
    assert batch.due() == pytest.approx(3.2)
    batch.advance(10.0)
    assert batch.due() == pytest.approx(11.1)
    assert stream.due == 3


def test_stream_that_leaves_while_it_waits_is_forgotten() -> None:
    batch, stream = Batch(GPU), Stream()
    batch.join(stream, 10, now=0.0)
    batch.leave(stream)
    assert batch.due() is None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Time passes by sleeping only, and at once."""
    now, sleep = [0.0], asyncio.sleep

    async def jump(delay: float, result: Any = None) -> Any:
        now[0] += delay
        return await sleep(0, result)

    monkeypatch.setattr(asyncio, "sleep", jump)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return lambda: now[0]


async def taken(pace: Any, tokens: int, total: int, clock: Callable[[], float]) -> list[tuple[int, float]]:
    return [(due, round(clock(), 6)) async for due in pace.beats(tokens, total)]


async def test_scheduler_gives_one_beat_a_step(clock: Callable[[], float]) -> None:
    pace = Scheduler(GPU)
    found = await taken(pace, 10, 4, clock)
    await pace.close()
    assert [due for due, _ in found] == [1, 1, 1, 1]
    assert found[-1][1] >= 4.3  # 1 for the prompt, and three steps of 1.1


async def test_one_task_serves_all_streams(clock: Callable[[], float]) -> None:
    pace = Scheduler(GPU)
    before = len(asyncio.all_tasks())
    readers = [asyncio.create_task(taken(pace, 10, 5, clock)) for _ in range(20)]
    await asyncio.sleep(0.0)
    assert len(asyncio.all_tasks()) == before + 20 + 1
    found = await asyncio.gather(*readers)
    await pace.close()
    assert [sum(due for due, _ in one) for one in found] == [5] * 20


async def test_reader_that_was_away_finds_several_beats(clock: Callable[[], float]) -> None:
    pace = Scheduler(GPU)
    beats = pace.beats(10, 6)
    assert await anext(beats) == 1
    while clock() < 4.4:  # three more steps, at 2.1, 3.2 and 4.3
        await asyncio.sleep(0.0)
    assert await anext(beats) == 3
    await beats.aclose()  # type: ignore[attr-defined] # a generator
    await pace.close()


async def test_without_timing_all_is_due_in_lumps() -> None:
    assert [due async for due in AtOnce().beats(10, 150)] == [64, 64, 22]
