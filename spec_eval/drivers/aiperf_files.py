"""What AIPerf 0.13 leaves of one cell: its figures, what became of the requests, and what the server counted."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from spec_eval import jsontext
from spec_eval.drivers.aiperf import VERSION, Ended
from spec_eval.engines import Engine
from spec_eval.engines.base import CacheCounters, TokenCounter
from spec_eval.records import is_count
from spec_eval.store import windows
from spec_eval.store.windows import Dropped, Outcome, PrefixCache, Requests, ServerWindow

SUMMARY, MANIFEST, SCRAPES, LOG = (
    "profile_export_aiperf.json",
    "phase_manifest.json",
    "server_metrics_export.jsonl",
    "logs/aiperf.log",
)
X, Y = "output_token_throughput_per_user", "output_token_throughput"
# Kept in our store, each whole as parsed; the rest stays in AIPerf's own file.
KEPT = (
    *(X, Y, "request_throughput", "request_latency", "time_to_first_token", "inter_token_latency"),
    *("output_sequence_length", "input_sequence_length", "request_count", "total_osl", "benchmark_duration"),
    "effective_concurrency",
)
# `completed` counts answers and errors alike; thousands are parted by commas.
_COMPLETE = re.compile(
    r"Phase profiling \(profiling\) complete \| completed=([\d,]+), cancelled=([\d,]+), errors=([\d,]+)"
)
_SENT = re.compile(r"Phase profiling \(profiling\) sending complete \| sent=([\d,]+)")
_ERROR = re.compile(r" - (?:ERROR|CRITICAL) - (.*)")
# AIPerf reads the counters three times a second. Readings over less than this share of the window are not of it.
_COVERED = 0.5
# By its labels, as text: what one series counted.
_Series = dict[str, float]


@dataclass(frozen=True)
class Cell:
    """As the files say. start_ns, end_ns: of the window; null where AIPerf came to no end."""

    outcome: Outcome
    detail: str | None
    version: str | None
    start_ns: int | None
    end_ns: int | None
    native: dict[str, dict[str, Any]]
    requests: Requests
    server_window: ServerWindow
    prefix_cache: PrefixCache | None
    dropped: Dropped | None


def read(folder: Path, ended: Ended, engine: Engine, *, any_version: bool) -> Cell:
    """Of a cell that ended, of a server of this engine."""
    summary = _object(folder / SUMMARY)
    log = _text(folder / LOG)
    requests = _requests(log)
    version = summary.get("aiperf_version")
    version = version if isinstance(version, str) else None
    native = {name: _known(summary[name]) for name in KEPT if isinstance(summary.get(name), dict)}
    outcome, detail = _outcome(ended, summary, native, requests, log, any_version=any_version)
    phase = _window(folder / MANIFEST)
    start, end = phase or (None, None)
    cache = engine.prefix_cache
    families = [one.family for one in engine.generated_tokens] + ([cache.queries, cache.hits] if cache else [])
    inside = [one for one in _readings(folder / SCRAPES, families) if phase and phase[0] <= one.at <= phase[1]]
    counted = _server_window(inside, phase, engine.generated_tokens)
    figure = windows.figure(native.get(Y, {}).get("avg")) if outcome == windows.OK else None
    return Cell(
        outcome=outcome,
        detail=detail,
        version=version,
        start_ns=start,
        end_ns=end,
        native=native if outcome == windows.OK else {},
        requests=requests,
        server_window=counted,
        prefix_cache=_prefix_cache(inside, cache) if cache else None,
        dropped=_dropped(requests, counted, figure),
    )


def _outcome(
    ended: Ended,
    summary: dict[str, Any],
    native: dict[str, dict[str, Any]],
    requests: Requests,
    log: str,
    *,
    any_version: bool,
) -> tuple[Outcome, str | None]:
    if ended.timed_out:
        return windows.TIMED_OUT, f"not at its end after {ended.limit_s:g} s"
    if ended.code < 0:
        return windows.KILLED, f"by signal {-ended.code}"
    version = summary.get("aiperf_version")
    if isinstance(version, str) and not f"{version}.".startswith(f"{VERSION}.") and not any_version:
        return windows.OTHER_VERSION, f"AIPerf {version}, whose files are not read"
    if summary.get("was_cancelled") or summary.get("is_complete") is False:
        return windows.KILLED, "AIPerf says that it was cut short"
    lacking = [name for name in (X, Y) if windows.figure(native.get(name, {}).get("avg")) is None]
    if ended.code == 0 and not lacking:
        return windows.OK, None
    if requests.completed == 0:
        if requests.failed:
            return windows.ALL_FAILED, f"{requests.failed} requests"
        return windows.ZERO, f"{requests.dropped or 0} requests were cut off by the end of the window"
    errors = _ERROR.findall(log)
    said = [errors[-1][:200]] if errors else []
    if summary and lacking:
        said.append(f"no {' and no '.join(lacking)}")
    return windows.FAILED, "; ".join([*said, f"exit code {ended.code}"])


def _requests(log: str) -> Requests:
    """Only the log tells what was sent and what was dropped.

    What was sent and never came back is in none of AIPerf's figures either, whatever it calls it: dropped.
    """
    done, sent = _COMPLETE.search(log), _SENT.search(log)
    if done is None:
        return Requests(dispatched=_whole(sent[1]) if sent else None)
    finished, cancelled, errors = map(_whole, done.groups())
    dispatched = max(finished + cancelled, _whole(sent[1]) if sent else 0)
    if errors > finished:
        return Requests(dispatched=dispatched)
    return Requests(dispatched=dispatched, completed=finished - errors, failed=errors, dropped=dispatched - finished)


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


def _window(path: Path) -> tuple[int, int] | None:
    phases = _object(path).get("phases")
    for phase in phases if isinstance(phases, list) else ():
        if isinstance(phase, dict) and phase.get("phase_kind") == "profiling":
            start, end = phase.get("start_ns"), phase.get("end_ns")
            if isinstance(start, int) and isinstance(end, int) and is_count(start) and is_count(end) and start < end:
                return start, end
    return None


def _server_window(
    inside: "Sequence[_Scrape]", phase: tuple[int, int] | None, counters: Sequence[TokenCounter]
) -> ServerWindow:
    if phase is None:
        return ServerWindow(reason="AIPerf noted no window")
    if not counters:
        return ServerWindow(reason="this engine counts no generated tokens")
    if not inside:
        return ServerWindow(reason="no reading of the server's counters inside the window")
    for counter in counters:
        if values := _values(inside, counter.family):
            found = _counted(values, (phase[1] - phase[0]) / 1e9)
            return found.model_copy(update={"counter": counter.family, "at_end": counter.at_end})
    return ServerWindow(reason=f"the server shows no {' or '.join(one.family for one in counters)}")


def _values(inside: "Sequence[_Scrape]", family: str) -> list[tuple[int, _Series]]:
    """(time, series) in order. The same counters may be shown at two addresses of one server: those of one are read."""
    shown = [one for one in inside if family in one.families]
    values = [(one.at, one.families[family]) for one in shown if one.address == shown[0].address]
    return sorted(values, key=lambda value: value[0])


def _went_down(values: Sequence[tuple[int, _Series]]) -> bool:
    return any(after.get(name, 0) < n for (_, before), (_, after) in pairwise(values) for name, n in before.items())


def _prefix_cache(inside: "Sequence[_Scrape]", cache: CacheCounters) -> PrefixCache | None:
    """What moved from the first reading to the last; null where that is not known, or nothing was looked for."""
    moved = []
    for family in (cache.queries, cache.hits):
        values = _values(inside, family)
        if len(values) < 2 or _went_down(values):
            return None
        moved.append(round(sum(values[-1][1].values()) - sum(values[0][1].values())))
    queries, hits = moved
    return PrefixCache(queries=queries, hits=hits) if queries >= hits and queries else None


def _counted(values: Sequence[tuple[int, _Series]], window_s: float) -> ServerWindow:
    """From the first reading to the last, series by series: the sum hides that one of them began anew."""
    (first_ns, first), (last_ns, last) = values[0], values[-1]
    seconds = (last_ns - first_ns) / 1e9
    if not seconds:
        return ServerWindow(reason="a single reading of the server's counters inside the window")
    if _went_down(values):
        return ServerWindow(reason="a counter went down: the server was started anew")
    if seconds < _COVERED * window_s:
        return ServerWindow(reason=f"readings over {seconds:.1f} s only of a window of {window_s:.1f} s")
    moved = {name: n - first.get(name, 0) for name, n in last.items() if n > first.get(name, 0)}
    models = sorted({str(json.loads(name).get("model_name")) for name in moved})
    if len(models) > 1:
        return ServerWindow(reason=f"the server counted for several models: {', '.join(models)}")
    tokens = float(sum(moved.values()))
    return ServerWindow(tokens_per_second=tokens / seconds, tokens=tokens, seconds=seconds)


@dataclass(frozen=True)
class _Scrape:
    """One reading of the server's metrics, of the families that are asked for."""

    at: int
    address: str
    families: dict[str, _Series]


