"""What a column of a card's table holds, by its head. Heads that could mean two things mean nothing here."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from spec_eval.cards.numbers import read_cell

_FARTHEST_POSITION = 64
_MOST_DIGITS = 6


class Kind(StrEnum):
    """Of a column."""

    LENGTH = "acceptance length"
    RATE = "acceptance rate"
    POSITION = "position"
    DRAFTS = "draft tokens"


@dataclass(frozen=True, slots=True)
class Column:
    """index: of the cell in its row, from 0. position: from 1. percent: the head says so."""

    index: int
    kind: Kind
    head: str
    percent: bool = False
    position: int = 0


# A spread, a difference or another statistic of the same thing, and conditional positions, obey other identities.
_OTHER = re.compile(
    r"\bcond|\bci\b|\bstd|\bsd\b|stddev|stderr|\bvar|±|δ|\bdelta|gain|chang|improv|speed|latenc|through|tok(?:en)?s?/s\b"
    r"|^(?:min|max)\b|median|relative"
)
_STEP = r"(?:(?:verif\w*|verify|decod\w*|target|engine) )?(?:step|iteration|forward|pass)"
_LENGTH = re.compile(
    rf"\b(?:accept\w*|acc)\.? ?(?:token )?len(?:gth)?s?\b|\bm?al\b|τ|\btokens? ?(?:/|per) ?{_STEP}\b",
)
_RATE = re.compile(r"\b(?:accept\w*|acc)\.? ?(?:token )?rate\b|\baccept\w* ?(?:ratio|probability|percentage|pct|\(?%)")
_DRAFTS = re.compile(
    r"k|γ|gamma|num speculative tokens|spec(?:ulative)? tokens|draft len(?:gth)?|drafts? ?(?:/|per) ?step"
)
_POSITIONS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\bpos(?:itions?|n)?\b[ .#:@(\[]*(\d+)\b",
        r"\bpos(\d+)\b",
        r"^p[ .]?(\d+)$",
        r" p(\d+)$",
        r"\baccept\w*[^0-9]*@ ?(\d+)\b",
        r"^accept\w*(?: rate)?[ #(\[]*(\d+)[)\]]?$",
        r"^(?:spec\w* )?(?:draft )?(?:token|draft) ?#?(\d+)\b",
        r"^(\d+)(?:st|nd|rd|th) (?:spec\w* )?(?:draft )?(?:token|position|draft)",
        r"\bpos(?:itions?)?\b[^0-9]*\b(\d+)[)\]% ]*$",
        r"^(\d+)(?:st|nd|rd|th)? pos(?:ition)?\b",
    )
)
_RANGE = re.compile(r"\d ?(?:[-–—…]|to|\.\.+) ?\d")


def columns(heads: Sequence[str]) -> list[Column]:
    """The columns that say something of acceptance, from left to right; positions counted from 1 whatever is printed.

    Positions have to begin at 0 or 1 and to be nearly complete: P50 and P99 are of a latency.
    """
    plain = [_normalised(head) for head in heads]
    found: list[Column] = []
    for index, (head, text) in enumerate(zip(heads, plain, strict=True)):
        if not text or _OTHER.search(text):
            continue
        percent = bool(re.search(r"%|\bpct\b|percent", text))
        words = re.sub(r"[(\[]? ?(?:in )?(?:%|pct\b|percent\b) ?[)\]]?", " ", text).strip(" :")
        position = None if _RANGE.search(head) else _position(words)
        if _LENGTH.search(words):
            found.append(Column(index, Kind.LENGTH, head))
        elif position is not None:
            found.append(Column(index, Kind.POSITION, head, percent, position))
        elif _RATE.search(text) and not re.search(r"\bpos", text):
            found.append(Column(index, Kind.RATE, head, percent))
        elif _DRAFTS.fullmatch(words):
            found.append(Column(index, Kind.DRAFTS, head))
    return _based(found + _bare(heads, found))


def _normalised(head: str) -> str:
    text = re.sub(r"</?\w+[^>]*>|[$↑↓*`{}]", "", head).replace("\\tau", "τ").replace("\\gamma", "γ").replace("\\", "")
    return re.sub(r"[\s_\-‐‑]+", " ", unicodedata.normalize("NFKC", text).lower()).strip()


def _position(text: str) -> int | None:
    found = next((match[1] for pattern in _POSITIONS if (match := pattern.search(text))), None)
    return int(found) if found is not None and len(found) <= _MOST_DIGITS else None


def _bare(heads: Sequence[str], found: Sequence[Column]) -> list[Column]:
    """Heads that are only a number, where length or rate stands beside them and none is spelt out."""
    kinds = {column.kind for column in found}
    if Kind.POSITION in kinds or not kinds & {Kind.LENGTH, Kind.RATE}:
        return []
    numbers = [(i, int(head)) for i, head in enumerate(heads) if re.fullmatch(r"[0-9]{1,2}", head.strip())]
    values = [value for _, value in numbers]
    if len(values) < 2 or values[0] not in (0, 1) or values != list(range(values[0], values[0] + len(values))):
        return []
    return [Column(i, Kind.POSITION, heads[i], False, value) for i, value in numbers]


def _based(found: Sequence[Column]) -> list[Column]:
    printed = {column.position for column in found if column.kind is Kind.POSITION}
    if not printed:
        return sorted(found, key=lambda c: c.index)
    base, last = min(printed), max(printed)
    whole = base in (0, 1) and last <= _FARTHEST_POSITION and 2 * len(printed) > last - base + 1
    shifted = [
        Column(c.index, c.kind, c.head, c.percent, c.position + 1 - base) if c.kind is Kind.POSITION else c
        for c in found
        if whole or c.kind is not Kind.POSITION
    ]
    return sorted(shifted, key=lambda c: c.index)


def is_header(heads: Sequence[str], found: Sequence[Column]) -> bool:
    """Whether a row heads a table: it names something of acceptance, and holds fewer figures than names."""
    kinds = [column.kind for column in found if column.kind is not Kind.DRAFTS]
    named = {column.index for column in found}
    figures = sum(read_cell(head).number is not None for i, head in enumerate(heads) if i not in named)
    alone = len(kinds) == 1 and kinds[0] is Kind.POSITION
    several = sum(bool(head) for head in heads) > 1
    return bool(kinds) and several and not alone and figures < len(kinds)
