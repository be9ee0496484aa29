"""What the command line asks of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RunOptions:
    """What the command line says; null leaves it to the suite."""

    suite: str
    engine: str | None = None
    base_url: str | None = None
    serve: str | None = None
    hardware: str | None = None
    draft: str | None = None
    variant: str | None = None
    model: str | None = None
    drafter: str | None = None
    k: int | None = None
    limit: int | None = None
    repeats: int | None = None
    concurrency: tuple[int, ...] = ()
    seed: int | None = 0
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    thinking: bool | None = None
    data_dir: Path | None = None
    out: Path = Path("results")
    max_failures: float = 0.05
    known_answer: str | None = None
    adaptive: bool | None = None
    cold_cache: bool = True
    first_turn_only: bool = False
    reasoning_in_history: bool = False
    trust_remote_code: bool = False
    api_key_env: str | None = None
    duration: float | None = None
    warmup: float | None = None
    aiperf: Path | None = None
    any_aiperf: bool = False
    tokenizer: str | None = None
    command: tuple[str, ...] = ()

    def overrides(self) -> dict[str, Any]:
        """What differs from the suite file, by the option's name."""
        chosen = {
            "limit": self.limit,
            "repeats": self.repeats,
            "concurrency": list(self.concurrency) or None,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "thinking": self.thinking,
            "duration": self.duration,
            "warmup": self.warmup,
            "first_turn_only": self.first_turn_only or None,
            "reasoning_in_history": self.reasoning_in_history or None,
        }
        return {name: value for name, value in chosen.items() if value is not None}
