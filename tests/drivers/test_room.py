import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from spec_eval.drivers.chat import open_client
from spec_eval.drivers.conversations import Job, drive
from spec_eval.drivers.room import Room
from spec_eval.engines import ENGINES
from spec_eval.engines.endpoint import Endpoint
from spec_eval.prompts import Conversation, Message
from spec_eval.records import RequestRecord
from spec_eval.suite import Sampling
from tests.llamacpp_server import LlamaCppServer, Reply


@pytest.fixture
def server() -> Iterator[LlamaCppServer]:
    with LlamaCppServer() as running:
        yield running


def room(server: LlamaCppServer, context: int | None = 500, *, engine: str = "llamacpp", max_tokens: int = 32) -> Room:
    return Room(ENGINES[engine], Endpoint(server.root), "tiny", context, max_tokens)


def words(count: int, role: str = "user") -> Message:
    return {"role": role, "content": " ".join(["word"] * count)}


@pytest.mark.parametrize(
    ("engine", "context", "limit"),
    [
        ("llamacpp", 500, 499),  # it cuts the answer short: one token of it is enough
        ("vllm", 500, 468),  # it refuses a prompt that leaves no room for max_tokens
        ("llamacpp", None, None),
        ("vllm", None, None),
    ],
)
def test_limit_is_the_longest_prompt_that_the_server_takes(
    server: LlamaCppServer, engine: str, context: int | None, limit: int | None
) -> None:
    assert room(server, context, engine=engine).limit == limit


@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
async def test_prompt_at_the_limit_fits_and_one_token_more_does_not(server: LlamaCppServer, engine: str) -> None:
    one = room(server, engine=engine)
    limit = one.limit
    assert limit is not None
    assert await one.too_long([words(limit)]) is None
    assert await one.too_long([words(limit + 1)]) == limit + 1
    assert await one.too_long([words(limit - 10), words(5, "assistant"), words(6)]) == limit + 1
    assert server.counted_prompts == [limit, limit + 1, limit + 1]


async def test_short_prompt_is_settled_without_asking(server: LlamaCppServer) -> None:
    # 499 tokens fit; 227 bytes + 16 a message + 256 around are 499 at most
    assert await room(server).too_long([{"role": "user", "content": "x" * 227}]) is None
    assert server.counted_prompts == []
    assert await room(server).too_long([{"role": "user", "content": "x" * 228}]) is None
    assert server.counted_prompts == [1]


async def test_bytes_and_not_letters_bound_the_tokens(server: LlamaCppServer) -> None:
    assert await room(server).too_long([{"role": "user", "content": "想" * 100}]) is None
    assert server.counted_prompts == [1]


async def test_unknown_context_lets_everything_through_unasked(server: LlamaCppServer) -> None:
    assert await room(server, None).too_long([words(9999)]) is None
    assert server.counted_prompts == []


async def test_server_without_a_tokenizer_lets_everything_through(server: LlamaCppServer) -> None:
    server.tokenizer = False
    assert await room(server).too_long([words(9999)]) is None


def conversation(name: str, *turns: Message) -> Conversation:
    return Conversation(name, "cat", None, tuple((message,) for message in turns))


async def driven(server: LlamaCppServer, *conversations: Conversation) -> dict[tuple[str, int], RequestRecord]:
    records: list[RequestRecord] = []
    job = Job(
        cell_id="cell",
        dataset="set",
        model="tiny",
        sampling=Sampling(temperature=0.0, max_tokens=32),
        concurrency=1,
        repeats=1,
        seed=0,
        conversations=lambda: iter(conversations),
        room=room(server, 40),
    )
    async with open_client(Endpoint(server.root), ENGINES["llamacpp"], k=4, concurrency=1) as client:
        await asyncio.wait_for(drive(job, client, records.append), 30)
    return {(r.prompt_id, r.turn): r for r in records}


async def test_oversized_prompt_is_recorded_with_its_length_and_not_sent(server: LlamaCppServer) -> None:
    found = await driven(server, conversation("long", words(40)), conversation("short", words(3)))
    long = found["long", 0]
    assert (long.status, long.failure_reason) == ("not_sent", "oversized: 40 tokens, the server takes 39")
    assert (long.prompt_tokens, long.attempt, long.start_ns, long.seed_sent) == (40, 0, None, None)
    assert found["short", 0].status == "ok"
    assert [ask.prompt for ask in server.asks] == ["word word word"]


async def test_history_counts_and_what_follows_an_oversized_turn_is_not_sent_either(server: LlamaCppServer) -> None:
    # 20 words, 7 of the answer and 13 more are 40
    server.behaviour = lambda _: Reply(text="one two three four five six seven")
    found = await driven(server, conversation("talk", words(20), words(13), words(1)))
    assert [found["talk", turn].status for turn in range(3)] == ["ok", "not_sent", "not_sent"]
    assert found["talk", 1].failure_reason == "oversized: 40 tokens, the server takes 39"
    assert found["talk", 2].failure_reason == "earlier turn failed"
    assert len(server.asks) == 1


async def test_one_token_less_of_history_is_sent(server: LlamaCppServer) -> None:
    found = await driven(server, conversation("talk", words(20), words(12)))
    assert [record.status for record in found.values()] == ["ok", "ok"]


def test_limit_follows_the_tokens_that_are_asked_for(server: LlamaCppServer) -> None:
    one = room(server, engine="vllm")
    assert replace(one, max_tokens=100).limit == 400
