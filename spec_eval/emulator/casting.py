"""Which line of a card a request plays."""

import functools
import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spec_eval import doctor, examination, profiles, suite, toml
from spec_eval.emulator import words
from spec_eval.emulator.asks import Ask, BadAsk
from spec_eval.emulator.draws import Row
from spec_eval.errors import UsageError
from spec_eval.prompts import Conversation
from spec_eval.run import RunOptions, cells
from spec_eval.store import Cell
from spec_eval.suite import CellSpec, CompoundSuite

HANDS = 80
CONTEXT = 1_048_576


@dataclass(frozen=True)
class Bins:
    """Rows by the prompt's tokens, edges included."""

    name: str
    bins: tuple[tuple[int, int, Row], ...]

    def row(self, tokens: int) -> Row | None:
        """That of a prompt of so many tokens."""
        return next((row for low, high, row in self.bins if low <= tokens <= high), None)


Part = Row | Bins
Key = tuple[str, float]


@dataclass(frozen=True)
class Casting:
    """hands: of each row's deck, by its name. part: of every prompt; or null, and `parts` knows them by text."""

    name: str
    hands: Mapping[str, int]
    part: Part | None = None
    parts: Mapping[Key, Part] = field(default_factory=dict)

    @property
    def rows(self) -> dict[str, Row]:
        """All rows, by name."""
        found: dict[str, Row] = {}
        for part in [self.part] if self.part is not None else self.parts.values():
            for row in _rows(part):
                found[row.name] = row
        return found

    @property
    def k(self) -> int:
        """The most draft tokens of a step."""
        return max(row.k for row in self.rows.values())

    def row(self, ask: Ask, index: int) -> Row:
        """Of one prompt of a request; BadAsk where it belongs to none."""
        part = self.part if self.part is not None else self._part(ask)
        tokens = ask.prompt_tokens[index]
        row = part.row(tokens) if isinstance(part, Bins) else part
        if row is None:
            raise BadAsk(f"emulator: {part.name} has no row for a prompt of {tokens} tokens")
        return row

    def _part(self, ask: Ask) -> Part:
        if ask.first_user in (doctor.PROMPT, examination.PROMPT):
            return next(iter(self.parts.values()))
        digest = _digest(ask.first_user)
        part = self.parts.get((digest, ask.temperature))
        if part is None:
            known = sorted(temperature for text, temperature in self.parts if text == digest)
            at = f"at temperature {ask.temperature:g}, only at {known}" if known else "at any temperature"
            raise BadAsk(f"emulator: {self.name} has no such first user text {at}; start it with the suite that is run")
        return part


def cast(
    profile: str,
    *,
    suite_name: str | None = None,
    data_dir: Path | None = None,
    limit: int | None = None,
    hands: int | None = None,
    context: int = CONTEXT,
    links: Mapping[str, str] | None = None,
) -> Casting:
    """The rows of `profile`: one row or file, a table of bins, or a whole card with the suite that asks for it.

    links: cell ids and what they play, over the suite's own. hands: of every deck; else a suite's requests, or 80.
    """
    if suite_name is not None:
        return _card(profile, suite_name, data_dir, limit, hands, context, links or {})
    if links or data_dir is not None or limit is not None:
        raise UsageError("--cast, --data-dir and --limit belong to a whole card; give --suite too")
    part = _of_name(profile)
    return Casting(part.name, {row.name: hands or HANDS for row in _rows(part)}, part)


def _of_name(name: str) -> Part:
    """A row, a file, or a table whose rows are bins of prompt lengths."""
    if name.endswith(".toml") or name.count(":") == 2:
        return Row.of(profiles.find(name))
    table = profiles.table(name)
    bins = tuple((*edges, Row.of(one)) for label, one in table.items() if (edges := _edges(label)))
    if not bins or len(bins) != len(table):
        raise UsageError(
            f"--profile {name}: has a row for each kind of prompt; give one of them, as "
            f"{next(iter(table.values())).name}, or --suite with the suite that asks for them"
        )
    return Bins(name, bins)


