"""Whether a prompt fits into the server's context, asked of the server's own tokenizer before anything is sent."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from spec_eval.engines import Engine
from spec_eval.engines.endpoint import Endpoint
from spec_eval.prompts import Message

# A chat template adds a few tokens a message and some more around all of them.
_PER_MESSAGE = 16
_AROUND = 256


@dataclass(frozen=True, slots=True)
class Room:
    """context: tokens of prompt and answer together, or null where the server does not tell."""

    engine: Engine
    endpoint: Endpoint
    model: str
    context: int | None
    max_tokens: int

    @property
    def limit(self) -> int | None:
        """The longest prompt in tokens that the server takes."""
        if self.context is None:
            return None
        return self.context - (self.max_tokens if self.engine.reserves_answer else 1)

    async def too_long(self, messages: Sequence[Message]) -> int | None:
        """Tokens of a prompt that does not fit; None where it fits, or where nobody can tell before sending it.

        A token stands for at least one byte, so most prompts are settled without asking.
        """
        limit = self.limit
        if limit is None:
            return None
        most = sum(len(m["content"].encode()) + _PER_MESSAGE for m in messages) + _AROUND
        if most <= limit:
            return None
        tokens = await asyncio.to_thread(self.engine.count_prompt, self.endpoint, self.model, list(messages))
        return tokens if tokens is not None and tokens > limit else None
