"""What a wire format is given to put into its own words."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from spec_eval.emulator.answers import Answer
from spec_eval.emulator.asks import Ask
from spec_eval.emulator.totals import Totals

Json = dict[str, Any]


@dataclass
class Reply:
    """An ask with its answers; one for each prompt and each of n.

    counters, usage: false where a fault keeps them back. cached_tokens: of the prompt. first_s, whole_s: seconds to
    the first token and to the last one, filled in while it is sent.
    """

    ask: Ask
    id: str
    created: int
    model: str
    answers: tuple[Answer, ...]
    cached_tokens: int = 0
    counters: bool = True
    usage: bool = True
    first_s: float = 0.0
    whole_s: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        """Of all its prompts."""
        return sum(self.ask.prompt_tokens)

    @property
    def completion_tokens(self) -> int:
        """Of all its answers."""
        return sum(answer.tokens for answer in self.answers)

    @property
    def reasoning_tokens(self) -> int:
        """Of all its answers."""
        return sum(answer.thought for answer in self.answers)


def chunk(reply: Reply, choices: list[Json]) -> Json:
    """The keys that every streamed event has, in every format."""
    return {
        "id": reply.id,
        "object": "chat.completion.chunk" if reply.ask.chat else "text_completion",
        "created": reply.created,
        "model": reply.model,
        "choices": choices,
    }


@dataclass(frozen=True)
class Facts:
    """What the server says of itself. why: the stamp's text. detail: of vLLM's counters, none, summary or detailed."""

    model: str
    drafter: str
    k: int
    context: int
    created: int
    why: str
    detail: str = "summary"
    prompt_details: bool = False
    adaptive: bool = False


class Wire(Protocol):
    """An engine's format. `facts` is what it says of itself."""

    @property
    def facts(self) -> Facts:
        """As given."""

    @property
    def metrics_path(self) -> str:
        """Of its Prometheus text."""

    def opening(self, reply: Reply, index: int) -> Json | None:
        """The first chunk of an answer, before any token; none where the format has none."""

    def delta(self, reply: Reply, index: int, reasoning: str, content: str, *, last: bool) -> list[Json]:
        """The chunks of some new tokens."""

    def closing(self, reply: Reply) -> list[Json]:
        """Chunks behind the last answer."""

    def whole(self, reply: Reply) -> Json:
        """An answer that is not streamed."""

    def error(self, message: str, status: int, kind: str, param: str | None = None) -> Json:
        """An error's body."""

    def models(self) -> Json:
        """/v1/models."""

    def pages(self) -> dict[str, Json]:
        """Further pages by path."""

    def tokenized(self, tokens: int) -> Json:
        """/tokenize."""

    def metrics(self, totals: Totals) -> str:
        """Its Prometheus text."""


@dataclass
class Prometheus:
    """Text of counters and gauges, as prometheus_client writes it."""

    lines: list[str] = field(default_factory=list)

    def family(self, name: str, kind: str, text: str, samples: list[tuple[Json, float]]) -> None:
        """One family; samples are (labels, value)."""
        self.lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            shown = ",".join(f'{key}="{word}"' for key, word in labels.items())
            self.lines.append(f"{name}{{{shown}}} {float(value)}")

    def text(self, why: str) -> str:
        """All of it, the stamp first."""
        return "\n".join([f"# synthetic: {why}", *self.lines, ""])