def _readings(path: Path, names: Sequence[str]) -> Iterator[_Scrape]:
    """Of every whole line; a family that is empty, or holds what is no count, is left out."""
    for line in jsontext.read_lines(path) if path.is_file() else ():
        if isinstance(line, jsontext.Damaged):
            continue
        at, metrics = line.value.get("timestamp_ns"), line.value.get("metrics")
        if isinstance(at, int) and is_count(at) and isinstance(metrics, dict):
            named = {family: _series(metrics.get(family)) for family in names}
            families = {family: series for family, series in named.items() if series}
            yield _Scrape(at, str(line.value.get("endpoint_url")), families)


def _series(family: object) -> _Series:
    found: _Series = {}
    for one in family if isinstance(family, list) else ():
        value = windows.figure(one.get("value")) if isinstance(one, dict) else None
        if value is None:
            return {}
        labels = one.get("labels")
        name = json.dumps(labels if isinstance(labels, dict) else {}, sort_keys=True)
        found[name] = found.get(name, 0) + value
    return found


def _dropped(requests: Requests, counted: ServerWindow, native: float | None) -> Dropped | None:
    """Of the tokens where the server counts them as they come, else of the requests.

    tokens: 1 - AIPerf's throughput / the server's, both over the window. Where the server's is the smaller one, which
    the edges of a short window may do, tokens tell nothing.
    """
    if requests.dropped is None or not requests.dispatched:
        return None
    if requests.dropped == 0:
        return Dropped(share=0.0, basis="requests")
    rate = counted.tokens_per_second
    if rate is not None and not counted.at_end and native is not None and rate > native:
        return Dropped(share=1 - native / rate, basis="tokens")
    return Dropped(share=requests.dropped / requests.dispatched, basis="requests")


def _known(value: Any) -> Any:
    """As parsed, with null for what is no number: our files hold no NaN."""
    if isinstance(value, dict):
        return {name: _known(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_known(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _object(path: Path) -> dict[str, Any]:
    """Empty where there is none, or half of one."""
    try:
        found = jsontext.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return ""
