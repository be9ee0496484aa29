"""The published tables as text, decks of steps that give them, and a reader of the Markdown that a report prints.

Nothing here uses the code that makes reports: the published numbers are read as text and compared as decimals.
`mismatches` is for any report of a card's suite, however its records came about.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

PUBLISHED = Path(__file__).parent.parent / "profiles" / "published.csv"
DFLASH2, PREVIEW = "glm-5.3-dflash2", "glm-5.3-dflash2-preview"
# (card, table of published.csv): heading of the table in a report of the card's suite.
HEADINGS = {
    (DFLASH2, "speed-bench-throughput-low-entropy"): "Low entropy, by context length",
    (DFLASH2, "speed-bench-qualitative"): "Qualitative, by category",
    (PREVIEW, "basic-t0"): "Basic, temperature 0",
    (PREVIEW, "basic-t1"): "Basic, temperature 1",
    (PREVIEW, "speed-bench-qualitative-t0"): "Qualitative by category, temperature 0",
    (PREVIEW, "speed-bench-qualitative-t1"): "Qualitative by category, temperature 1",
    (PREVIEW, "mrcr-8needle"): "Eight-needle long context, temperature 0",
}
MRCR_BINS_HEADING = "Eight-needle long context, temperature 0: 8 needles, by prompt length"
# The bins of the second card have no positions, so that they are no profiles: AL and rate as it prints them.
MRCR_BINS = {
    "0-8192": ("6.9190", "73.99"),
    "8193-16384": ("5.8916", "61.14"),
    "16385-32768": ("5.9500", "61.88"),
    "32769-65536": ("5.8348", "60.44"),
    "65537-131072": ("5.6294", "57.87"),
}
MRCR_TOTAL = "all lengths, pooled"
# A card that rounds each position to 0.01% rounds their sum otherwise: one unit in AL's last digit, and in the rate's.
AL_WITHIN = {2: Decimal("0.006"), 4: Decimal("0.0005")}
RATE_WITHIN = Decimal("0.01")


@dataclass(frozen=True)
class Published:
    """One printed row: numbers as text, percentages without their sign. rate is empty where none is printed."""

    name: str
    length: str
    rate: str
    positions: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A pipe table: cells as a reader sees them, without escapes."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def published(card: str, table: str) -> list[Published]:
    """Rows of a published table, in its order."""
    with PUBLISHED.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if (row["card"], row["table"]) == (card, table)]
    return [
        Published(
            name=row["row"],
            length=row["acceptance_length"],
            rate=row["acceptance_rate_pct"],
            positions=tuple(row[f"position_{i}_pct"] for i in range(1, int(row["k"]) + 1)),
        )
        for row in rows
    ]


def histogram(row: Published, steps: int = 10_000) -> list[int]:
    """h[j] of a deck whose positions are the printed ones; `steps` is a multiple of 10,000, so that all are whole."""
    assert steps % 10_000 == 0
    reached = [steps, *(int(Decimal(p) * (steps // 10_000) * 100) for p in row.positions), 0]
    return [more - fewer for more, fewer in pairwise(reached)]


def deal(counts: Sequence[int], hands: int) -> list[list[int]]:
    """The steps of a histogram to `hands` requests, as histograms: equally many steps each where that goes up."""
    steps = [accepted for accepted, count in enumerate(counts) for _ in range(count)]
    return [[steps[hand::hands].count(j) for j in range(len(counts))] for hand in range(hands)]


def into_bins(counts: Sequence[int], sizes: Sequence[int], accepted: Sequence[int]) -> list[list[int]]:
    """The steps of a histogram to bins of `sizes` steps that accept `accepted` drafts in all, as histograms."""
    assert (sum(sizes), sum(accepted)) == (sum(counts), sum(j * n for j, n in enumerate(counts)))
    steps = iter([j for j, n in enumerate(counts) for _ in range(n)])
    bins = []
    for size in sizes:
        taken = [next(steps) for _ in range(size)]
        bins.append([taken.count(j) for j in range(len(counts))])
    while gaps := [sum(j * n for j, n in enumerate(one)) - a for one, a in zip(bins, accepted, strict=True)]:
        if not any(gaps):
            break
        rich, poor = gaps.index(max(gaps)), gaps.index(min(gaps))
        most = min(gaps[rich], -gaps[poor])
        high, low = next(
            (high, high - fall)
            for fall in range(min(most, len(counts) - 1), 0, -1)
            for high in range(len(counts) - 1, fall - 1, -1)
            if bins[rich][high] and bins[poor][high - fall]
        )
        for one, lost, gained in ((bins[rich], high, low), (bins[poor], low, high)):
            one[lost] -= 1
            one[gained] += 1
    return bins


def tables(markdown: str) -> dict[str, list[Table]]:
    """The pipe tables under each heading, in order."""
    found: dict[str, list[Table]] = {}
    heading, block = "", list[str]()
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("|"):
            block.append(line)
            continue
        if block:
            columns, _, *rows = [_cells(row) for row in block]
            found.setdefault(heading, []).append(Table(columns, tuple(rows)))
            block = []
        if line.startswith("#"):
            heading = _plain(line.lstrip("#").strip())
    return found


def mismatches(markdown: str, card: str, *, bins: bool = False) -> list[str]:
    """Every cell in which the report's tables are not the published ones; empty where all are.

    Marks behind a row's name are passed over. bins: the long-context bins of the second card too.
    """
    found = tables(markdown)
    problems: list[str] = []
    for (of, name), heading in HEADINGS.items():
        if of == card:
            problems += _compared(heading, found.get(heading, []), published(card, name))
    if bins:
        lines = [Published(name, length, rate, ()) for name, (length, rate) in MRCR_BINS.items()]
        (total,) = published(card, "mrcr-8needle")
        lines.append(Published(MRCR_TOTAL, total.length, total.rate, ()))
        problems += _compared(MRCR_BINS_HEADING, found.get(MRCR_BINS_HEADING, []), lines)
    return problems


def _compared(heading: str, there: Sequence[Table], wanted: Sequence[Published]) -> list[str]:
    if not there:
        return [f"{heading}: no table"]
    shown, problems = there[0], list[str]()
    names = [re.sub(r" \([^()]*\)$", "", row[0]) for row in shown.rows]
    if names != [row.name for row in wanted]:
        problems.append(f"{heading}: rows {names}, published {[row.name for row in wanted]}")
    by_name = dict(zip(names, shown.rows, strict=True))
    for row in wanted:
        if row.name in by_name:
            problems += [f"{heading}: {row.name}: {one}" for one in _row(by_name[row.name][1:], row)]
    return problems


def _row(cells: Sequence[str], row: Published) -> Iterator[str]:
    length, *others = cells
    digits = len(row.length.partition(".")[2])
    if len(length.partition(".")[2]) != digits or abs(Decimal(length) - Decimal(row.length)) > AL_WITHIN[digits]:
        yield f"acceptance length {length}, published {row.length}"
    if row.rate:
        rate, *others = others
        if abs(Decimal(rate.removesuffix("%")) - Decimal(row.rate)) > RATE_WITHIN:
            yield f"rate {rate}, published {row.rate}"
    positions = tuple(cell.removesuffix("%") for cell in others)
    if positions != row.positions:
        yield f"positions {positions}, published {row.positions}"


def _cells(line: str) -> tuple[str, ...]:
    return tuple(_plain(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1])


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