def _edges(label: str) -> tuple[int, int] | None:
    low, _, high = label.partition("-")
    return (int(low), int(high)) if low.isdigit() and high.isdigit() else None


def _card(
    card: str,
    suite_name: str,
    data_dir: Path | None,
    limit: int | None,
    hands: int | None,
    context: int,
    links: Mapping[str, str],
) -> Casting:
    file = suite.find(suite_name)
    if not isinstance(file.suite, CompoundSuite):
        raise UsageError(f"--suite {suite_name}: has no cells; give --profile CARD:TABLE:ROW without a suite instead")
    specs = file.suite.cells
    if unknown := links.keys() - {spec.id for spec in specs}:
        name = min(unknown)
        raise UsageError(f"--cast {name}: no cell of {suite_name}{toml.nearest(name, [spec.id for spec in specs])}")
    # Without levels of concurrency there is one cell for each of the suite's, in order.
    laid = cells.lay_out(file, RunOptions(suite=suite_name, data_dir=data_dir, limit=limit))
    parts: dict[Key, Part] = {}
    planned: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    for spec, cell in zip(specs, laid.cells, strict=True):
        chosen = _link(spec, links, card, suite_name)
        for conversation in laid.prompts[cell.cell_id]:
            _add(parts, planned, seen, conversation, cell, _part(chosen, spec, conversation), context)
    return Casting(card, {name: hands or number for name, number in planned.items()}, None, parts)


def _link(spec: CellSpec, links: Mapping[str, str], card: str, suite_name: str) -> str:
    chosen = links.get(spec.id, spec.profile)
    if chosen is None:
        raise UsageError(f"{suite_name}: cell {spec.id!r} has no `profile`; add one, or give --cast {spec.id}=PROFILE")
    if spec.id not in links and chosen.partition(":")[0] != card:
        raise UsageError(f"{suite_name}: cell {spec.id!r} plays {chosen}, not {card}; mend --profile or --suite")
    return chosen


def _part(chosen: str, spec: CellSpec, conversation: Conversation) -> Part:
    if spec.rows != "category" or chosen.endswith(".toml") or chosen.count(":") == 2:
        return _cached(chosen)
    table = profiles.table(chosen)
    kind = conversation.category
    if kind not in table:
        raise UsageError(f"cell {spec.id!r}: {chosen} has no row {kind!r}{toml.nearest(kind, table)}")
    return _cached(f"{chosen}:{kind}")


_cached = functools.cache(_of_name)


def _add(
    parts: dict[Key, Part],
    planned: Counter[str],
    seen: set[tuple[str, str]],
    conversation: Conversation,
    cell: Cell,
    part: Part,
    context: int,
) -> None:
    """Know the conversation by its first user text, and count its requests; too long ones are never sent."""
    first = conversation.turns[0]
    text = next((m["content"] for m in first if m["role"] == "user"), "")
    temperature, room = cell.sampling.temperature, context - (cell.sampling.max_tokens or 0)
    assert temperature is not None  # a suite states it
    key = (_digest(text), temperature)
    if parts.setdefault(key, part) != part:
        raise UsageError(
            f"cell {cell.cell_id!r}: prompt {conversation.prompt_id!r} begins as one of {parts[key].name} at "
            f"temperature {temperature:g} does, and would play {part.name}; leave one of the two out"
        )
    tokens = words.count_chat([m["content"] for m in first])
    row = part.row(tokens) if isinstance(part, Bins) else part
    if tokens > room:
        return
    if row is None:
        raise UsageError(
            f"cell {cell.cell_id!r}: prompt {conversation.prompt_id!r} has {tokens} tokens, and {part.name} has no "
            "row for it; lower --context, or let the cell play another row with --cast"
        )
    if (row.name, conversation.sha256) not in seen:
        seen.add((row.name, conversation.sha256))
        planned[row.name] += len(conversation.turns)


def _rows(part: Part) -> list[Row]:
    return [row for _, _, row in part.bins] if isinstance(part, Bins) else [part]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
