"""Throughput against interactivity: one curve an arm, one dot a level of concurrency."""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spec_eval.arms import Arm, Point
from spec_eval.curves import Comparison
from spec_eval.errors import UsageError
from spec_eval.render.figures import look
from spec_eval.render.figures.look import STYLES, Style
from spec_eval.render.throughput import X_NAME, Y_NAME
from spec_eval.render.words import printable

_BODY = 5.2
_LONGEST_LABEL = 60
# Points, away from the dot; one place for each arm, so that labels of two curves that cross do not meet.
_PLACES = ((5, 5, "left"), (-5, -11, "right"), (6, -10, "left"), (-6, 6, "right"), (0, 9, "center"), (0, -14, "center"))


def title(found: Comparison) -> str:
    """With every mark of its runs; one that only some of them carry names these."""
    marks: dict[str, list[str]] = {}
    for arm in found.arms:
        for mark in arm.marks:
            marks.setdefault(mark, []).append(arm.label)
    shown = [mark if len(arms) == len(found.arms) else f"{mark}: {', '.join(arms)}" for mark, arms in marks.items()]
    name = f"{found.title}: throughput versus interactivity"
    return printable(name + "".join(f" ({text})" for text in shown))


def curves(found: Comparison, notes: Sequence[str], *, spread: bool) -> Figure:
    """In order of concurrency; a level without figures parts the line. spread: bars over the repeats."""
    if len(found.arms) > len(STYLES):
        raise UsageError(f"{len(found.arms)} runs: at most {len(STYLES)} can be told apart in one figure; plot fewer")
    arms = [*zip(found.arms, STYLES, strict=False)]
    entries = [*zip(_legend(found), STYLES, strict=False)]
    figure = look.sheet(title(found), _subtitle(found, spread=spread), entries, [*notes], _BODY)
    ax = figure.subplots()
    for number, (arm, style) in enumerate(arms):
        _draw(ax, arm, style, _PLACES[number % len(_PLACES)], spread=spread)
    ax.set_xlabel(X_NAME)
    ax.set_ylabel(Y_NAME)
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=-0.03 * ax.get_ylim()[1])  # room for the labels of the lowest level
    ax.grid(visible=True)
    return figure


def _legend(found: Comparison) -> list[str]:
    """Labels of the arms; long ones are cut where they still differ."""
    labels = [printable(arm.label) for arm in found.arms]
    cut = [label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…" for label in labels]
    shown = cut if len(set(cut)) == len(cut) else labels
    return [
        f"{label} (baseline)" if arm is found.baseline else label for arm, label in zip(found.arms, shown, strict=True)
    ]


def _subtitle(found: Comparison, *, spread: bool) -> str:
    windows = list(dict.fromkeys(f"{arm.plan.window.duration_s:g} s" for arm in found.arms))
    repeats = sorted({arm.plan.window.repeats for arm in found.arms})
    grace = all(arm.plan.window.grace_s == 0 for arm in found.arms)
    text = f"Labels: concurrency. AIPerf's own figures, windows of {' or '.join(windows)}"
    text += ", unfinished requests left out" if grace else ""
    if repeats[-1] > 1:
        text += f"; mean of {' or '.join(map(str, repeats))} repeats"
        text += ", bars from the smallest to the largest" if spread else ""
    return f"{text}."


def _draw(ax: Axes, arm: Arm, style: Style, place: tuple[int, int, str], *, spread: bool) -> None:
    for run in unbroken(arm.points):
        xs, ys = _values(run)
        ax.plot(xs, ys, color=style.colour, linestyle=style.dashes, linewidth=1.4, zorder=3)
    there = [*arm.by_level.values()]
    xs, ys = _values(there)
    ax.plot(
        xs, ys, color=style.colour, marker=style.marker, linestyle="", markersize=6, zorder=4,
        markeredgecolor=look.PAPER, markeredgewidth=0.5, label=arm.label,
    )  # fmt: skip
    for point, x, y in zip(there, xs, ys, strict=True):
        ax.annotate(
            str(point.concurrency), (x, y), xytext=place[:2], textcoords="offset points", ha=place[2], size=look.SMALL,
            color=look.INK, zorder=3.5, bbox={"facecolor": look.PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 0.4},
        )  # fmt: skip
        if spread and point.x is not None and point.y is not None:
            ax.hlines(y, point.x.low, point.x.high, color=style.colour, linewidth=1.0, zorder=2)
            ax.vlines(x, point.y.low, point.y.high, color=style.colour, linewidth=1.0, zorder=2)


def unbroken(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Stretches of neighbours in order of concurrency; a hole between two dots parts them."""
    run: list[Point] = []
    for point in sorted(points, key=lambda p: p.concurrency):
        if point.x is None or point.y is None:
            if run:
                yield run
            run = []
        else:
            run.append(point)
    if run:
        yield run


def _values(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [p.x.mean for p in points if p.x is not None], [p.y.mean for p in points if p.y is not None]
