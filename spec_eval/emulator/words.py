"""The emulated model's tokens: 4,096 made-up words, and a count of tokens for prompts."""

import random
from collections.abc import Sequence
from itertools import product

_SYLLABLES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "za")
VOCABULARY = tuple(f" {''.join(parts)}" for parts in product(_SYLLABLES, repeat=3))
TOKEN_IDS = {word: number for number, word in enumerate(VOCABULARY)}
_LOOP = (" and", " again", " and", " again,")
# A chat template's own tokens: around all messages, and around each.
_AROUND, _PER_MESSAGE = 3, 4


def draw(identity: str, tokens: int, *, loop: bool = False) -> list[str]:
    """So many words, the same for the same identity; the first without a space before it."""
    if loop:
        words = [_LOOP[i % len(_LOOP)] for i in range(tokens)]
    else:
        words = random.Random(identity).choices(VOCABULARY, k=tokens)  # noqa: S311
    if words:
        words[0] = words[0].lstrip()
    return words


def count(text: str) -> int:
    """Tokens of a prompt's text: one for every four bytes of UTF-8, as English comes to."""
    return -(-len(text.encode()) // 4)


def count_chat(texts: Sequence[str]) -> int:
    """Tokens of a rendered chat."""
    return _AROUND + sum(_PER_MESSAGE + count(text) for text in texts)
