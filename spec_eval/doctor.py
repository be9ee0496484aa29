"""The whole examination of a server: at most five requests in a minute, each finding with its remedy.

It asks through the driver that runs use, so what it finds is what a run would find. Only it asks nothing twice.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from spec_eval.acceptance import kind
from spec_eval.drivers.answer import Answer, AnswerError
from spec_eval.drivers.chat import Timeouts, open_client, sampling_body
from spec_eval.drivers.conversations import Job, drive
from spec_eval.engines import Engine
from spec_eval.engines.base import Identity, Reading
from spec_eval.engines.endpoint import Endpoint
from spec_eval.errors import EnvironmentFault, SpecEvalError
from spec_eval.probe import identify, model_name
from spec_eval.prompts import Conversation
from spec_eval.reconcile import reconcile
from spec_eval.records import RequestRecord, breach
from spec_eval.store import NotExact, Reconciliation
from spec_eval.suite import Sampling

# Words that come again, since n-gram drafters propose from what was said before; and enough of them to fill a block of
# a prefix cache (vLLM's have 16 tokens, those of its CPU build 128).
_COUNT = "one two three four five six seven eight nine ten"
PROMPT = f"Say it once more: {', '.join([_COUNT] * 16)}, one two three"
_SAMPLING = Sampling(temperature=0.0, max_tokens=48)
_TIMEOUTS = Timeouts(connect=10.0, first_token=45.0, between_chunks=30.0)
_LIMIT_S = 60.0
_SETTLE_S = 3.0


class _TimeIsUp(Exception):
    """The minute is over."""


class Status(StrEnum):
    """Of one finding. Only a failed one keeps a run from measuring."""

    PASS = "pass"  # noqa: S105 # a verdict, not a password
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it stands, and what to do about it."""

    check: str
    status: Status
    message: str
    remedy: str | None = None


@dataclass(frozen=True)
class Examination:
    """Of one server; identity and model are null where nobody was there to ask."""

    identity: Identity | None
    model: str | None
    k: int | None
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """The worst of the findings."""
        found = {finding.status for finding in self.findings}
        return Status.FAIL if Status.FAIL in found else Status.WARN if Status.WARN in found else Status.PASS


@dataclass
class _Subject:
    """The server, and what is known of it so far."""

    endpoint: Endpoint
    engine: Engine
    identity: Identity
    model: str
    k: int | None
    deadline: float = field(default_factory=lambda: time.monotonic() + _LIMIT_S)

    @property
    def remaining_s(self) -> float:
        """Of the minute; _TimeIsUp where nothing is left."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise _TimeIsUp
        return left

    def ask(self, *, thinking: bool | None = None, cold_cache: bool = True) -> RequestRecord:
        """One streamed answer."""
        sampling = _SAMPLING.model_copy(update={"thinking": thinking})
        try:
            return asyncio.run(asyncio.wait_for(self._ask(sampling, cold_cache), self.remaining_s))
        except TimeoutError:
            raise _TimeIsUp from None

    async def _ask(self, sampling: Sampling, cold_cache: bool) -> RequestRecord:
        conversation = Conversation("doctor", "doctor", None, (({"role": "user", "content": PROMPT},),))
        job = Job(
            cell_id="doctor",
            dataset="doctor",
            model=self.model,
            sampling=sampling,
            concurrency=1,
            repeats=1,
            seed=0,
            conversations=lambda: iter((conversation,)),
        )
        kept: list[RequestRecord] = []
        async with open_client(
            self.endpoint,
            self.engine,
            k=self.k,
            concurrency=1,
            timeouts=_TIMEOUTS,
            nominal_drafts=bool(self.identity.adaptive),
            cold_cache=cold_cache,
            chain=not self.identity.tree,
            attempts=1,
        ) as client:
            await drive(job, client, kept.append)
        return kept[0]

    def whole(self) -> Reading | str:
        """Counters of an answer that is not streamed, or why it cannot be used."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": PROMPT}],
            "stream": False,
            **sampling_body(_SAMPLING, seed=0),
            **self.engine.extra_body(cold_cache=False),  # so that the last request has a prefix to find
        }
        answer = Answer(self.engine.reader(self.k, nominal_drafts=bool(self.identity.adaptive)))
        wait_s = min(_TIMEOUTS.first_token, self.remaining_s)
        try:
            answer.whole_object(self.endpoint.post_json("/v1/chat/completions", body, timeout_s=wait_s))
        except (AnswerError, EnvironmentFault) as error:
            return str(error)
        return answer.reader.reading()


def examine(endpoint: Endpoint, engine: Engine, *, model: str | None, k: int | None) -> Examination:
    """Ask everything that a run's figures depend on; what cannot be reached ends it early."""
    try:
        identity = identify(endpoint, engine)
        name = model_name(identity, model, endpoint)
    except EnvironmentFault as fault:
        return Examination(None, None, k, (Finding("server", Status.FAIL, *_parted(fault)),))
    subject = _Subject(endpoint, engine, identity, name, k if k is not None else identity.k)
    found: list[Finding] = []
    try:
        for finding in _findings(subject, k):
            found.append(finding)  # one by one, as time may be up before the next
    except _TimeIsUp:
        message = f"the answers took longer than {_LIMIT_S:g} s in all; what is not listed was not asked"
        found.append(Finding("time", Status.FAIL, message, "take other load off the server, then ask again"))
    return Examination(identity, name, subject.k, tuple(found))


