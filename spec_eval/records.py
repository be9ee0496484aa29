"""The record of one request, the counters in it, and the identities that they must satisfy.

`docs/design/metrics.md` defines every figure named here. Integers only: a ratio is never stored.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from spec_eval.jsontext import is_version

SCHEMA_VERSION = 1
OVERSIZED = "oversized"
# No drafter proposes more in one step; a server that says so is not to be believed, nor tabled position by position.
MOST_DRAFTS = 1024

Status = Literal["ok", "failed", "not_sent"]
Source = Literal["response", "timings", "inferred"]
# What is measured once: (cell_id, prompt_id, turn, repeat).
Unit = tuple[str, str, int, int]


_TEXTS = (
    "cell_id",
    "dataset",
    "prompt_id",
    "category",
    "failure_reason",
    "finish_reason",
    "no_counters_reason",
    "text",
)
_COUNTS = (
    *("turn", "repeat", "attempt", "seed_sent", "start_ns", "first_token_ns", "end_ns"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"),
)
# What places a request: without it the record stands for no planned one.
_ALWAYS = ("cell_id", "dataset", "prompt_id", "category", "turn", "repeat", "attempt")


@dataclass(frozen=True, slots=True)
class SpecCounters:
    """Speculative-decoding counters of one request.

    steps: S, verification steps that carried at least one draft token.
    accepted: A, draft tokens accepted; the bonus token is never counted.
    drafted: D, draft tokens proposed in those steps; null where the engine only knows a nominal figure.
    histogram: h[0..k], h[j] = steps that accepted exactly j draft tokens; null where not reported.
    k: the largest number of draft tokens in a step.
    per_step_accepted, per_step_drafted: one integer a step, where the engine hands them over.
    source: an object in the response, timings on its chunks, or inferred from an average.
    exact: false where two steps may have been read as one.
    """

    steps: int
    accepted: int
    drafted: int | None
    histogram: tuple[int, ...] | None
    k: int
    per_step_accepted: tuple[int, ...] | None = None
    per_step_drafted: tuple[int, ...] | None = None
    source: Source = "response"
    exact: bool = True


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request, that is one turn of one conversation in one repeat of one cell.

    Times are nanoseconds since the epoch. Token counts are the server's own. `counters` is null with
    `no_counters_reason` where the server handed none over; `raw_counters` is what it sent, as it sent it.
    """

    cell_id: str
    dataset: str
    prompt_id: str
    category: str
    subcategory: str | None
    turn: int
    repeat: int
    seed_sent: int | None
    attempt: int
    status: Status
    failure_reason: str | None
    finish_reason: str | None
    start_ns: int | None
    first_token_ns: int | None
    end_ns: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    text: str | None
    reasoning_text: str | None
    counters: SpecCounters | None
    no_counters_reason: str | None
    raw_counters: Any = None
    schema_version: int = SCHEMA_VERSION

    @property
    def unit(self) -> Unit:
        """What is measured once."""
        return self.cell_id, self.prompt_id, self.turn, self.repeat

    @property
    def settled(self) -> bool:
        """Whether asking again would be pointless: answered, or too long for the server."""
        oversized = (self.failure_reason or "").startswith(OVERSIZED)
        return self.status == "ok" or (self.status == "not_sent" and oversized)

    @property
    def reasoned(self) -> bool:
        """Whether the answer carries reasoning, as text or as a count."""
        return bool(self.reasoning_text or self.reasoning_tokens)

    def to_json(self) -> dict[str, Any]:
        """Plain types, `schema_version` first."""
        row = asdict(self)
        return {"schema_version": row.pop("schema_version"), **row}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "RequestRecord":
        """Inverse of `to_json`; ValueError names what does not fit."""
        version = row.get("schema_version")
        if not is_version(version, SCHEMA_VERSION):
            raise ValueError(f"record schema version {version!r}, this spec-eval reads {SCHEMA_VERSION}")
        names = {field.name for field in fields(cls)}
        if missing := names - row.keys():
            raise ValueError(f"record without {', '.join(sorted(missing))}")
        for name in _TEXTS:
            if not isinstance(row[name], str | None):
                raise ValueError(f"record whose {name} is {type(row[name]).__name__}, not text")
        if unnamed := [name for name in _ALWAYS if row[name] is None]:
            raise ValueError(f"record whose {unnamed[0]} is null")
        for name in _COUNTS:
            if row[name] is not None and not is_count(row[name]):
                raise ValueError(f"record whose {name} is {row[name]!r}, not a count")
        if row["status"] not in get_args(Status):
            raise ValueError(f"record with status {row['status']!r}")
        values = {name: row[name] for name in names}
        if values["counters"] is not None:
            values["counters"] = _counters_from_json(values["counters"])
        return cls(**values)


