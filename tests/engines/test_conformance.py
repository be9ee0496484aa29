"""What every engine adapter must do, held against payloads of its server.

A new engine is one module and one entry here: its payloads, and the completion tokens they tell of. Those of SGLang
and TensorRT-LLM are built from the engines' sources; tests/data/<engine>/README.md says so.
"""

import importlib
import json
import pkgutil
from dataclasses import dataclass
from typing import Any

import pytest

from spec_eval import engines
from spec_eval.engines import ENGINES, CounterReader, Engine
from spec_eval.engines.base import Adapter
from spec_eval.records import breach
from tests.emulator.asking import chat, stream
from tests.emulator.server import EmulatorServer
from tests.factories import DATA


@dataclass(frozen=True)
class Payload:
    """A body or an event stream under tests/data/<engine>/. k: what the user would give beside it."""

    file: str
    k: int | None
    steps: int
    completion_tokens: int


PAYLOADS: dict[str, list[Payload]] = {
    "llamacpp": [
        Payload("draft.chat.stream.tpt.txt", 5, 10, 60),
        Payload("ngram-simple.chat.stream.tpt.txt", 8, 14, 60),
    ],
    "sglang": [
        Payload("chat.json", None, 14, 31),
        Payload("chat.stream.txt", 4, 14, 31),
        Payload("chat-dspark.json", None, 14, 31),
        Payload("chat-zero-steps.json", None, 0, 1),
    ],
    "trtllm": [
        Payload("chat.json", None, 12, 34),
        Payload("chat.stream.txt", None, 12, 34),
        Payload("chat-average-only.json", 4, 16, 40),
    ],
    "vllm": [
        Payload("draft-detailed.chat.json", None, 13, 64),
        Payload("draft-detailed.chat.stream.txt", None, 13, 64),
        Payload("ngram-summary.chat.stream.txt", None, 9, 64),
        Payload("custom.chat.json", None, 28, 64),
        Payload("suffix.chat.json", None, 10, 64),
    ],
}
OWN = [(name, payload) for name, payloads in PAYLOADS.items() for payload in payloads]
FOREIGN = [(name, other, payload) for other, payload in OWN for name in PAYLOADS if name != other]


def fed(reader: CounterReader, engine: str, file: str) -> CounterReader:
    text = (DATA / engine / file).read_text(encoding="utf-8")
    events: list[dict[str, Any]]
    if file.endswith(".json"):
        events = [json.loads(text)]
    else:
        events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]
    assert events
    for event in events:
        reader.event(event)
    return reader


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> Engine:
    return ENGINES[request.param]


def test_every_engine_that_counts_by_request_has_a_payload() -> None:
    assert PAYLOADS.keys() == {name for name, engine in ENGINES.items() if engine.by_request}
    assert all(PAYLOADS.values())


def test_every_adapter_in_the_package_is_registered() -> None:
    modules = [importlib.import_module(f"{engines.__name__}.{m.name}") for m in pkgutil.iter_modules(engines.__path__)]
    found = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    adapters = {one.__name__ for one in found if issubclass(one, Adapter) and one is not Adapter}
    assert adapters == {type(engine).__name__ for engine in ENGINES.values()}


def test_payloads_not_recorded_are_marked_so() -> None:
    for name in ("sglang", "trtllm"):
        assert "Schema-built, not recorded" in (DATA / name / "README.md").read_text(encoding="utf-8")


def test_engine_is_registered_by_its_name(engine: Engine) -> None:
    assert engines.find(engine.name) is engine
    assert ENGINES[engine.name] is engine


def test_engine_names_its_counters_and_how_to_get_them(engine: Engine) -> None:
    assert engine.metrics_prefix.endswith((":", "_")) or not engine.by_request
    assert engine.metrics_path.startswith("/")
    assert len(engine.remedy) > 20
    assert len(engine.metrics_remedy) > 20
    assert all(isinstance(value, str) for value in engine.headers.values())


@pytest.mark.parametrize("cold_cache", [True, False])
def test_fields_of_a_request_can_be_sent(engine: Engine, cold_cache: bool) -> None:
    fields = engine.extra_body(cold_cache=cold_cache)
    assert json.loads(json.dumps(fields)) == fields
    assert not fields.keys() & {"model", "messages", "stream", "stream_options", "seed", "temperature", "max_tokens"}


@pytest.mark.parametrize("k", [None, 4])
@pytest.mark.parametrize("events", [[], [{}], [{"object": "chat.completion.chunk", "choices": []}]])
def test_reader_fed_nothing_has_no_counters_and_says_why(
    engine: Engine, k: int | None, events: list[dict[str, Any]]
) -> None:
    reader = engine.reader(k)
    for event in events:
        reader.event(event)
    reading = reader.reading()
    assert reading.counters is None
    assert reading.reason


@pytest.mark.parametrize(("name", "payload"), OWN, ids=lambda value: getattr(value, "file", value))
def test_payload_gives_counters_that_keep_every_identity(name: str, payload: Payload) -> None:
    reading = fed(ENGINES[name].reader(payload.k), name, payload.file).reading()
    assert reading.reason is None
    assert reading.counters is not None
    assert reading.counters.steps == payload.steps
    assert breach(reading.counters, payload.completion_tokens) is None
    assert json.loads(json.dumps(reading.raw)) == reading.raw


@pytest.mark.parametrize(("name", "payload"), OWN, ids=lambda value: getattr(value, "file", value))
def test_readers_of_two_answers_know_nothing_of_each_other(name: str, payload: Payload) -> None:
    fed(ENGINES[name].reader(payload.k), name, payload.file)
    assert ENGINES[name].reader(payload.k).reading().counters is None


@pytest.mark.parametrize(("name", "other", "payload"), FOREIGN, ids=lambda value: getattr(value, "file", value))
def test_payload_of_another_engine_gives_no_counters(name: str, other: str, payload: Payload) -> None:
    reading = fed(ENGINES[name].reader(payload.k), other, payload.file).reading()
    assert reading.counters is None
    assert reading.reason


# The emulator speaks three of the formats; each adapter must read its own like a recorded one, and no other.


@pytest.fixture(scope="module", params=["vllm", "sglang", "trtllm"])
def emulated(request: pytest.FixtureRequest) -> dict[str, list[dict[str, Any]]]:
    """The events of a whole answer and of a streamed one, all of one hand of 125 steps."""
    with EmulatorServer(like=request.param) as server:
        asked = {"max_tokens": 5000, **ENGINES[request.param].extra_body()}
        return {request.param: [], "whole": [chat(server.url, **asked)], "stream": stream(server.url, **asked)}


@pytest.mark.parametrize("kind", ["whole", "stream"])
@pytest.mark.parametrize("k", [None, 8])
def test_emulated_answers_are_read_by_their_own_adapter_only(
    emulated: dict[str, list[dict[str, Any]]], kind: str, k: int | None
) -> None:
    own = next(iter(emulated))
    for name in PAYLOADS:
        reader = ENGINES[name].reader(k)
        for event in emulated[kind]:
            reader.event(event)
        counters = reader.reading().counters
        assert (counters is not None) == (name == own)
        if counters is not None:
            assert (counters.steps, counters.drafted, counters.k) == (125, 1000, 8)
            usage = emulated["whole"][0]["usage"]["completion_tokens"]
            assert usage == 1 + 125 + counters.accepted
            assert breach(counters, usage) is None
