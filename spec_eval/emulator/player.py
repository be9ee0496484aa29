"""From an ask to its answers: casting, draw, faults of what is generated."""

import hashlib
import random
from collections.abc import Collection

from spec_eval.emulator import answers
from spec_eval.emulator.answers import Answer
from spec_eval.emulator.asks import Ask, identity
from spec_eval.emulator.draws import Deck, Row, random_steps
from spec_eval.emulator.settings import Settings

_BLOCK = 16


class Player:
    """Holds the decks and what the prefix cache knows."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        casting = settings.casting
        decks = casting.rows.values() if settings.deck else ()
        self._decks = {
            row.name: Deck(row, casting.hands[row.name], settings.seed) for row in decks if row.name in casting.hands
        }
        self._seen: set[str] = set()

    def play(self, ask: Ask, faults: Collection[str]) -> tuple[Answer, ...]:
        """One answer for each prompt and each of n; BadAsk where a prompt has no row."""
        return tuple(
            self._answer(ask, content, self._settings.casting.row(ask, index), choice, faults)
            for index, content in enumerate(ask.contents)
            for choice in range(ask.n)
        )

    def _answer(self, ask: Ask, content: str, row: Row, choice: int, faults: Collection[str]) -> Answer:
        who = identity(row.name, content)
        deck = self._decks.get(row.name)
        if deck is not None and choice == 0:
            steps = deck.hand(who)
        else:
            steps = random_steps(row, self._settings.seed, f"{who}|{choice}", ask.seed, self._settings.steps)
        verified = None
        if self._settings.faults.named("adaptive"):
            source = random.Random(f"verified|{self._settings.seed}|{who}")  # noqa: S311 # a game, no secret
            verified = source.choices(range(1, row.k + 1), k=len(steps))
        thinking = ask.chat and ask.thinking and "no-thinking" not in faults
        return answers.make(
            ask, steps, row.k, f"{who}|{choice}", verified=verified, loop="loop" in faults, thinking=thinking
        )

    def cached(self, ask: Ask) -> int:
        """Tokens of the prompt that an earlier request with the same salt left in the prefix cache: whole blocks."""
        if not ask.single:
            return 0
        key = hashlib.sha256(f"{ask.salt}|{ask.contents[0]}".encode()).hexdigest()
        if key in self._seen:
            return (ask.prompt_tokens[0] - 1) // _BLOCK * _BLOCK
        self._seen.add(key)
        return 0
