"""What is drawn, read back from the axes, is what the chart says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import FillBetweenPolyCollection, LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from spec_eval.render.figures import acceptance, charts, look
from spec_eval.render.figures.charts import Chart
from tests.factories import answered, from_histogram
from tests.render.figures.samples import EASY, RECORDS, arms, easy, folder, throughput


@pytest.fixture(autouse=True)
def _look() -> Iterator[None]:
    with look.applied():
        yield


def dots(ax: Axes, colour: str) -> list[tuple[float, float]]:
    """Of one arm: markers without a line."""
    mine = [a for a in ax.lines if a.get_color() == colour and a.get_marker() not in ("", "None", None)]
    return [(x, y) for line in mine for x, y in np.asarray(line.get_xydata()).tolist()]


def bars(ax: Axes, colour: str) -> list[list[list[float]]]:
    lines = [c for c in ax.collections if isinstance(c, LineCollection)]
    mine = [c for c in lines if to_hex(np.asarray(c.get_color())[0]) == colour]
    return [np.asarray(segment).tolist() for one in mine for segment in one.get_segments()]


def bands(ax: Axes) -> list[set[tuple[float, float]]]:
    areas = [c for c in ax.collections if isinstance(c, FillBetweenPolyCollection)]
    return [{(x, y) for x, y in np.asarray(area.get_paths()[0].vertices).tolist()} for area in areas]


def estimates(chart: Chart, arm: int, group: str) -> list[Any]:
    return [p.estimate for p in chart.drawn if p.arm.number == arm and p.group.name == group]


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.texts)


def test_curves_and_bands_are_the_points_of_the_chart(tmp_path: Path) -> None:
    two = [answered(from_histogram((i % 3, 1, 1)), prompt_id=f"e{i}", category="easy") for i in range(20)]
    chart = charts.positions(
        arms(tmp_path, folder(tmp_path), folder(tmp_path, "two", units=EASY, records=two, drafter="x", k=2))
    )
    figure = acceptance.positions(chart)
    panels = {ax.get_title(loc="left"): ax for ax in figure.axes}
    assert list(panels) == ["easy", "hard", "overall, pooled (partial)"]
    first, second = (style.colour for style in look.STYLES[:2])
    assert dots(panels["easy"], first) == [(1.0, 0.5)]
    found = estimates(chart, 1, "easy")
    assert dots(panels["easy"], second) == [(1.0, found[0].value), (2.0, found[1].value)]
    (band,) = bands(panels["easy"])
    assert band == {(i, end) for i, e in enumerate(found, 1) for end in (e.low, e.high)}
    # a lone position cannot have a band
    (only,) = estimates(chart, 0, "easy")
    assert bars(panels["easy"], first) == [[[1.0, only.low], [1.0, only.high]]]
    # two conversations: a dot and nothing else
    assert (dots(panels["hard"], first), bands(panels["hard"])) == ([(1.0, 0.2)], [])
    assert bars(panels["hard"], first) == []


def test_dots_stand_beside_the_names_of_their_categories(tmp_path: Path) -> None:
    chart = charts.categories(arms(tmp_path, folder(tmp_path), folder(tmp_path, "two", drafter="other")))
    (ax,) = acceptance.categories(chart).axes
    ticks = {label.get_text(): float(y) for y, label in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True)}
    assert list(ticks) == ["easy", "hard", "overall, pooled (partial)"]
    assert list(ticks.values()) == sorted(ticks.values())
    for arm in (0, 1):
        colour = look.STYLES[arm].colour
        drawn = dots(ax, colour)
        assert [x for x, _ in drawn] == [1.5, 1.2, 1 + 11 / 25]
        assert [abs(y - tick) < 0.5 for (_, y), tick in zip(drawn, ticks.values(), strict=True)] == [True] * 3
        spans = [e for name in ("easy", "overall, pooled") for e in estimates(chart, arm, name)]
        assert [[a[0], b[0]] for a, b in bars(ax, colour)] == [[e.low, e.high] for e in spans]
    assert ax.get_yticklabels()[-1].get_fontweight() == "bold"
    assert ax.yaxis_inverted()


def test_tables_have_headings(tmp_path: Path) -> None:
    chart = charts.categories(arms(tmp_path, throughput(tmp_path, "card")))
    (ax,) = acceptance.categories(chart).axes
    assert [(label.get_text(), label.get_fontweight()) for label in ax.get_yticklabels()] == [
        ("Low entropy", "bold"),
        ("1k", "normal"),
        ("8k", "normal"),
        ("Talk", "bold"),
        ("Chat", "normal"),
        ("overall, pooled", "bold"),
    ]


def test_lengths_leave_out_what_is_empty_and_join_only_neighbours(tmp_path: Path) -> None:
    far = answered(from_histogram((1, 3)), prompt_id="h2", category="hard", prompt_tokens=40_000)
    chart = charts.lengths(arms(tmp_path, folder(tmp_path, records=[*RECORDS[:-2], far])))
    figure = acceptance.lengths(chart)
    (ax,) = figure.axes
    # h1 alone: S 3, A 1; far: S 4, A 3
    assert [label.get_text() for label in ax.get_xticklabels()] == ["≤8k", "8k–16k", "32k–64k"]
    assert dots(ax, look.STYLES[0].colour) == [(0.0, 1.5), (1.0, 1 + 1 / 3), (2.0, 1.75)]
    lines = [line for line in ax.lines if line.get_linestyle() != "None"]
    assert [np.asarray(line.get_xdata()).tolist() for line in lines] == [[0.0, 1.0], [2.0]]
    assert "Left out, without data: 16k–32k; 64k–128k; not recorded, length not known." in texts(figure)


def test_throughput_sets_are_named_as_published(tmp_path: Path) -> None:
    chart = charts.lengths(arms(tmp_path, throughput(tmp_path, "card", (1, 2, 8, 16, 32))))
    (ax,) = acceptance.lengths(chart).axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1k", "2k", "8k", "16k", "32k"]
    assert "throughput set" in ax.get_xlabel()


def test_marks_of_all_runs_stand_in_the_title_and_a_lone_mark_names_its_run(tmp_path: Path) -> None:
    real = folder(tmp_path, "real")
    told = folder(tmp_path, "told", drafter="puppet", synthetic="told")
    half = folder(tmp_path, "half", drafter="half", whole=False, synthetic="told")
    both = charts.categories(arms(tmp_path, told, half))
    assert acceptance.title(both) == "chat: acceptance length by category (synthetic) (incomplete: half)"
    mixed = charts.positions(arms(tmp_path, real, told))
    assert acceptance.title(mixed) == "chat: acceptance by position (synthetic: puppet)"
    assert "(synthetic: puppet)" in texts(acceptance.positions(mixed))


def test_notes_tell_what_is_missing(tmp_path: Path) -> None:
    drawn = texts(acceptance.categories(charts.categories(arms(tmp_path))))
    assert "No bar or band: under 20 conversations." in drawn
    assert "Dashed bar or band, approximate interval: 20 to 79 conversations." in drawn
    assert "Left out, without data: never." in drawn
    blind = folder(tmp_path, "blind", drafter="mole", units=EASY, records=easy(prompt_tokens=None))
    chart = charts.lengths(arms(tmp_path, folder(tmp_path, "two"), blind))
    assert "Not in this figure: mole, prompt lengths are not known." in texts(acceptance.lengths(chart))


def test_arms_differ_in_more_than_their_colour(tmp_path: Path) -> None:
    for kind in ("colour", "marker", "dashes"):
        assert len({str(getattr(style, kind)) for style in look.STYLES}) == len(look.STYLES)
    figure = acceptance.categories(charts.categories(arms(tmp_path, folder(tmp_path), folder(tmp_path, "b"))))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["eagle (one)", "eagle (b)"]
