"""One appearance for every figure, and its bytes: the same input gives the same SVG and PNG.

Settings of the user's own matplotlib are not read, text is set in the DejaVu that comes with matplotlib, and no file
carries a date or a random id. Every figure has its own opaque background, so that it reads on white and dark pages.
"""

import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType

PAPER, INK, SOFT, GRID, BAND = "#ffffff", "#1a1a1a", "#595959", "#d9d9d9", "#f0f0f0"
WIDTH, MARGIN, DPI = 9.0, 0.15, 160
TITLE, SMALL = 11.5, 8.0
LOOK = {
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "xtick.labelcolor": INK,
    "xtick.labelsize": SMALL,
    "ytick.color": SOFT,
    "ytick.labelcolor": INK,
    "ytick.labelsize": SMALL,
    "legend.fontsize": 8.5,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # the one that comes with matplotlib; an SVG names any other as second choice
    "text.color": INK,
    "text.parse_math": False,  # names come from outside: a dollar sign is one
    "svg.hashsalt": "spec-eval",
    "svg.fonttype": "none",  # text stays text: it can be searched, selected and read aloud
}


@dataclass(frozen=True)
class Style:
    """Of an arm. Colour, marker and dashes each tell arms apart, so that grey prints do too."""

    colour: str
    marker: str
    dashes: LineStyleType


# Okabe and Ito's palette, safe for colour-blind readers, without the yellow that white paper swallows.
STYLES = (
    Style("#0072b2", "o", "-"),
    Style("#d55e00", "s", "--"),
    Style("#009e73", "^", "-."),
    Style("#cc79a7", "D", ":"),
    Style("#000000", "v", (0, (5, 1, 1, 1, 1, 1))),
    Style("#e69f00", "P", (0, (8, 2))),
    Style("#56b4e9", "X", (0, (1, 2))),
)


@contextmanager
def applied() -> Iterator[None]:
    """matplotlib set to this look; also to be used around saving. A character that DejaVu lacks is a box."""
    with warnings.catch_warnings(), matplotlib.style.context(LOOK, after_reset=True):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def sheet(title: str, subtitle: str, entries: Sequence[tuple[str, Style]], notes: Sequence[str], body: float) -> Figure:
    """A figure with everything around its axes: title, subtitle and legend above, notes below.

    entries: (label, style) of the legend. body: height in inches that is left for the axes.
    """
    titles = textwrap.wrap(title, 84)
    subtitles = textwrap.wrap(subtitle, 134)
    below = [line for note in notes for line in textwrap.wrap(note, 140)]
    labels = [textwrap.fill(label, 100) for label, _ in entries]
    columns = max(1, min(len(entries), int((WIDTH - 2 * MARGIN) / (0.55 + 0.078 * max(map(len, labels))))))
    rows = -(-len(entries) // columns) if columns > 1 else sum(label.count("\n") + 1 for label in labels)
    head = MARGIN + 0.22 * len(titles) + 0.17 * len(subtitles) + 0.19 * rows + 0.1
    foot = MARGIN + 0.15 * len(below)
    height = head + body + foot
    figure = Figure(figsize=(WIDTH, height))
    left, top = MARGIN / WIDTH, 1 - MARGIN / height
    figure.text(left, top, "\n".join(titles), size=TITLE, weight="bold", va="top")
    top -= 0.22 * len(titles) / height
    figure.text(left, top, "\n".join(subtitles), size=SMALL, color=SOFT, va="top")
    top -= (0.17 * len(subtitles) + 0.02) / height
    figure.legend(
        handles=[legend_line(style) for _, style in entries],
        labels=labels,
        loc="upper left",
        bbox_to_anchor=(left, top),
        ncols=columns,
        borderaxespad=0.0,
        borderpad=0.0,
        labelspacing=0.35,
        handlelength=3.2,
        frameon=False,
    )
    if below:
        figure.text(left, MARGIN * 0.6 / height, "\n".join(below), size=7.5, color=SOFT, va="bottom", linespacing=1.35)
    figure.set_layout_engine(
        "constrained", rect=(left, foot / height, 1 - 2 * left, body / height), w_pad=0.04, h_pad=0.04
    )
    return figure


def legend_line(style: Style) -> Line2D:
    """As the arm is drawn."""
    return Line2D([], [], color=style.colour, marker=style.marker, linestyle=style.dashes, markersize=5, linewidth=1.4)


def settle(figure: Figure) -> None:
    """Lay the axes out for good.

    The layout's solver goes through its variables in the order of their addresses, so that two processes differ in
    the last digits of a position, and an SVG's ids with them. Rounded positions are equal.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = (round(number, 5) for number in axes.get_position().bounds)
        axes.set_position((left, bottom, width, height))


def svg(figure: Figure, title: str) -> bytes:
    """The picture as SVG, without a date."""
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    return out.getvalue()


def png(figure: Figure) -> bytes:
    """The picture as PNG, by Agg, without a word about what made it."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI, metadata={"Software": None})
    return out.getvalue()
