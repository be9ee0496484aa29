"""The records of one AIPerf run, and what each says of its request."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spec_eval.drivers.answer import Answer, AnswerError
from spec_eval.engines import Engine, Reading
from spec_eval.importers import answers
from spec_eval.importers.answers import Answered
from spec_eval.prompts.build import NO_CATEGORY
from spec_eval.records import MOST_DRAFTS, RequestRecord, SpecCounters, is_count

RECORDS, RAW = "profile_export.jsonl", "profile_export_raw.jsonl"
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty")
_MORE_ASKED = ("max_completion_tokens", "max_tokens", "chat_template_kwargs")
# A year: what is longer, or infinite, is no time that anybody waited.
_LONGEST_WAIT_MS = 366 * 24 * 3600 * 1000
_NOT_KEPT = "AIPerf kept no counters: the server sent none, or took no verification step"
_ONLY_RAW = "AIPerf keeps this engine's counters in its raw export alone: run aiperf with --export-level raw"


@dataclass(frozen=True)
class Reader:
    """How counters are to be read."""

    engine: Engine
    k: int | None
    nominal_drafts: bool

    def answer(self) -> Answer:
        """An empty one."""
        return Answer(self.engine.reader(self.k, nominal_drafts=self.nominal_drafts))


@dataclass(frozen=True)
class Entry:
    """One request, its key in both files: its record, and its raw record; null where that was not exported."""

    key: str
    kept: dict[str, Any] | None
    raw: dict[str, Any] | None

    @property
    def source(self) -> dict[str, Any]:
        """The record if there is one."""
        return self.kept or self.raw or {}

    @property
    def metadata(self) -> dict[str, Any]:
        """The same in both."""
        found: dict[str, Any] = self.source["metadata"]
        return found

    @property
    def start_ns(self) -> int:
        """Since the epoch."""
        start: int = self.metadata["request_start_ns"]
        return start


@dataclass(frozen=True)
class Request:
    """What is kept of an entry.

    answered: its record. instance: tells apart the times at which AIPerf had the same conversation. asked: the
    sampling settings that it carried; null where it has no raw record. differs: whether AIPerf read other counters
    than we do, out of the same raw answer.
    """

    answered: Answered
    instance: str
    asked: dict[str, Any] | None
    differs: bool

    @property
    def record(self) -> RequestRecord:
        """Without whether it was emulated."""
        return self.answered.record


def entries(folder: Path, aside: list[str]) -> Iterator[Entry]:
    """Every request of the profiling phase, those with a raw record first; `aside` gets what was left out.

    A raw record holds every chunk, and the file of all of them may be larger than the memory: it is read as far as
    entries are taken, and no raw record is kept.
    """
    kept = {key: _without_lists(row) for key, row in _profiled(folder / RECORDS, aside)}
    paired = set()
    for key, raw in _profiled(folder / RAW, aside):
        paired.add(key)
        yield Entry(key, kept.get(key), raw)
    for key, row in kept.items():
        if key not in paired:
            yield Entry(key, row, None)


def records(found: Iterable[Entry], dataset: str, reader: Reader) -> list[Request]:
    """One for each key, in the order of their start and in the cell named like the data set.

    Each entry is read and dropped before the next is taken. Of two with one key the later counts.
    """
    made = {entry.key: _request(entry, dataset, reader) for entry in found}
    return _numbered(sorted(made.values(), key=lambda one: one.record.start_ns or 0))


def _profiled(path: Path, aside: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(request id, row), or the line's number where a record has none."""
    if not path.is_file():
        return
    for number, row in answers.json_lines(path, aside, _fault):
        if row["metadata"].get("benchmark_phase") == "profiling":
            yield str(row["metadata"].get("x_request_id") or number), row


def _fault(row: dict[str, Any]) -> str | None:
    metadata = row.get("metadata")
    if not isinstance(metadata, dict):
        return "no metadata"
    if not is_count(metadata.get("request_start_ns")):
        return "no request_start_ns"
    return None if metadata.get("turn_index") is None or is_count(metadata["turn_index"]) else "no turn_index"


def _without_lists(row: dict[str, Any]) -> dict[str, Any]:
    """A record whose metrics are single values: the times of all chunks are of no use here."""
    metrics = table(row.get("metrics"))
    single = {name: one for name, one in metrics.items() if not isinstance(table(one).get("value"), list)}
    return row | {"metrics": single}


def _numbered(found: Sequence[Request]) -> list[Request]:
    """With their repeats: AIPerf has a conversation anew when its data run out, or by chance."""
    seen: dict[str, dict[str, int]] = {}
    numbered = []
    for one in found:
        instances = seen.setdefault(one.record.prompt_id, {})
        record = replace(one.record, repeat=instances.setdefault(one.instance, len(instances)))
        numbered.append(replace(one, answered=replace(one.answered, record=record)))
    return numbered


