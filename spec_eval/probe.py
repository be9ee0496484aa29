"""Questions to a server before a run: is it there, is it the right one, does it hand its counters over?"""

import asyncio
from dataclasses import dataclass, replace

from spec_eval.drivers.chat import ChatRequest, Timeouts, open_client, sampling_body
from spec_eval.drivers.outcome import Outcome
from spec_eval.engines import Engine
from spec_eval.engines.base import Identity
from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.scrape import find, parse
from spec_eval.errors import EnvironmentFault
from spec_eval.records import breach
from spec_eval.suite import Sampling

PROMPT = "Repeat after me: one two three, one two three, one two three."
_SAMPLING = Sampling(temperature=0.0, max_tokens=16)


@dataclass(frozen=True, slots=True)
class Probe:
    """What was learned: who the server is, the name of the model to ask, and k where the user or the server tells it.

    told_k: k as its answers name it, else as the server does.
    """

    identity: Identity
    model: str
    k: int | None
    told_k: int | None = None


def probe(
    endpoint: Endpoint,
    engine: Engine,
    *,
    model: str | None,
    k: int | None,
    cold_cache: bool = True,
    drafts: bool = True,
) -> Probe:
    """The essential checks, with one real request; EnvironmentFault names what to mend.

    Cheap on purpose: a run without counters should end here, not after the data set was sent. A server that is not to
    draft (`drafts`) only has to answer.
    """
    identity = identify(endpoint, engine)
    name = model_name(identity, model, endpoint)
    if not engine.by_request and drafts:
        _require_totals(endpoint, engine)
    known = k if k is not None else identity.k
    result = asyncio.run(_ask(endpoint, engine, name, known, cold_cache))
    if result.failure:
        raise EnvironmentFault(
            f"{endpoint.base_url}: the first request failed: {result.failure}; mend the server first"
        )
    reading = result.reading
    if not engine.by_request or not drafts:
        return Probe(identity, name, known, identity.k)
    if reading is None or reading.counters is None:
        reason = reading.reason if reading else "no answer"
        hint = _where_it_fails(endpoint, engine)
        raise EnvironmentFault(f"{endpoint.base_url}: no counters in its answers ({reason}){hint}; {engine.remedy}")
    if identity.speculative is False:
        raise EnvironmentFault(f"{endpoint.base_url}: the server does not draft; {engine.remedy}")
    if broken := breach(reading.counters, result.completion_tokens):
        raise EnvironmentFault(
            f"{endpoint.base_url}: its counters contradict themselves ({broken}); check --engine and --k"
        )
    told = reading.counters.k if engine.tells_k else identity.k
    if k is not None and told is not None and told != k:
        raise EnvironmentFault(f"{endpoint.base_url}: drafts {told} tokens a step, not {k}; mend --k, or drop it")
    return Probe(identity, name, known, told)


def identify(endpoint: Endpoint, engine: Engine) -> Identity:
    """What the server says of itself, and whether it is an emulator."""
    return replace(engine.identify(endpoint), synthetic=endpoint.stamp())


def _require_totals(endpoint: Endpoint, engine: Engine) -> None:
    """Without counters by request, the server's own totals must be there, or a run measures nothing."""
    text = endpoint.metrics(engine.metrics_path)
    where = f"{endpoint.root}{engine.metrics_path}"
    try:
        found = None if text is None else find(text)
    except (ValueError, KeyError) as error:
        raise EnvironmentFault(f"{where}: not readable ({error}); {engine.remedy}") from error
    if found is None:
        there = "shows no Prometheus counters" if text is None else "has no totals of speculative decoding"
        raise EnvironmentFault(f"{where}: {there}; {engine.remedy}")


def _where_it_fails(endpoint: Endpoint, engine: Engine) -> str:
    """Whether the server drafts and only keeps its counters back, or does not draft at all."""
    text = endpoint.metrics(engine.metrics_path)
    if text is None or engine.no_totals or engine.metrics_prefix not in text:
        return ""
    try:
        drafts = parse(text, engine.metrics_prefix) is not None
    except (ValueError, KeyError):
        return ""
    return ", though it does draft" if drafts else ", and it shows no sign of drafting"


def model_name(identity: Identity, wanted: str | None, endpoint: Endpoint) -> str:
    """The model to ask for; EnvironmentFault where it is not served, or where several are and none was named."""
    served = ", ".join(identity.models)
    if wanted is None:
        if len(identity.models) != 1:
            raise EnvironmentFault(f"{endpoint.base_url}: serves {served or 'no model'}; choose one with --model")
        return identity.models[0]
    if wanted not in identity.models:
        raise EnvironmentFault(f"{endpoint.base_url}: does not serve {wanted!r} but {served}; mend --model")
    return wanted


async def _ask(endpoint: Endpoint, engine: Engine, model: str, k: int | None, cold_cache: bool) -> Outcome:
    timeouts = Timeouts(connect=10.0, first_token=300.0)
    async with open_client(endpoint, engine, k=k, concurrency=1, timeouts=timeouts, cold_cache=cold_cache) as client:
        messages = ({"role": "user", "content": PROMPT},)
        return await client.ask(ChatRequest(model, messages, sampling_body(_SAMPLING, seed=0)))
