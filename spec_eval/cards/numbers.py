"""Numbers as a card prints them: the digits, and the interval that rounding leaves open.

A printed 80.58 stands for anything from 80.575 to 80.585. All arithmetic is in exact fractions.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from markdown_it import MarkdownIt

_INLINE = MarkdownIt("commonmark")
_NUMBER = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)) ?(%?)")
_FOOTNOTE = re.compile(r"(?<=[0-9%])\s*(?:[*†‡§]+|\[\^?\w+\])$")
_NOTHING = re.compile(r"[-–—−./…?]*|n\.?/?a\.?|none|null|tbd|not (?:available|measured|reported)", re.IGNORECASE)
_PLAIN_TAG = re.compile(r"</?(?:b|strong|i|em|u|code|span|center|font|small)\b[^>]*>", re.IGNORECASE)
_MOST_DIGITS = 40


@dataclass(frozen=True, slots=True)
class Cell:
    """number: as printed, before any scale; null without one. percent: a % sign stands behind it.

    trouble: why a cell that holds something was not read, or null.
    """

    text: str
    number: Decimal | None = None
    percent: bool = False
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Printed:
    """A number and what it may have been before it was rounded; shares are fractions, never percents."""

    text: str
    value: Fraction
    low: Fraction
    high: Fraction


def plain(markdown: str) -> str:
    """What a reader sees of a cell: without emphasis, escapes, entities and the tags of plain style."""
    shown = []
    for child in _INLINE.parseInline(markdown.strip())[0].children or []:
        if child.type == "html_inline":
            shown.append("" if _PLAIN_TAG.fullmatch(child.content) else child.content)
        else:
            shown.append(" " if child.type in ("softbreak", "hardbreak") else child.content)
    return re.sub(r"\s+", " ", "".join(shown)).strip()


def read_cell(text: str) -> Cell:
    """The number in a cell, no data, or why it cannot be read. A comma is refused: it has two meanings."""
    bare = _FOOTNOTE.sub("", text.strip().strip("$").strip()).replace("\\%", "%").replace("％", "%").replace("−", "-")
    if _NOTHING.fullmatch(bare):
        return Cell(text)
    if match := _NUMBER.fullmatch(bare):
        if len(bare) > _MOST_DIGITS:
            return Cell(text, trouble="more digits than anybody measures")
        return Cell(text, Decimal(match[1]), bool(match[2]))
    if re.search(r"[0-9],[0-9]", bare):
        return Cell(text, trouble="a comma may be a decimal mark or part thousands; print a point")
    return Cell(text, trouble="no plain number")


def printed(cell: Cell, *, percent: bool) -> Printed | None:
    """With half a unit of the last printed digit to either side; null where there is no number."""
    if cell.number is None:
        return None
    exponent = cell.number.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = Fraction(1, 100) if percent else Fraction(1)
    value = Fraction(cell.number) * scale
    half = Fraction(10) ** exponent / 2 * scale
    return Printed(cell.text, value, value - half, value + half)
