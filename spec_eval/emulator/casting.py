"""Which line of a card a request plays."""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from spec_eval import doctor, probe, profiles, suite, toml
from spec_eval.drivers.conversations import request_seed
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
    """hands: of each row's deck, by its name. part: of every prompt; or null, and `parts` knows them by text.

    shared: texts that several parts begin with; `by_seed` tells them apart by the seed that comes with them.
    """

    name: str
    hands: Mapping[str, int]
    part: Part | None = None
    parts: Mapping[Key, Part] = field(default_factory=dict)
    shared: frozenset[Key] = frozenset()
    by_seed: Mapping[tuple[Key, int], Part] = field(default_factory=dict)

    @property
    def rows(self) -> dict[str, Row]:
        """All rows, by name."""
        found: dict[str, Row] = {}
        for part in [self.part] if self.part is not None else [*self.parts.values(), *self.by_seed.values()]:
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
        if ask.first_user in (probe.PROMPT, doctor.PROMPT):
            return next(iter(self.parts.values()))
        digest = _digest(ask.first_user)
        key = (digest, ask.temperature)
        if key in self.shared:
            told = self.by_seed.get((key, ask.seed)) if isinstance(ask.seed, int) else None
            if told is None:
                raise BadAsk(
                    "emulator: several rows have this first user text, and the seed is of no request of the run"
                )
            return told
        part = self.parts.get(key)
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
    run_seed: int | None = None,
) -> Casting:
    """The rows of `profile`: one row or file, a table of bins, or a whole card with the suite that asks for it.

    links: cell ids and what they play, over the suite's own. hands: of every deck; else a suite's requests, or 80.
    run_seed: of the run that will ask, where prompts of several cells are to be told apart by their requests' seeds.
    """
    if suite_name is not None:
        register = _Register(context, run_seed)
        _card(register, profile, suite_name, data_dir, limit, links or {})
        counts = {name: hands or number for name, number in register.planned.items()}
        return Casting(profile, counts, None, register.parts, frozenset(register.shared), register.by_seed)
    if links or data_dir is not None or limit is not None or run_seed is not None:
        raise UsageError("--cast, --data-dir, --limit and --run-seed belong to a whole card; give --suite too")
    part = _of_name(profile)
    return Casting(part.name, {row.name: hands or HANDS for row in _rows(part)}, part)


def _of_name(name: str) -> Part:
    """A row, a file, or a table whose rows are bins of prompt lengths."""
    if name.endswith(".toml") or name.count(":") == 2:
        return Row.of(profiles.find(name))
    if ":" not in name and any(known.startswith(f"{name}:") for known in profiles.published()):
        raise UsageError(f"--profile {name}: is a whole card; give --suite with the suite that asks for it, or one row")
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
    register: "_Register",
    card: str,
    suite_name: str,
    data_dir: Path | None,
    limit: int | None,
    links: Mapping[str, str],
) -> None:
    file = suite.find(suite_name)
    if not isinstance(file.suite, CompoundSuite):
        raise UsageError(f"--suite {suite_name}: has no cells; give --profile CARD:TABLE:ROW without a suite instead")
    specs = file.suite.cells
    if unknown := links.keys() - {spec.id for spec in specs}:
        name = min(unknown)
        raise UsageError(f"--cast {name}: no cell of {suite_name}{toml.nearest(name, [spec.id for spec in specs])}")
    chosen = [_link(spec, links, card, suite_name) for spec in specs]  # before any data is looked for
    # Without levels of concurrency there is one cell for each of the suite's, in order.
    laid = cells.lay_out(file, RunOptions(suite=suite_name, data_dir=data_dir, limit=limit))
    for spec, plays, cell in zip(specs, chosen, laid.cells, strict=True):
        for conversation in laid.prompts[cell.cell_id]:
            register.add(conversation, cell, _part(plays, spec, conversation))


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


@dataclass
class _Register:
    """The conversations of a suite, as they are met. planned: requests of one repeat, by row."""

    context: int
    run_seed: int | None
    parts: dict[Key, Part] = field(default_factory=dict)
    shared: set[Key] = field(default_factory=set)
    by_seed: dict[tuple[Key, int], Part] = field(default_factory=dict)
    planned: Counter[str] = field(default_factory=Counter)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def add(self, conversation: Conversation, cell: Cell, part: Part) -> None:
        """Know it by its first user text, and count its requests; too long ones are never sent."""
        first = conversation.turns[0]
        text = next((m["content"] for m in first if m["role"] == "user"), "")
        temperature, room = cell.sampling.temperature, self.context - (cell.sampling.max_tokens or 0)
        assert temperature is not None  # a suite states it
        self._know((_digest(text), temperature), conversation, cell, part)
        tokens = words.count_chat([m["content"] for m in first])
        if tokens > room:
            return
        row = part.row(tokens) if isinstance(part, Bins) else part
        if row is None:
            raise UsageError(
                f"cell {cell.cell_id!r}: prompt {conversation.prompt_id!r} has {tokens} tokens, and {part.name} has no "
                "row for it; lower --context, or let the cell play another row with --cast"
            )
        once = (row.name, _digest(json.dumps(conversation.turns)))
        if once not in self._seen:
            self._seen.add(once)
            self.planned[row.name] += len(conversation.turns)

    def _know(self, key: Key, conversation: Conversation, cell: Cell, part: Part) -> None:
        other = self.parts.setdefault(key, part)
        told = self.run_seed is not None
        if self.run_seed is not None:
            for turn, repeat in product(range(len(conversation.turns)), range(cell.repeats)):
                seed = request_seed(self.run_seed, conversation.prompt_id, turn, repeat)
                told = told and self.by_seed.setdefault((key, seed), part) == part
        if other == part:
            return
        self.shared.add(key)
        if not told:
            raise UsageError(
                f"cell {cell.cell_id!r}: prompt {conversation.prompt_id!r} begins as one of {other.name} at "
                f"temperature {key[1]:g} does, and would play {part.name}; leave one of the two out, or tell them "
                "apart by the seeds of the run with --run-seed"
            )


def _rows(part: Part) -> list[Row]:
    return [row for _, _, row in part.bins] if isinstance(part, Bins) else [part]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