def _request(entry: Entry, dataset: str, reader: Reader) -> Request:
    """Out of the raw record where there is one."""
    metadata, metrics, raw = entry.metadata, table(entry.source.get("metrics")), entry.raw
    answer, counted = reader.answer(), None
    failure = _failure(entry)
    if raw is not None and failure is None:
        try:
            _replay(answer, raw)
        except AnswerError as error:
            failure = str(error)
    elif raw is None:
        _recall(answer, metrics, entry.start_ns)
        counted = _kept_counters(entry.source.get("spec_decode_acceptance"), reader, answer.usage)
    end, session = metadata.get("request_end_ns"), metadata.get("session_num")
    made = answers.answered(
        answer,
        failure,
        dataset=dataset,
        prompt_id=str(metadata.get("conversation_id") or f"session {session}"),
        category=NO_CATEGORY,
        turn=metadata.get("turn_index") or 0,
        start_ns=entry.start_ns,
        end_ns=end if is_count(end) else None,
        prompt_tokens=_whole(metrics, "input_sequence_length"),
        counted=counted,
    )
    return Request(
        answered=made,
        instance=str(metadata.get("x_correlation_id") or session),
        asked=None if raw is None else _asked(table(raw.get("payload"))),
        differs=_differs(entry, made.record.counters),
    )


def _asked(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: payload[name] for name in (*SAMPLING, *_MORE_ASKED) if name in payload}


def _failure(entry: Entry) -> str | None:
    error = table(entry.source.get("error")) or table(table(entry.raw).get("error"))
    text = str(error.get("message") or error.get("type") or "")
    if entry.metadata.get("was_cancelled"):
        return f"cancelled: {text or 'by AIPerf'}"
    code = error.get("code") or table(entry.raw).get("status")
    if error and code in (None, 200):
        text = f"{error.get('type') or 'error'}: {text}"
    return answers.failure({"message": text} if error else None, code)


def _replay(answer: Answer, raw: Mapping[str, Any]) -> None:
    """Feed what the server sent, as it came; AnswerError where it cannot be used. Times that make no sense are null."""
    begun: Any = raw.get("start_perf_ns")
    start_ns: int = raw["metadata"]["request_start_ns"]
    whole, timed = False, True
    for response in tables(raw.get("responses")):
        if isinstance(response.get("text"), str):
            whole = True
            answer.whole(_sent(response["text"]))
            continue
        lines = [f"{packet.get('name')}: {packet.get('value')}\n" for packet in tables(response.get("packets"))]
        at: Any = response.get("perf_ns")
        known = is_count(begun) and is_count(at) and at >= begun and is_count(start_ns + at - begun)
        answer.feed(_sent("".join([*lines, "\n"])), start_ns + at - begun if known else start_ns)
        timed = timed and known
    if not timed:
        answer.first_token_ns = None
    if not whole:
        answer.close()


def _sent(text: str) -> bytes:
    """Half a surrogate pair is no UTF-8, and none was sent as such: it becomes a question mark."""
    return text.encode(errors="replace")


def _recall(answer: Answer, metrics: Mapping[str, Any], start_ns: int) -> None:
    """What AIPerf noted of an answer that it did not keep."""
    names = ("prompt_tokens", "completion_tokens")
    answer.usage = {name: _whole(metrics, f"usage_{name}") for name in names}
    answer.usage["prompt_tokens_details"] = {"cached_tokens": _whole(metrics, "usage_prompt_cache_read_tokens")}
    answer.usage["completion_tokens_details"] = {"reasoning_tokens": _whole(metrics, "usage_reasoning_tokens")}
    first = table(metrics.get("time_to_first_token")).get("value")
    if isinstance(first, int | float) and 0 <= first < _LONGEST_WAIT_MS:
        answer.first_token_ns = start_ns + round(first * 1e6)


def _kept_counters(spec: object, reader: Reader, usage: dict[str, Any]) -> Reading:
    """Of AIPerf's own record, whose histogram leaves out what is zero; through the engine's adapter as well."""
    if reader.engine.name != "vllm":
        return Reading(None, _ONLY_RAW, spec)
    if not isinstance(spec, dict):
        return Reading(None, _NOT_KEPT, spec)
    if spec.get("engine") != reader.engine.name:
        return Reading(None, f"counters of another engine: {spec.get('engine')}", spec)
    counter = reader.answer().reader
    dense = spec | {"acceptance_histogram": _dense(spec.get("acceptance_histogram"))}
    counter.event({"choices": [], "usage": usage, "metrics": {"speculative_decoding": dense}})
    reading: Reading = counter.reading()
    return replace(reading, raw=spec)


def _dense(sparse: object) -> list[Any] | None:
    """A list up to the largest key; None where a key is no number of drafts."""
    if not isinstance(sparse, dict) or not all(key.isdecimal() and int(key) <= MOST_DRAFTS for key in sparse):
        return None
    by_accepted = {int(key): n for key, n in sparse.items()}
    return [by_accepted.get(j, 0) for j in range(max(by_accepted, default=0) + 1)]


def _differs(entry: Entry, counters: SpecCounters | None) -> bool:
    """Whether AIPerf read other counters than we do, out of the same raw answer."""
    spec = entry.source.get("spec_decode_acceptance") if entry.raw else None
    if counters is None or not isinstance(spec, dict):
        return False
    names = ("num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens")
    ours = (counters.steps, counters.accepted, counters.drafted)
    theirs = tuple(spec.get(name) for name in names)
    histogram = {str(j): n for j, n in enumerate(counters.histogram or ()) if n}
    kept = {key: n for key, n in table(spec.get("acceptance_histogram")).items() if n}
    return any(a != b for a, b in zip(ours, theirs, strict=True) if a is not None) or histogram != kept


def table(value: object) -> dict[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def tables(value: object) -> list[dict[str, Any]]:
    """The objects in a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _whole(metrics: Mapping[str, Any], name: str) -> int | None:
    value = table(metrics.get(name)).get("value")
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return whole if is_count(whole) else None
