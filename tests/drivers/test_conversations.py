import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from spec_eval.drivers.chat import open_client
from spec_eval.drivers.conversations import Job, LoopLag, ServerGone, drive, loop_lag, request_seed
from spec_eval.drivers.room import Room
from spec_eval.engines import ENGINES
from spec_eval.engines.endpoint import Endpoint
from spec_eval.prompts import Conversation
from spec_eval.records import RequestRecord
from spec_eval.suite import Sampling
from tests.llamacpp_server import Ask, LlamaCppServer, Reply, quick_waits

BROKEN = Reply(status=500, plain=b'{"error":{"message":"broken"}}')


def said(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text}


def conversation(name: str, turns: int = 1) -> Conversation:
    return Conversation(name, "cat", "sub", tuple((said(f"{name}.{turn}"),) for turn in range(turns)))


def job(conversations: list[Conversation], concurrency: int = 1, repeats: int = 1, seed: int | None = 0) -> Job:
    return Job(
        cell_id="cell",
        dataset="set",
        model="tiny",
        sampling=Sampling(temperature=0.0, max_tokens=32),
        concurrency=concurrency,
        repeats=repeats,
        seed=seed,
        conversations=lambda: iter(conversations),
    )


async def driven(server: LlamaCppServer, work: Job, keep: list[RequestRecord] | None = None) -> list[RequestRecord]:
    records = [] if keep is None else keep
    async with open_client(Endpoint(server.root), ENGINES["llamacpp"], k=4, concurrency=work.concurrency) as client:
        await asyncio.wait_for(drive(work, client, records.append), 30)
    return records


def by_prompt(rules: dict[str, Reply]) -> Callable[[Ask], Reply]:
    return lambda ask: rules.get(ask.prompt, Reply())


async def test_every_turn_of_every_repeat_is_asked_once_and_recorded() -> None:
    with LlamaCppServer() as server:
        records = await driven(server, job([conversation("a"), conversation("b", 2)], concurrency=2, repeats=3))
    units = [("cell", name, turn, repeat) for repeat in range(3) for name, turn in (("a", 0), ("b", 0), ("b", 1))]
    assert sorted(r.unit for r in records) == sorted(units)
    assert len(server.asks) == 9
    first = records[0]
    assert (first.dataset, first.category, first.subcategory, first.attempt) == ("set", "cat", "sub", 1)
    assert (first.status, first.failure_reason, first.no_counters_reason) == ("ok", None, None)
    assert first.counters is not None
    assert (first.counters.steps, first.counters.accepted, first.counters.drafted) == (3, 5, 11)
    assert first.raw_counters == {"predicted_n": 9, "draft_n": 11, "draft_n_accepted": 5}


async def test_the_models_own_answers_go_back_and_its_reasoning_does_not() -> None:
    rules = {
        "talk.0": Reply(text="the first answer, at length", reasoning="SECRET THOUGHT"),
        "talk.1": Reply(text="the second one", reasoning="ANOTHER", reasoning_field="reasoning"),
    }
    with LlamaCppServer(by_prompt(rules)) as server:
        records = await driven(server, job([conversation("talk", 3)]))
    assert server.asks[2].body["messages"] == [
        said("talk.0"),
        said("the first answer, at length", "assistant"),
        said("talk.1"),
        said("the second one", "assistant"),
        said("talk.2"),
    ]
    assert [len(ask.body["messages"]) for ask in server.asks] == [1, 3, 5]
    assert [r.reasoning_text for r in records] == ["SECRET THOUGHT", "ANOTHER", None]


async def test_conversations_do_not_see_each_other() -> None:
    with LlamaCppServer() as server:
        await driven(server, job([conversation("a", 2), conversation("b", 2)], concurrency=2))
    for ask in server.asks:
        users = [m["content"] for m in ask.body["messages"] if m["role"] == "user"]
        assert len({content[0] for content in users}) == 1