def _counters_from_json(row: Mapping[str, Any]) -> SpecCounters:
    try:
        values = dict(row)
        for name in ("histogram", "per_step_accepted", "per_step_drafted"):
            if values.get(name) is not None:
                values[name] = tuple(values[name])
        return SpecCounters(**values)
    except TypeError as error:
        raise ValueError(f"counters: {error}") from error


def is_count(value: object) -> bool:
    """A non-negative integer of at most 63 bits; bool is not one, nor is 3.0 or NaN."""
    return type(value) is int and 0 <= value < 2**63


def breach(counters: SpecCounters, completion_tokens: int | None) -> str | None:
    """Name of the first identity that the counters break, or None.

    A request with a breach is excluded from every pooled figure and counted under this name.
    """
    c = counters
    sequences: Sequence[tuple[int, ...] | None] = (c.histogram, c.per_step_accepted, c.per_step_drafted)
    scalars = [c.steps, c.accepted, c.k, *([] if c.drafted is None else [c.drafted])]
    if not all(map(is_count, scalars)) or not all(is_count(x) for seq in sequences if seq is not None for x in seq):
        return "not an integer count"
    checks = (
        (c.k <= MOST_DRAFTS, f"k > {MOST_DRAFTS}"),
        (c.exact, "steps may be merged"),
        (c.accepted <= c.k * c.steps, "accepted > k x steps"),
        (c.drafted is None or c.accepted <= c.drafted, "accepted > drafted"),
        (c.drafted is None or c.steps <= c.drafted, "steps > drafted"),
        (c.drafted is None or c.drafted <= c.k * c.steps, "drafted > k x steps"),
        (completion_tokens is None or c.steps <= completion_tokens, "steps > completion tokens"),
    )
    for holds, name in checks:
        if not holds:
            return name
    return _histogram_breach(c) or _per_step_breach(c)


def _histogram_breach(c: SpecCounters) -> str | None:
    if c.histogram is None:
        return None
    if len(c.histogram) != c.k + 1:
        return "histogram is not k + 1 long"
    if sum(c.histogram) != c.steps:
        return "histogram sum != steps"
    if sum(j * n for j, n in enumerate(c.histogram)) != c.accepted:
        return "histogram weight != accepted"
    return None


def _per_step_breach(c: SpecCounters) -> str | None:
    accepted, drafted = c.per_step_accepted, c.per_step_drafted
    if accepted is not None and (len(accepted) != c.steps or sum(accepted) != c.accepted):
        return "per-step accepted does not add up"
    if drafted is not None and (len(drafted) != c.steps or (c.drafted is not None and sum(drafted) != c.drafted)):
        return "per-step drafted does not add up"
    if drafted is not None and any(not 1 <= d <= c.k for d in drafted):
        return "a step drafted more than k"
    if accepted is not None and any(a > c.k for a in accepted):
        return "a step accepted more than k"
    if accepted is not None and c.histogram is not None and _tally(accepted, c.k) != c.histogram:
        return "per-step accepted does not give the histogram"
    if accepted is not None and drafted is not None and any(a > d for a, d in zip(accepted, drafted, strict=True)):
        return "a step accepted more than it drafted"
    return None


def _tally(accepted: Sequence[int], k: int) -> tuple[int, ...]:
    counts = Counter(accepted)
    return tuple(counts[j] for j in range(k + 1))


def padded_histogram(histogram: Sequence[object], k: int) -> tuple[int, ...] | None:
    """`histogram` at length k + 1: zeros appended, a tail of zeros past k cut; None where that tail is not zero.

    Values are taken as they are; `breach` judges them.
    """
    if any(histogram[k + 1 :]):
        return None
    head = tuple(histogram[: k + 1])
    if k > MOST_DRAFTS:
        return head  # type: ignore[return-value] # not worth the zeros: `breach` refuses such a k
    return head + (0,) * (k + 1 - len(head))  # type: ignore[return-value]  # judged by `breach`
