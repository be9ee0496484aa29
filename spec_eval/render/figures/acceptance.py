"""The acceptance figures, one function each: a chart in, a matplotlib figure out."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from matplotlib.typing import LineStyleType

from spec_eval.render import words
from spec_eval.render.figures import look
from spec_eval.render.figures.charts import APPROXIMATE, BIN_SHOWN, NO_INTERVAL, THROUGHPUT, Arm, Chart, Group, Point
from spec_eval.render.figures.look import STYLES, Style

_LONGEST_NAME = 44
_MOST_NAMED = 8
_KINDS = {NO_INTERVAL: "No bar or band", APPROXIMATE: "Dashed bar or band, approximate interval"}


def title(chart: Chart) -> str:
    """With every mark of its runs; one that only some of them carry names these."""
    suites = ", ".join(dict.fromkeys(arm.report.plan.suite_name for arm in chart.arms))
    marks: dict[str, list[Arm]] = {}
    for arm in chart.arms:
        for mark in arm.marks:
            marks.setdefault(mark, []).append(arm)
    shown = [
        mark if len(arms) == len(chart.arms) else f"{mark}: {', '.join(arm.label for arm in arms)}"
        for mark, arms in marks.items()
    ]
    return words.printable(f"{suites}: {chart.title}" + "".join(f" ({text})" for text in shown))


def positions(chart: Chart) -> Figure:
    """A panel for each category: the curve over positions, and its interval as a band."""
    groups = chart.groups
    figure, axes = _panels(chart, groups, columns=4, height=1.75)
    longest = max(p.rank for p in chart.drawn)
    for ax, group in zip(axes, groups, strict=True):
        for style, points in _series(chart, group):
            xs, ys = [p.rank for p in points], _values(points)
            ax.plot(xs, ys, color=style.colour, linestyle=style.dashes, linewidth=1.3, zorder=3)
            ax.plot(xs, ys, color=style.colour, marker=style.marker, linestyle="", markersize=3.8, zorder=4)
            _bands(ax, points, style)
        ax.set_xlim(0.5, longest + 0.5)
        ax.set_ylim(-0.03, 1.03)
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
        ax.grid(visible=True)
        ax.set_xlabel("draft position i" if _is_lowest(ax, axes) else "")
    return figure


def categories(chart: Chart) -> Figure:
    """A line for each category, a dot and its interval for each arm; the pooled requests stand apart at the end."""
    arms = chart.arms
    places, ticks = _lines(chart)
    depth = max(places.values()) + 0.5
    body = 0.55 + max(0.7, (depth + 0.5) * (0.14 + 0.12 * len(arms)))
    figure = _sheet(chart, body)
    ax = figure.subplots()
    for i, arm in enumerate(arms):
        style = STYLES[arm.number]
        points = [p for p in chart.drawn if p.arm is arm]
        shift = (i - (len(arms) - 1) / 2) * 0.66 / len(arms)
        ys = [places[p.group] + shift for p in points]
        for dashes, chosen in _by_kind(points):
            spots = [places[p.group] + shift for p in chosen]
            low, high = _ends(chosen)
            ax.hlines(spots, low, high, color=style.colour, linestyle=dashes, linewidth=1.6, zorder=3)
        ax.plot(
            _values(points), ys, marker=style.marker, linestyle="", color=style.colour, markersize=5.5, zorder=4,
            markeredgecolor=look.PAPER, markeredgewidth=0.5,
        )  # fmt: skip
    for group, y in places.items():
        if group.overall:
            ax.axhspan(y - 0.5, y + 0.5, color=look.BAND, linewidth=0, zorder=0)
        elif len(arms) > 1:
            ax.axhline(y - 0.5, color=look.GRID, linewidth=0.6, zorder=0)
    ax.set_ylim(depth, -0.5)
    ax.set_yticks([y for y, _, _ in ticks], [text for _, text, _ in ticks])
    for label, (_, _, bold) in zip(ax.get_yticklabels(), ticks, strict=True):
        label.set_fontweight("bold" if bold else "normal")
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(*_limits(chart.drawn))
    ax.set_xlabel("acceptance length, tokens a verification step")
    ax.grid(visible=True, axis="x")
    return figure


def lengths(chart: Chart) -> Figure:
    """A panel for each data set: a dot and its interval for each length, joined where no length between is empty."""
    groups = chart.groups
    figure, axes = _panels(chart, groups, columns=2, height=2.4)
    for ax, group in zip(axes, groups, strict=True):
        known = {p.rank: p.at or "" for p in chart.points if p.group == group}
        order = sorted(known)
        kept = sorted({p.rank for p in chart.drawn if p.group == group})
        arms = [*_series(chart, group)]
        for i, (style, points) in enumerate(arms):
            shift = (i - (len(arms) - 1) / 2) * min(0.12, 0.03 * len(kept))  # about as far apart whatever is kept
            for run in _unbroken(points, order):
                xs = [kept.index(p.rank) + shift for p in run]
                ax.plot(xs, _values(run), color=style.colour, linestyle=style.dashes, linewidth=1.2, zorder=2)
            for dashes, chosen in _by_kind(points):
                xs = [kept.index(p.rank) + shift for p in chosen]
                ax.vlines(xs, *_ends(chosen), color=style.colour, linestyle=dashes, linewidth=1.6, zorder=3)
            xs = [kept.index(p.rank) + shift for p in points]
            ax.plot(
                xs, _values(points), marker=style.marker, linestyle="", color=style.colour, markersize=5.5, zorder=4,
                markeredgecolor=look.PAPER, markeredgewidth=0.5,
            )  # fmt: skip
        ax.set_xticks(range(len(kept)), [BIN_SHOWN.get(known[rank], known[rank]) for rank in kept])
        ax.set_xlim(-0.5, len(kept) - 0.5)
        ax.set_ylim(*_limits(chart.drawn))
        ax.set_xlabel(
            "prompt length of the throughput set, in thousands of tokens"
            if group.dataset == THROUGHPUT
            else "prompt length in tokens, as the server counts (k = 1024)"
        )
        ax.grid(visible=True, axis="y")
        ax.set_ylabel("acceptance length" if _place(ax)[1] == 0 else "")
    return figure


def _sheet(chart: Chart, body: float) -> Figure:
    entries = [(arm.label, STYLES[arm.number]) for arm in chart.arms]
    return look.sheet(title(chart), _subtitle(chart), entries, _notes(chart), body)


def _subtitle(chart: Chart) -> str:
    known = any(p.estimate.low is not None for p in chart.drawn if p.estimate)
    return f"{chart.subtitle} 95% intervals over conversations." if known else chart.subtitle


def _notes(chart: Chart) -> list[str]:
    """What a reader of the picture must know of single dots, and what is not in it."""
    notes = [f"{_KINDS[kind]}: {why}." for kind, why in dict.fromkeys(p.why for p in chart.drawn if p.note)]
    notes += [f"Not in this figure: {arm.label}, {why}." for arm, why in chart.missing]
    if empty := chart.empty:
        more = f" and {len(empty) - _MOST_NAMED} more, named in the CSV" if len(empty) > _MOST_NAMED else ""
        notes.append(f"Left out, without data: {'; '.join(map(_cut, empty[:_MOST_NAMED]))}{more}.")
    return notes


def _panels(chart: Chart, groups: Sequence[Group], *, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    """One axes for each group, on common scales; a group's table and name are its heading."""
    wide = min(columns, len(groups))
    tall = math.ceil(len(groups) / wide)
    names = [_wrapped(chart, group, 96 // wide) for group in groups]
    lines = max(name.count("\n") + 1 for name in names)
    figure = _sheet(chart, 0.3 + tall * (height + 0.15 * lines))
    grid = figure.subplots(tall, wide, squeeze=False, sharey=True)
    axes = [ax for row in grid for ax in row]
    for ax in axes[len(groups) :]:
        ax.remove()
    for ax, group, name in zip(axes, groups, names, strict=False):
        ax.set_title(name, weight="bold" if group.overall else "normal")
        if group.overall:
            ax.set_facecolor(look.BAND)
    return figure, axes[: len(groups)]


def _is_lowest(ax: Axes, axes: Sequence[Axes]) -> bool:
    """Whether no panel stands under it."""
    mine = _place(ax)
    return not any(_place(other) == (mine[0] + 1, mine[1]) for other in axes)


def _place(ax: Axes) -> tuple[int, int]:
    spec = ax.get_subplotspec()
    assert spec is not None
    return spec.rowspan.start, spec.colspan.start


def _wrapped(chart: Chart, group: Group, width: int) -> str:
    lines = textwrap.wrap(chart.shown(group), width, max_lines=3, placeholder="…") or [""]
    heading = textwrap.wrap(group.heading or "", width, max_lines=2, placeholder="…")
    return "\n".join([*heading, *lines])


def _lines(chart: Chart) -> tuple[dict[Group, float], list[tuple[float, str, bool]]]:
    """Height of each group, and (height, text, bold) of all that stands beside the axis: names and headings."""
    places: dict[Group, float] = {}
    ticks: list[tuple[float, str, bool]] = []
    y, heading = 0.0, None
    for group in chart.groups:
        if group.overall and places:
            y += 0.3
        elif group.heading != heading:
            heading = group.heading
            ticks.append((y, _cut(heading or ""), True))
            y += 1
        places[group] = y
        ticks.append((y, _cut(chart.shown(group)), group.overall))
        y += 1
    return places, ticks


def _series(chart: Chart, group: Group) -> Iterator[tuple[Style, list[Point]]]:
    """Each arm that has anything in the group, along its axis."""
    for arm in chart.arms:
        points = sorted((p for p in chart.drawn if p.arm is arm and p.group == group), key=lambda p: p.rank)
        if points:
            yield STYLES[arm.number], points


def _bands(ax: Axes, points: Sequence[Point], style: Style) -> None:
    """Intervals of positions. A lone position has no width for a band, and gets a bar."""
    for dashes, chosen in _by_kind(points):
        low, high = _ends(chosen)
        xs = [p.rank for p in chosen]
        if len(xs) == 1:
            ax.vlines(xs, low, high, color=style.colour, linestyle=dashes, linewidth=1.6, zorder=2)
        else:
            ax.fill_between(
                xs, low, high, facecolor=(style.colour, 0.18), edgecolor=(style.colour, 0.6), linestyle=dashes,
                linewidth=0.5, zorder=1,
            )  # fmt: skip


def _by_kind(points: Sequence[Point]) -> Iterator[tuple[LineStyleType, list[Point]]]:
    """(dashes, points) of those with an interval: approximate ones are dashed."""
    known = [p for p in points if p.estimate is not None and p.estimate.low is not None]
    kinds: tuple[tuple[LineStyleType, bool], ...] = (("-", False), ((0, (1.5, 1.0)), True))
    for dashes, approximate in kinds:
        if chosen := [p for p in known if p.estimate is not None and p.estimate.approximate is approximate]:
            yield dashes, chosen


def _values(points: Sequence[Point]) -> list[float]:
    return [p.estimate.value for p in points if p.estimate is not None]


def _ends(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """Of intervals that are there."""
    spans = [(p.estimate.low, p.estimate.high) for p in points if p.estimate is not None]
    return [low for low, _ in spans if low is not None], [high for _, high in spans if high is not None]


def _limits(points: Sequence[Point]) -> tuple[float, float]:
    """From 1, where no draft is accepted, to beyond the highest interval."""
    low, high = _ends(points)
    top = max([*_values(points), *high])
    bottom = min([1.0, *low])
    pad = 0.04 * (top - bottom or 1.0)
    return bottom - pad, top + pad


def _unbroken(points: Sequence[Point], order: Sequence[int]) -> Iterator[list[Point]]:
    """Stretches of neighbours; a length without data between two dots parts them."""
    run = list(points[:1])
    for before, after in pairwise(points):
        if order.index(after.rank) - order.index(before.rank) > 1:
            yield run
            run = []
        run.append(after)
    yield run


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
