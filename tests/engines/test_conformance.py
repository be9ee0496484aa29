"""What every engine adapter must do, held against payloads that its server really sent.

A new engine is one module and one entry here: its recorded payloads, and the completion tokens they tell of.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from spec_eval import engines
from spec_eval.engines import ENGINES, CounterReader, Engine
from spec_eval.records import breach
from tests.factories import DATA


@dataclass(frozen=True)
class Payload:
    """A body or an event stream under tests/data/<engine>/. k: what the user would give beside it."""

    file: str
    k: int | None
    steps: int
    completion_tokens: int


RECORDED: dict[str, list[Payload]] = {
    "llamacpp": [
        Payload("draft.chat.stream.tpt.txt", 5, 10, 60),
        Payload("ngram-simple.chat.stream.tpt.txt", 8, 14, 60),
    ],
    "vllm": [
        Payload("draft-detailed.chat.json", None, 13, 64),
        Payload("draft-detailed.chat.stream.txt", None, 13, 64),
        Payload("ngram-summary.chat.stream.txt", None, 9, 64),
        Payload("custom.chat.json", None, 28, 64),
        Payload("suffix.chat.json", None, 10, 64),
    ],
}
OWN = [(name, payload) for name, payloads in RECORDED.items() for payload in payloads]
FOREIGN = [(name, other, payload) for other, payload in OWN for name in RECORDED if name != other]


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


def test_every_engine_has_a_recorded_payload() -> None:
    assert RECORDED.keys() == ENGINES.keys()
    assert all(RECORDED.values())


def test_engine_is_registered_by_its_name(engine: Engine) -> None:
    assert engines.find(engine.name) is engine
    assert ENGINES[engine.name] is engine


def test_engine_names_its_counters_and_how_to_get_them(engine: Engine) -> None:
    assert engine.metrics_prefix.endswith(":")
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
def test_recorded_payload_gives_counters_that_keep_every_identity(name: str, payload: Payload) -> None:
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