async def test_turns_after_a_failed_one_are_not_sent_and_say_why() -> None:
    with LlamaCppServer(by_prompt({"a.1": BROKEN})) as server:
        records = await driven(server, job([conversation("a", 4), conversation("b", 2)]))
    fates = {(r.prompt_id, r.turn): (r.status, r.failure_reason) for r in records}
    assert fates == {
        ("a", 0): ("ok", None),
        ("a", 1): ("failed", "http 500: broken"),
        ("a", 2): ("not_sent", "earlier turn failed"),
        ("a", 3): ("not_sent", "earlier turn failed"),
        ("b", 0): ("ok", None),
        ("b", 1): ("ok", None),
    }
    unsent = next(r for r in records if r.status == "not_sent")
    assert (unsent.seed_sent, unsent.start_ns, unsent.end_ns, unsent.attempt, unsent.text) == (
        None,
        None,
        None,
        0,
        None,
    )
    assert len(server.asks) == 4


async def test_a_slow_conversation_holds_no_other_slot_back() -> None:
    names = [f"q{i}" for i in range(12)]
    slow = Reply(hold=lambda s: s.finished >= 11)
    with LlamaCppServer(by_prompt({"q0.0": slow})) as server:
        records = await driven(server, job([conversation(n) for n in names], concurrency=3))
    assert records[-1].prompt_id == "q0"
    assert [r.status for r in records] == ["ok"] * 12
    assert server.most_in_flight <= 3


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_the_planned_number_is_in_flight_and_never_more(concurrency: int) -> None:
    full = Reply(hold=lambda s: s.most_in_flight >= concurrency, pause=0.001)
    with LlamaCppServer(lambda _: full) as server:
        await driven(server, job([conversation(f"q{i}") for i in range(15)], concurrency=concurrency))
    assert server.most_in_flight == concurrency


async def test_conversations_are_read_as_they_are_needed() -> None:
    read: list[str] = []

    def source() -> Iterator[Conversation]:
        for i in range(50):
            read.append(f"q{i}")
            yield conversation(f"q{i}")

    seen: list[int] = []
    with LlamaCppServer() as server:
        work = replace(job([], concurrency=2), conversations=source)
        async with open_client(Endpoint(server.root), ENGINES["llamacpp"], k=4, concurrency=2) as client:
            await asyncio.wait_for(drive(work, client, lambda _: seen.append(len(read))), 30)
    assert seen[0] <= 3
    assert max(now - done for done, now in enumerate(seen)) <= 3


@pytest.mark.parametrize(
    ("run_seed", "prompt_id", "turn", "repeat", "seed"),
    [
        # printf '0|q1|0|0' | sha256sum gives d74ed3a3…; its first 31 bits are 0xd74ed3a3 >> 1
        (0, "q1", 0, 0, 1806133713),
        (0, "q1", 1, 0, 916913882),  # 6d4dfdb5…
        (0, "q1", 0, 1, 2083697710),  # f865685d…
        (7, "HumanEval/3", 2, 4, 900672622),  # 6b5e58dd…
        (-1, "é", 0, 0, 2089659997),  # f91b5cbb…
    ],
)
def test_a_seed_is_the_first_31_bits_of_the_hash(
    run_seed: int, prompt_id: str, turn: int, repeat: int, seed: int
) -> None:
    assert request_seed(run_seed, prompt_id, turn, repeat) == seed


async def test_each_request_gets_its_own_seed_and_the_record_says_which() -> None:
    with LlamaCppServer() as server:
        records = await driven(server, job([conversation("q1", 2)], repeats=2))
    assert [ask.body["seed"] for ask in server.asks][:2] == [1806133713, 916913882]
    assert [r.seed_sent for r in records] == [ask.body["seed"] for ask in server.asks]
    assert len({r.seed_sent for r in records}) == 4


async def test_without_a_run_seed_none_is_sent() -> None:
    with LlamaCppServer() as server:
        records = await driven(server, job([conversation("q1")], seed=None))
    assert "seed" not in server.asks[0].body
    assert records[0].seed_sent is None


async def test_what_is_done_is_not_asked_again_but_stands_in_the_history() -> None:
    work = job([conversation("a", 3), conversation("b", 1)])
    with LlamaCppServer(by_prompt({"a.0": Reply(text="from before")})) as server:
        first = await driven(server, work)
    done = {r.unit: r for r in first if r.unit in {("cell", "a", 0, 0), ("cell", "b", 0, 0)}}
    with LlamaCppServer() as server:
        second = await driven(server, replace(work, done=done))
    assert [r.unit for r in second] == [("cell", "a", 1, 0), ("cell", "a", 2, 0)]
    assert [ask.prompt for ask in server.asks] == ["a.1", "a.2"]
    assert server.asks[0].body["messages"][:2] == [said("a.0"), said("from before", "assistant")]


