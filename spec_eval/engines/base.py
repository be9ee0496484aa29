"""The one seam between an engine and the rest: what to send, and how to read what comes back."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from spec_eval.engines.endpoint import Endpoint
from spec_eval.records import SpecCounters


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters of one answer, or the reason why there are none; `raw` is the server's own words."""

    counters: SpecCounters | None
    reason: str | None
    raw: Any


class CounterReader(Protocol):
    """Reads the counters of one answer."""

    def event(self, event: dict[str, Any]) -> None:
        """Take one parsed stream event, in order; a whole response body counts as the only event."""

    def reading(self) -> Reading:
        """What was found, after the last event."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says of itself; null where it does not.

    speculative: whether it drafts at all. k: draft tokens a step as the server reports them.
    chat_template_sha256: of the template text. details: whatever else is worth keeping, as sent.
    """

    models: tuple[str, ...]
    version: str | None = None
    context: int | None = None
    speculative: bool | None = None
    k: int | None = None
    chat_template_sha256: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """What spec-eval knows of a serving engine."""

    @property
    def name(self) -> str:
        """As declared by the user and written into every record."""

    @property
    def metrics_prefix(self) -> str:
        """Of its Prometheus families, as in "llamacpp:"."""

    @property
    def remedy(self) -> str:
        """How to make the server hand over its counters."""

    @property
    def metrics_remedy(self) -> str:
        """How to make the server show its Prometheus counters."""

    @property
    def prefix_caching(self) -> bool | None:
        """Whether answers may come from a warm prefix cache, as `extra_body` leaves it."""

    def extra_body(self) -> dict[str, Any]:
        """Fields of the request body that switch the counters on."""

    def reader(self, k: int | None) -> CounterReader:
        """A reader for one answer; k is the draft tokens a step where the user or the recipe says so."""

    def identify(self, endpoint: Endpoint) -> Identity:
        """Ask the server; EnvironmentFault where it is not there or is not this engine."""
