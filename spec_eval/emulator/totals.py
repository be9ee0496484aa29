"""The emulated server's own counters, one set for each engine behind it."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class EngineTotals:
    """Since its start. histogram: steps by accepted drafts; drafted as the host counts them."""

    histogram: Counter[int] = field(default_factory=Counter)
    drafted: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter)

    @property
    def steps(self) -> int:
        """S."""
        return sum(self.histogram.values())

    @property
    def accepted(self) -> int:
        """A."""
        return sum(j * n for j, n in self.histogram.items())

    def position(self, place: int) -> int:
        """Steps that accepted more than `place` drafts."""
        return sum(n for j, n in self.histogram.items() if j > place)


@dataclass
class Totals:
    """engines: how many stand behind the server."""

    engines: int
    k: int
    running: int = 0
    each: list[EngineTotals] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As after a restart."""
        self.each = [EngineTotals() for _ in range(self.engines)]

    def engine(self, number: int) -> EngineTotals:
        """The one that takes the request of that number."""
        return self.each[number % self.engines]
