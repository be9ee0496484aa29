"""What is played: how many drafts each step accepts, drawn at random or dealt from a deck."""

import hashlib
import random
from dataclasses import dataclass
from itertools import accumulate, pairwise

from spec_eval.errors import UsageError
from spec_eval.profiles import Profile

# Steps of a deck. Cards print percents with two decimals, so that many steps can hold each share as a whole number.
DECK = 10_000


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a card. histogram: h[0..k], of DECK steps those that accept exactly j drafts."""

    name: str
    histogram: tuple[int, ...]

    @property
    def k(self) -> int:
        """Draft tokens a step."""
        return len(self.histogram) - 1

    @classmethod
    def of(cls, profile: Profile) -> "Row":
        """h[j] = DECK · (position j − position j + 1), whole numbers; position 0 is 1, position k + 1 is 0.

        A file's shares with more than four decimals are rounded to four.
        """
        reaching = [DECK, *(round(p * DECK) for p in profile.positions), 0]
        return cls(profile.name, tuple(a - b for a, b in pairwise(reaching)))


class Deck:
    """DECK steps of a row, shuffled and split into hands as evenly as can be; dealt in order, for ever."""

    def __init__(self, row: Row, hands: int, seed: int) -> None:
        if not 1 <= hands <= DECK:
            raise UsageError(f"{row.name}: {hands} hands of {DECK} steps; give from 1 to {DECK}")
        cards = [j for j, n in enumerate(row.histogram) for _ in range(n)]
        random.Random(f"{seed}|{row.name}").shuffle(cards)  # noqa: S311 # a game, no secret
        edges = [i * DECK // hands for i in range(hands + 1)]
        self.hands = tuple(tuple(cards[a:b]) for a, b in pairwise(edges))
        self._dealt: dict[str, int] = {}

    def hand(self, identity: str) -> tuple[int, ...]:
        """Accepted drafts of each step; the same for the same identity, the next hand for a new one.

        Hands go round: any run of as many new identities as there are hands gets the whole deck.
        """
        number = self._dealt.setdefault(identity, len(self._dealt))
        return self.hands[number % len(self.hands)]


def random_steps(row: Row, seed: int, content: str, sent_seed: int | None, steps: int) -> tuple[int, ...]:
    """Steps of one answer by (seed, content, sent seed) alone, so that the order of arrival does not matter.

    Between half as many and one and a half times `steps`.
    """
    source = random.Random(hashlib.sha256(f"{seed}|{content}|{sent_seed}".encode()).digest())  # noqa: S311
    number = source.randint(steps - steps // 2, steps + steps // 2)
    return tuple(source.choices(range(row.k + 1), cum_weights=list(accumulate(row.histogram)), k=number))