async def test_a_later_turn_that_is_done_does_not_hide_an_earlier_one_that_failed() -> None:
    work = job([conversation("a", 2)])
    with LlamaCppServer() as server:
        first = await driven(server, work)
    with LlamaCppServer(by_prompt({"a.0": BROKEN})) as server:
        second = await driven(server, replace(work, done={first[1].unit: first[1]}))
    assert [(r.turn, r.status) for r in second] == [(0, "failed")]


async def test_a_server_that_is_gone_ends_the_work_after_a_few_strikes(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_waits(monkeypatch)
    records: list[RequestRecord] = []
    with LlamaCppServer(die_after=3) as server:
        work = job([conversation(f"q{i}") for i in range(40)], concurrency=2)
        with pytest.raises(ServerGone, match="no connection: "):
            await driven(server, work, records)
    assert sum(r.status == "ok" for r in records) in (3, 4)
    lost = [r for r in records if r.status == "failed"]
    # two slots and two strikes more; what was in flight when the server died may be lost in another way
    assert 4 <= len(lost) <= 6
    assert sum(str(r.failure_reason).startswith("no connection: ") for r in lost) >= 4


async def test_an_answer_between_two_losses_clears_the_strikes(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_waits(monkeypatch)
    lost = {f"q{i}.0": Reply(drop_after=0) for i in range(12) if i % 2}
    with LlamaCppServer(by_prompt(lost)) as server:
        records = await driven(server, job([conversation(f"q{i}") for i in range(12)]))
    assert [r.status for r in records] == ["ok", "failed"] * 6


async def test_a_failure_of_the_record_keeper_ends_the_work_as_itself() -> None:
    def full_disk(_: RequestRecord) -> None:
        raise OSError("no space left")

    with LlamaCppServer() as server:
        async with open_client(Endpoint(server.root), ENGINES["llamacpp"], k=4, concurrency=2) as client:
            with pytest.raises(OSError, match="no space left"):
                await drive(job([conversation("a"), conversation("b")], concurrency=2), client, full_disk)


async def test_cancelled_turns_leave_no_record() -> None:
    with LlamaCppServer(by_prompt({"b.0": Reply(stall_after=3)})) as server:
        records: list[RequestRecord] = []
        async with open_client(Endpoint(server.root), ENGINES["llamacpp"], k=4, concurrency=2) as client:
            task = asyncio.create_task(
                drive(job([conversation("a"), conversation("b")], concurrency=2), client, records.append)
            )
            await asyncio.to_thread(server.until, lambda s: s.finished == 1 and s.in_flight == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert client.aborted == 1
    assert [r.prompt_id for r in records] in (["a"], [])
    assert gc.get_freeze_count() == 0


async def test_loop_lag_sees_a_blocked_loop() -> None:
    async with loop_lag(0.01) as lag:
        await asyncio.sleep(0.03)
        time.sleep(0.05)  # keeps the loop from turning
        await asyncio.sleep(0.03)
    assert lag.p99_ms is not None
    assert max(lag.samples) > 20
    assert all(sample >= 0 for sample in lag.samples)


def test_loop_lag_is_a_percentile_and_null_without_samples() -> None:
    assert LoopLag().p99_ms is None
    assert LoopLag([3.0]).p99_ms == 3.0
    assert LoopLag([float(i) for i in range(200, 0, -1)]).p99_ms == 198.0  # 198 of 200 samples lie at or below it


async def test_half_a_surrogate_pair_goes_into_the_history_as_a_replacement_character() -> None:
    texts = [rb"a\ud800b", rb"\ud83d\ude00", rb"c\udfff"]
    streams = [
        b'data: {"choices":[{"delta":{"content":"' + text + b'"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        for text in texts
    ]
    with LlamaCppServer(lambda ask: Reply(stream=streams[ask.number])) as server:
        work = replace(
            job([conversation("a", turns=3)]), room=Room(ENGINES["llamacpp"], Endpoint(server.root), "tiny", 20, 4)
        )
        records = await driven(server, work)
    assert [r.text for r in records] == ["a\ud800b", "\U0001f600", "c\udfff"]
    sent = [m["content"] for m in server.asks[-1].body["messages"] if m["role"] == "assistant"]
    assert sent == ["a\ufffdb", "\U0001f600"]
