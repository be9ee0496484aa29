"""The one seam between an engine and the rest: what to send, and how to read what comes back."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.launch import Launcher
from spec_eval.records import SpecCounters, is_count


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters of one answer, or the reason why there are none; `raw` is the server's own words."""

    counters: SpecCounters | None
    reason: str | None
    raw: Any

    def without_positions(self) -> "Reading":
        """Of drafts that form a tree: how deep a step got is no position in a chain."""
        if self.counters is None:
            return self
        return replace(self, counters=replace(self.counters, histogram=None, per_step_accepted=None))


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A Prometheus family, without `_total`, that counts generated tokens.

    at_end: it moves when an answer ends, by all of its tokens, and not while they come.
    """

    family: str
    at_end: bool


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """Prometheus families, without `_total`, of prompt tokens: looked for in the prefix cache, and found there."""

    queries: str
    hits: str


VLLM_TOKENS = TokenCounter("vllm:generation_tokens", at_end=False)
VLLM_CACHE = CacheCounters("vllm:prefix_cache_queries", "vllm:prefix_cache_hits")
SGLANG_TOKENS = TokenCounter("sglang:generation_tokens", at_end=True)
LLAMACPP_TOKENS = TokenCounter("llamacpp:tokens_predicted", at_end=True)


class CounterReader(Protocol):
    """Reads the counters of one answer."""

    def event(self, event: dict[str, Any]) -> None:
        """Take one parsed stream event, in order; a whole response body counts as the only event."""

    def reading(self) -> Reading:
        """What was found, after the last event."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says of itself; null where it does not.

    speculative: whether it drafts at all. k: draft tokens a step as the server reports them, in drafts;
    k_flag: the server's own setting that it comes from. tree: whether it drafts trees, which have no chain positions.
    adaptive: whether it verifies only some of the drafts. prefix_caching: whether its prefix cache is on.
    chat_template_sha256: of the template text. synthetic: why its figures are not real, where it is an emulator; the
    doctor fills it in for every engine. details: whatever else is worth keeping, as sent.
    """

    models: tuple[str, ...]
    version: str | None = None
    context: int | None = None
    speculative: bool | None = None
    k: int | None = None
    k_flag: str | None = None
    tree: bool | None = None
    adaptive: bool | None = None
    draft_sampling: str | None = None
    prefix_caching: bool | None = None
    tensor_parallelism: int | None = None
    chat_template_sha256: str | None = None
    synthetic: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


def text_or_none(value: object) -> str | None:
    """What a server says, where it is text."""
    return value if isinstance(value, str) else None


def answer_or_none(value: object) -> bool | None:
    """What a server says, where it is true or false."""
    return value if isinstance(value, bool) else None


def count_or_none(value: object) -> int | None:
    """What a server says, where it is a count."""
    return value if isinstance(value, int) and is_count(value) else None


def table(value: object) -> dict[str, Any]:
    """What a server says, where it is an object; else an empty one."""
    return value if isinstance(value, dict) else {}


class Engine(Protocol):
    """What spec-eval knows of a serving engine; `Adapter` has the usual answers."""

    @property
    def name(self) -> str:
        """As declared by the user and written into every record."""

    @property
    def headers(self) -> dict[str, str]:
        """Request headers of its own."""

    @property
    def tells_k(self) -> bool:
        """Whether its answers name k; else the longest draft seen stands for an unknown k."""

    @property
    def by_request(self) -> bool:
        """Whether its answers carry counters; else the server's own totals over the run are all there is."""

    @property
    def nominal_drafted(self) -> bool:
        """Whether `drafted` is k for every step, whatever the server really drafted."""

    @property
    def cools_cache(self) -> bool:
        """Whether a request can keep old prefixes out of its answer."""

    @property
    def pads_cache_hits(self) -> bool:
        """Whether a prefix-cache hit that leaves one prompt token adds a step of k placeholder drafts."""

    @property
    def metrics_path(self) -> str:
        """Where its Prometheus text is."""

    @property
    def metrics_prefix(self) -> str:
        """Of its Prometheus families, as in "llamacpp:"."""

    @property
    def generated_tokens(self) -> tuple[TokenCounter, ...]:
        """Counters of generated tokens that its Prometheus text may have; the first that is there is read."""

    @property
    def prefix_cache(self) -> CacheCounters | None:
        """Counters of its prefix cache; None where none are known."""

    @property
    def no_totals(self) -> str | None:
        """Why its Prometheus text holds no totals to compare with; None where it does."""

    @property
    def remedy(self) -> str:
        """How to make the server hand over its counters."""

    @property
    def metrics_remedy(self) -> str:
        """How to make the server show its Prometheus counters."""

    @property
    def launcher(self) -> Launcher | None:
        """How spec-eval starts it; None where it does not."""

    def extra_body(self, *, cold_cache: bool = True) -> dict[str, Any]:
        """Fields of one request's body: they switch the counters on and, with `cold_cache`, old prefixes off."""

    def normalised(self, body: dict[str, Any]) -> dict[str, Any]:
        """A recorded body in the shape of a chat answer: as it is, or made from the engine's native one."""

    def reader(self, k: int | None, *, nominal_drafts: bool = False) -> CounterReader:
        """A reader for one answer.

        k: draft tokens a step where the user or the recipe says so. nominal_drafts: the server verifies fewer
        drafts than it counts (adaptive verification), so `drafted` is not to be kept.
        """

    @property
    def reserves_answer(self) -> bool:
        """Whether it refuses a prompt that leaves no room for max_tokens; else it cuts the answer short."""

    def drafts_alone(self, raw: object) -> tuple[int, int] | None:
        """(drafted, accepted) of an answer without counters whose `raw` tells these two: a rate, and no steps."""

    def count_prompt(self, endpoint: Endpoint, model: str, messages: list[dict[str, str]]) -> int | None:
        """Tokens of the rendered prompt by the server's own tokenizer; None where it does not offer that."""

    def identify(self, endpoint: Endpoint) -> Identity:
        """Ask the server; EnvironmentFault where it is not there or is not this engine."""


class Adapter:
    """The usual answers to `Engine`."""

    tells_k: bool = False
    by_request: bool = True
    nominal_drafted: bool = False
    cools_cache: bool = True
    pads_cache_hits: bool = False
    metrics_path: str = "/metrics"
    generated_tokens: tuple[TokenCounter, ...] = ()
    prefix_cache: CacheCounters | None = None
    no_totals: str | None = None
    reserves_answer: bool = True
    launcher: ClassVar[Launcher | None] = None

    @property
    def headers(self) -> dict[str, str]:
        """None."""
        return {}

    def normalised(self, body: dict[str, Any]) -> dict[str, Any]:
        """As it is."""
        return body

    def drafts_alone(self, raw: object) -> tuple[int, int] | None:  # noqa: ARG002 # nothing to look for
        """Never told."""
        return None

    def count_prompt(self, endpoint: Endpoint, model: str, messages: list[dict[str, str]]) -> int | None:  # noqa: ARG002 # nothing to ask
        """Not offered."""
        return None