def _findings(subject: _Subject, k: int | None) -> Iterator[Finding]:
    identity, engine = subject.identity, subject.engine
    version = identity.version or "of unknown version"
    yield Finding("server", Status.PASS, f"{engine.name} {version} serves {subject.model}")
    yield from _kind(identity)
    before = subject.endpoint.metrics(engine.metrics_path)
    first = subject.ask()
    yield _answers(first)
    if first.status != "ok":
        return
    agreement = _agreement(subject, before, first)
    yield from _counters(subject, first)
    yield from _k(subject, k, first)
    yield agreement
    yield from _thinking(subject)
    yield from _cache(subject, first)


# Kinds of failure whose reason names the remedy itself.
_KEY_REFUSED = ("http 401", "http 403")
# What a failed answer's reason begins with, and what helps.
_REMEDIES = (
    ("not an event stream", "give the server's own address as --base-url; something else answers there"),
    ("timeout", "see in the server's log whether it still loads, or hangs"),
    ("no connection", "start the server again; its log says why it stopped"),
    ("http 429", "take other load off the server, then ask again; a run would wait and ask again"),
    ("context limit", "start the server with a longer context"),
)


def _answers(first: RequestRecord) -> Finding:
    if first.status != "ok":
        reason = str(first.failure_reason)
        message, _, remedy = reason.partition("; ") if kind(reason) in _KEY_REFUSED else (reason, "", "")
        remedy = remedy or next((text for start, text in _REMEDIES if reason.startswith(start)), "see the server's log")
        return Finding("answers", Status.FAIL, message, remedy)
    if first.completion_tokens is None:
        remedy = "let stream_options.include_usage through to the server, and its usage chunk back"
        return Finding("answers", Status.WARN, "streamed, without the server's count of tokens", remedy)
    return Finding("answers", Status.PASS, f"streamed, {first.completion_tokens} tokens by the server's count")


def _parted(fault: SpecEvalError) -> tuple[str, str | None]:
    """(what and where, the remedy) of a message that has both."""
    message, _, remedy = str(fault).rpartition("; ")
    return (message, remedy) if message else (remedy, None)


def _counters(subject: _Subject, first: RequestRecord) -> Iterator[Finding]:
    engine = subject.engine
    if not engine.by_request:
        yield Finding("counters, streamed", Status.WARN, "server-wide only: totals of a run, in one row", engine.remedy)
        return
    if first.counters is None:
        yield Finding(
            "counters, streamed", Status.FAIL, f"none: {first.no_counters_reason}", _no_counters(engine, first)
        )
    else:
        yield _judged("counters, streamed", first, subject)
    whole = subject.whole()
    if isinstance(whole, str):
        yield Finding("counters, not streamed", Status.WARN, whole, "runs stream, and are not affected")
    elif whole.counters is None and first.counters:
        why = f"none: {whole.reason}; runs stream, and are not affected"
        yield Finding("counters, not streamed", Status.PASS, why)
    elif whole.counters is None:
        yield Finding("counters, not streamed", Status.FAIL, f"none: {whole.reason}", engine.remedy)
    else:
        as_record = replace(first, counters=whole.counters, completion_tokens=None)
        yield _judged("counters, not streamed", as_record, subject)


def _no_counters(engine: Engine, first: RequestRecord) -> str:
    """Where usage is missing too, the chunk that would hold both did not come through."""
    return "mend the usage chunk first, as said above" if first.completion_tokens is None else engine.remedy


def _judged(check: str, record: RequestRecord, subject: _Subject) -> Finding:
    counters = record.counters
    assert counters is not None
    if broken := breach(counters, record.completion_tokens):
        return Finding(check, Status.FAIL, f"they contradict themselves: {broken}", "check --engine and --k")
    if counters.source == "inferred":
        message = "inferred from an average of tokens an iteration, not counted"
        return Finding(check, Status.WARN, message, subject.engine.remedy)
    if not counters.steps:
        message = "no verification step in a whole answer: the server does not draft, or found nothing to draft"
        return Finding(check, Status.WARN, message, subject.engine.remedy)
    drafted = "unknown" if counters.drafted is None else counters.drafted
    return Finding(
        check, Status.PASS, f"{counters.steps} steps, {drafted} drafted, {counters.accepted} accepted; identities hold"
    )


