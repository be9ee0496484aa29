"""A whole card: its tables judged row by row, and what a reader should be told beside."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

from spec_eval.cards.checks import Drafts, Judged, Verdict, fits, judge
from spec_eval.cards.claims import Setting, drafts_vary, missing_facts, settings
from spec_eval.cards.numbers import Printed
from spec_eval.cards.tables import Row, Table, read_tables
from spec_eval.errors import UsageError

_TOTAL = re.compile(r"^\W*(?:\w+[ -])?(?:total|overall|average|avg|mean)\b|^\W*(?:all|macro|micro)\W*$", re.IGNORECASE)
_OF_METHODS = re.compile(r"method|drafter|draft|model|algorithm|config|setting|speculator|\bk\b|tokens", re.IGNORECASE)


class NoteCode(StrEnum):
    """Every kind of note."""

    DRAFT_TOKENS = "draft_tokens"
    NOT_READ = "not_read"
    TOTAL_IS_MEAN = "total_is_mean"
    TOTAL_OUTSIDE = "total_outside"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that no row is false by. line: where, from 1."""

    code: NoteCode
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class JudgedTable:
    """ks: drafts a step by its position columns, or by its rows' lengths and rates; empty if neither tells."""

    line: int
    ks: tuple[int, ...]
    rows: tuple[Judged, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """missing: facts that the text does not state."""

    name: str
    tables: tuple[JudgedTable, ...]
    settings: tuple[Setting, ...]
    notes: tuple[Note, ...]
    missing: tuple[str, ...]

    def count(self, verdict: Verdict) -> int:
        """Rows with that verdict."""
        return sum(row.verdict is verdict for table in self.tables for row in table.rows)


def check(path: Path) -> Card:
    """The card in a file, without tables if it prints no acceptance figure. UsageError if it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; name a Markdown or text file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    # Nobody sees a comment of a rendered card; its lines stay, so that others keep their numbers.
    text = re.sub(r"<!--.*?-->", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    tables = read_tables(text)
    told = settings(text)
    vary = drafts_vary(text)
    elsewhere = {table.positions for table in tables if table.positions > 1} or {s.k for s in told}
    judged = tuple(_judged(table, elsewhere, vary=vary) for table in tables if table.rows)
    notes = [*_settings_notes(judged, told)]
    for table in tables:
        notes += [*_unread_notes(table), *_total_notes(table)]
    return Card(path.name, judged, tuple(told), tuple(notes), tuple(missing_facts(text)))


def _judged(table: Table, elsewhere: set[int], *, vary: bool) -> JudgedTable:
    """A table without positions has the k of the card's others if a row fits it; rows of methods may each differ."""
    held = {k for k in elsewhere if any(fits(row, k) for row in table.rows)}
    other = not held or bool(_OF_METHODS.search(table.label_head))
    drafts = Drafts(tuple(sorted(held or elsewhere)), other=other, vary=vary)
    rows = tuple(judge(row, drafts) for row in table.rows)
    ks = {table.positions} if table.positions > 1 else {row.k for row in rows if row.k is not None}
    return JudgedTable(table.line, tuple(sorted(ks)), rows)


def _settings_notes(tables: Sequence[JudgedTable], told: Sequence[Setting]) -> list[Note]:
    """Commands and tables that differ in the drafts of a step."""
    ks = {k: table for table in reversed(tables) for k in table.ks}
    if not ks or not told:
        return []
    in_tables = " or ".join(str(k) for k in sorted(ks))
    notes = [
        Note(
            NoteCode.DRAFT_TOKENS,
            setting.line,
            f"{setting.text} means {setting.k} drafts a step, the tables have {in_tables}",
        )
        for setting in told
        if setting.k not in ks
    ]
    commands = {setting.k for setting in told}
    if commands & ks.keys():
        notes += [
            Note(NoteCode.DRAFT_TOKENS, table.line, f"this table has {k} drafts a step, and no command sets {k}")
            for k, table in sorted(ks.items())
            if k not in commands
        ]
    return notes


def _unread_notes(table: Table) -> list[Note]:
    notes = [Note(NoteCode.NOT_READ, row.line, f"{row.name}: {text}") for row in table.rows for text in row.unread]
    if table.refused:
        notes.insert(0, Note(NoteCode.NOT_READ, table.line, f"no row of this table was checked: {table.refused}"))
    return notes


def _total_notes(table: Table) -> list[Note]:
    """A total that is the plain mean of its rows weighs short answers like long ones; one outside is of other rows."""
    notes = []
    for group in dict.fromkeys(row.group for row in table.rows):
        rows = [row for row in table.rows if row.group == group]
        totals = [i for i, row in enumerate(rows) if _is_total(row)]
        for i in totals:
            # A lone total may stand first; of several, each closes the rows above it.
            start = max((j + 1 for j in totals if j < i), default=0)
            parts = [row for row in rows if not _is_total(row)] if len(totals) == 1 else rows[start:i]
            lengths, rates = [row.length for row in parts], [row.rate for row in parts]
            note = _total_note(rows[i], "acceptance length", rows[i].length, lengths)
            note = note or _total_note(rows[i], "acceptance rate", rows[i].rate, rates)
            notes += [note] if note else []
    return notes


def _is_total(row: Row) -> bool:
    return any(_TOTAL.search(part) for part in row.label.split(" / "))


def _total_note(total: Row, name: str, figure: Printed | None, printed: Sequence[Printed | None]) -> Note | None:
    parts = [part for part in printed if part is not None]
    if figure is None or len(parts) < 2 or len(parts) < len(printed):
        return None
    n = len(parts)
    low, high = sum((p.low for p in parts), Fraction(0)) / n, sum((p.high for p in parts), Fraction(0)) / n
    if figure.low > max(p.high for p in parts) or figure.high < min(p.low for p in parts):
        message = (
            f"{total.name}: {name} {figure.text} lies outside its {n} rows: it covers more than these, or is wrong"
        )
        return Note(NoteCode.TOTAL_OUTSIDE, total.line, message)
    if figure.low <= high and low <= figure.high:
        message = (
            f"{total.name}: {name} {figure.text} is the plain mean of its {n} rows; "
            "pooled over all steps it would weigh them by their steps"
        )
        return Note(NoteCode.TOTAL_IS_MEAN, total.line, message)
    return None
