"""Faults, by switch or by request header."""

from collections.abc import Iterable
from dataclasses import dataclass

from spec_eval import toml
from spec_eval.errors import UsageError

HEADER = "x-spec-eval-fault"
# What each does; docs/design/emulator.md tells what a user sees of it.
REQUEST_FAULTS = {
    "429": "http 429 with Retry-After",
    "500": "http 500",
    "refuse": "the server stops listening for good, and cuts this connection",
    "hang": "no answer, for as long as the client waits",
    "cut": "the stream breaks off in the middle of an event",
    "error-body": "http 200 with an error as its body",
    "html": "http 200 with a web page",
    "null-counters": "an answer without its counters",
    "no-usage": "an answer without usage",
    "counter-reset": "the totals of /metrics begin anew behind this answer",
    "loop": "text that repeats until the token limit, all drafts accepted",
    "no-thinking": "no reasoning, though it was asked for",
}
SERVER_FAULTS = {
    "slow-start": "nothing listens for the first seconds (5, or as `seconds=` says)",
    "two-engines": "/metrics has two engines, requests go to them by turns",
    "adaptive": "fewer drafts are verified than the server counts",
    "wrong-model": "another model is served than was asked for at the start",
}
# Those that change acceptance itself; the stamp names them.
FIGURE_FAULTS = ("loop", "adaptive")
OTHER_MODEL = "another-model"


@dataclass(frozen=True, slots=True)
class Fault:
    """every: requests N, 2N, …; first: requests 1 to N; neither: all. seconds: of waiting, where it has some."""

    name: str
    every: int | None = None
    first: int | None = None
    seconds: float | None = None

    def hits(self, number: int) -> bool:
        """Whether it strikes the request of that number; they count from 1, a probe included."""
        if self.every is not None:
            return number % self.every == 0
        return self.first is None or number <= self.first


def parse(text: str) -> Fault:
    """NAME, NAME:every=N, NAME:first=N, NAME:seconds=S."""
    name, *parts = text.split(":")
    known = {**REQUEST_FAULTS, **SERVER_FAULTS}
    if name not in known:
        raise UsageError(f"--fault {text}: no fault {name!r}{toml.nearest(name, known)}")
    values: dict[str, float] = {}
    for part in parts:
        key, _, value = part.partition("=")
        try:
            values[key] = float(value) if key == "seconds" else int(value)
        except ValueError:
            values[key] = 0
        if key not in ("every", "first", "seconds") or values[key] <= 0:
            raise UsageError(f"--fault {text}: {part!r} is not every=N, first=N or seconds=S, above 0")
    if name in SERVER_FAULTS and values.keys() - {"seconds"}:
        raise UsageError(f"--fault {text}: concerns the whole server; drop {parts[0]!r}")
    every, first = values.get("every"), values.get("first")
    return Fault(
        name, None if every is None else int(every), None if first is None else int(first), values.get("seconds")
    )


@dataclass(frozen=True)
class Faults:
    """Those of a server."""

    faults: tuple[Fault, ...] = ()

    def named(self, name: str) -> Fault | None:
        """The fault of that name, where it is on."""
        return next((fault for fault in self.faults if fault.name == name), None)

    def of(self, number: int, header: str | None) -> dict[str, Fault]:
        """Those that strike one request, by name; UsageError for a header that names none."""
        struck = {f.name: f for f in self.faults if f.name in REQUEST_FAULTS and f.hits(number)}
        for name in _names(header):
            if name not in REQUEST_FAULTS:
                raise UsageError(f"{HEADER}: no fault {name!r} of a request{toml.nearest(name, REQUEST_FAULTS)}")
            struck[name] = Fault(name)
        return struck


def _names(header: str | None) -> Iterable[str]:
    return (part.strip() for part in (header or "").split(",") if part.strip())
