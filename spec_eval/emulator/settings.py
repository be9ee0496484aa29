"""All that an emulated server is told at its start."""

from dataclasses import dataclass, field
from typing import Literal

from spec_eval.emulator.casting import CONTEXT, Casting
from spec_eval.emulator.faults import FIGURE_FAULTS, Faults
from spec_eval.emulator.timing import Gpu

Like = Literal["vllm", "sglang", "trtllm"]
STEPS = 125
MODEL = "emulated-model"


@dataclass(frozen=True)
class Settings:
    """deck: deal hands, or draw at random. steps: of an answer on average, drawn at random. gpu: null for no waiting.

    detail: vLLM's --per-request-spec-decode-metrics. prompt_details: whether usage tells of cached tokens.
    """

    like: Like
    casting: Casting
    deck: bool = True
    seed: int = 0
    steps: int = STEPS
    faults: Faults = field(default_factory=Faults)
    gpu: Gpu | None = None
    model: str = MODEL
    context: int = CONTEXT
    detail: str = "summary"
    prompt_details: bool = False

    @property
    def why(self) -> str:
        """The stamp: why its figures are not real."""
        draw = "a deck" if self.deck else "random draws"
        changed = "".join(f", with fault {name}" for name in FIGURE_FAULTS if self.faults.named(name))
        why = f"an emulator of {self.like} played {self.casting.name} from {draw}, seed {self.seed}{changed}"
        # It goes into a header: plain ASCII.
        return f"{''.join(c if c.isascii() and c.isprintable() else '?' for c in why)}; no model ran"
