"""vLLM's recorded answers, and what our reader finds in an answer."""

import json
from typing import Any

from spec_eval.engines.base import Reading
from spec_eval.engines.vllm import Vllm
from spec_eval.records import SpecCounters, breach
from tests.factories import DATA

RECORDED = DATA / "vllm"


def events(name: str) -> list[dict[str, Any]]:
    """A recorded body, or the events of a recorded stream."""
    text = (RECORDED / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        return [json.loads(text)]
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]


def read(given: list[dict[str, Any]], k: int | None = None, *, nominal_drafts: bool = False) -> Reading:
    reader = Vllm().reader(k, nominal_drafts=nominal_drafts)
    for event in given:
        reader.event(event)
    return reader.reading()


def completion_tokens(given: list[dict[str, Any]]) -> int | None:
    found = [event["usage"]["completion_tokens"] for event in given if event.get("usage")]
    return int(found[-1]) if found else None


def counted(given: list[dict[str, Any]], **options: Any) -> SpecCounters:
    """Counters that keep every identity."""
    reading = read(given, **options)
    assert reading.reason is None
    assert reading.counters is not None
    assert breach(reading.counters, completion_tokens(given)) is None
    return reading.counters
