"""What is asked: conversations, and the set of them that one suite uses."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

Message = dict[str, str]


class PromptsChanged(ValueError):
    """The rows are not what was indexed."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A right answer, and the string that a response must begin with to count at all."""

    answer: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """One prompt: the sampling unit of every interval.

    turns: for each request, the messages that are added before it is sent. The model's own answers go in between.
    """

    prompt_id: str
    category: str
    subcategory: str | None
    turns: tuple[tuple[Message, ...], ...]
    reference: Reference | None = None

    @property
    def sha256(self) -> str:
        """Of everything that is sent and of how it is grouped."""
        text = json.dumps([self.prompt_id, self.category, self.subcategory, self.turns], ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def text_sha256(self) -> str:
        """Of what is sent alone: equal for two prompts that ask the same under different names."""
        return hashlib.sha256(json.dumps(self.turns, ensure_ascii=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """A conversation without its text."""

    prompt_id: str
    category: str
    turns: int
    sha256: str
    text_sha256: str


@dataclass(frozen=True)
class PromptSet:
    """The conversations of one data set, indexed in the order of its rows.

    source: where they came from, for people. revision: the hub's, or null. files: sha256 of each file read.
    sha256: over the whole index, before any selection; rows: how many there were. standin: whether the rows are made
    up in the shape of the real ones. notes: what a reader of the figures should know. graded: whether prompts carry
    references. preparation: who resolved the rows from which sources, where `prepare` wrote them.
    """

    source: str
    revision: str | None
    files: dict[str, str]
    sha256: str
    rows: int
    standin: bool
    entries: tuple[PromptEntry, ...]
    notes: tuple[str, ...]
    graded: bool
    reread: Callable[[], Iterable[Conversation]]
    preparation: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Conversation]:
        """Read the chosen conversations again, in order; PromptsChanged where the data changed since it was indexed."""
        chosen = {entry.prompt_id: entry for entry in self.entries}
        for conversation in self.reread():
            entry = chosen.get(conversation.prompt_id)
            if entry is None:
                continue
            if conversation.sha256 != entry.sha256:
                raise PromptsChanged(f"{self.source}: prompt {entry.prompt_id!r} changed while it was in use")
            del chosen[conversation.prompt_id]
            yield conversation
        if chosen:
            raise PromptsChanged(f"{self.source}: prompt {next(iter(chosen))!r} is gone since it was indexed")

    @property
    def duplicates(self) -> tuple[str, ...]:
        """Names of the chosen prompts that ask what one before them asks."""
        seen: set[str] = set()
        doubled = []
        for entry in self.entries:
            if entry.text_sha256 in seen:
                doubled.append(entry.prompt_id)
            seen.add(entry.text_sha256)
        return tuple(doubled)

    def selected(self, categories: Sequence[str], first: int | None) -> "PromptSet":
        """Those of `categories` (all where none is named), and of each the first so many."""
        seen: Counter[str] = Counter()
        kept = []
        for entry in self.entries:
            seen[entry.category] += 1
            if (not categories or entry.category in categories) and (first is None or seen[entry.category] <= first):
                kept.append(entry)
        return replace(self, entries=tuple(kept))

    def limited(self, conversations: int | None) -> "PromptSet":
        """At most that many conversations, dealt evenly over the categories; the same ones on every machine.

        Round by round each category gives its next row, so a limit keeps every category as long as it can.
        """
        if conversations is None or conversations >= len(self.entries):
            return self
        seen: dict[str, int] = {}
        order: dict[str, int] = {}
        ranked = []
        for row, entry in enumerate(self.entries):
            place = order.setdefault(entry.category, len(order))
            seen[entry.category] = seen.get(entry.category, 0) + 1
            ranked.append((seen[entry.category], place, row))
        keep = sorted(row for _, _, row in sorted(ranked)[:conversations])
        return replace(self, entries=tuple(self.entries[row] for row in keep))

    def only(self, prompt_ids: Iterable[str]) -> "PromptSet":
        """The conversations of these names, in row order."""
        wanted = set(prompt_ids)
        return replace(self, entries=tuple(entry for entry in self.entries if entry.prompt_id in wanted))


def index(conversations: Iterable[Conversation]) -> tuple[PromptEntry, ...]:
    """The entries of `conversations`, one pass, texts dropped."""
    return tuple(PromptEntry(c.prompt_id, c.category, len(c.turns), c.sha256, c.text_sha256) for c in conversations)


def index_sha256(entries: Iterable[PromptEntry]) -> str:
    """One hash for a whole set, order included."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(entry.sha256.encode())
    return digest.hexdigest()