def _k(subject: _Subject, expected: int | None, first: RequestRecord) -> Iterator[Finding]:
    identity, counters = subject.identity, first.counters
    told = counters.k if counters and counters.steps and subject.engine.tells_k else identity.k
    flag = f" ({identity.k_flag})" if identity.k_flag else ""
    if expected is not None and told is not None and told != expected:
        message = f"the server drafts {told} tokens a step{flag}, not {expected}"
        yield Finding("draft length", Status.FAIL, message, "mend --k, or restart the server")
    elif told is not None:
        yield Finding("draft length", Status.PASS, f"k = {told} draft tokens a step{flag}")
    elif expected is not None:
        yield Finding("draft length", Status.PASS, f"k = {expected} as you say; the server does not tell")
    else:
        yield Finding("draft length", Status.WARN, f"the server does not tell k{flag}", "give --k, in draft tokens")


def _kind(identity: Identity) -> Iterator[Finding]:
    if identity.synthetic:
        remedy = "never publish its figures as measured"
        yield Finding("acceptance", Status.WARN, f"synthetic: {identity.synthetic}", remedy)
    if identity.speculative is False:
        yield Finding("drafter", Status.FAIL, "the server does not draft", "start it with a drafter")
    if identity.adaptive:
        message = "adaptive verification: acceptance depends on load, drafted counts are nominal"
        yield Finding("verification", Status.WARN, message, "compare only with runs of the same kind")
    if identity.tree:
        message = "drafts are trees, which have no chain positions"
        yield Finding("verification", Status.WARN, message, "positions are left out")


def _thinking(subject: _Subject) -> Iterator[Finding]:
    on, off = subject.ask(thinking=True), subject.ask(thinking=False)
    if failed := next((r for r in (on, off) if r.status != "ok"), None):
        message = f"a request with enable_thinking failed: {failed.failure_reason}"
        yield Finding("thinking switch", Status.WARN, message, "leave --thinking out for this server")
    elif on.reasoned and not off.reasoned:
        yield Finding("thinking switch", Status.PASS, "obeyed: reasoning seen with it on, none with it off")
    elif off.reasoned:
        message = f"ignored: reasoning seen with it off{'' if on.reasoned else ', none with it on'}"
        yield Finding("thinking switch", Status.WARN, message, "the chat template has another switch, or none")
    else:
        message = "no reasoning seen, with it on or off"
        remedy = "a target that thinks needs its reasoning parser; for any other this is right"
        yield Finding("thinking switch", Status.WARN, message, remedy)


def _cache(subject: _Subject, first: RequestRecord) -> Iterator[Finding]:
    again = subject.ask(cold_cache=False)
    check, cached, prompt = "prefix cache", again.cached_tokens, again.prompt_tokens
    if again.status != "ok":
        yield Finding(check, Status.WARN, f"a repeated request failed: {again.failure_reason}", "mend the server")
    elif first.cached_tokens:
        message = f"{first.cached_tokens} tokens came from the cache although the request asked for none"
        yield Finding(check, Status.WARN, message, "switch prefix caching off in the server")
    elif cached is None or prompt is None:
        message = "the server does not tell cached tokens; requests of a run keep old prefixes out"
        remedy = "let the server count them: --enable-prompt-tokens-details in vLLM, --enable-cache-report in SGLang"
        yield Finding(check, Status.WARN, message, remedy)
    elif prompt - cached == 1 and subject.engine.pads_cache_hits:
        message = "on: a repeated prompt leaves one token, which adds a phantom step; a run's requests keep it out"
        yield Finding(check, Status.WARN, message, "never run with --no-cache-salt here")
    elif cached:
        yield Finding(check, Status.PASS, f"on ({cached} of {prompt} tokens); a run's requests keep it out")
    else:
        yield Finding(check, Status.PASS, "a repeated prompt came from no cache")


def _agreement(subject: _Subject, before: str | None, first: RequestRecord) -> Finding:
    """The server's own totals against one answer's; they may lag a moment behind it."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        result = _reconciled(subject, before, first)
        if result.status != "differs" or first.counters is None or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    check, reason = "server's totals", str(result.reason)
    if not subject.engine.by_request:
        if result.server:
            return Finding(check, Status.PASS, f"{result.server['steps']} steps counted for that answer")
        return Finding(check, Status.FAIL, f"none: {reason}", subject.engine.remedy)
    if result.status == "exact":
        return Finding(check, Status.PASS, "steps, drafted, accepted and every position equal the answer's")
    if result.status == "differs" and first.counters is None and result.server:
        message = f"the server counted {result.server['steps']} steps for that answer, which does not tell of them"
        return Finding(check, Status.WARN, message, "make it hand them over, as said above")
    if result.status == "differs":
        remedy = "keep other traffic, and other servers, off this address, then ask again"
        return Finding(check, Status.FAIL, reason, remedy)
    if result.cause is NotExact.NO_METRICS:
        return Finding(check, Status.WARN, "not compared: the server shows none", subject.engine.metrics_remedy)
    remedy = "none needed: runs measure by the answers' own counters, unchecked here"
    return Finding(check, Status.WARN, f"not compared: {reason}", remedy)


def _reconciled(subject: _Subject, before: str | None, first: RequestRecord) -> Reconciliation:
    after = subject.endpoint.metrics(subject.engine.metrics_path)
    return reconcile(before, after, subject.engine, [first], aborted=0)
