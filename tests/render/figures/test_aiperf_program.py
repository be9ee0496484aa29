"""What is done to AIPerf's own figures, with stand-ins for its classes that tell what is left of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spec_eval.render.figures import aiperf_program

HOLE, D, NONE = None, "d & $x$ <b>", "none"
JOB: dict[str, Any] = {
    "title": "T",
    "x": "X",
    "y": "Y",
    "series": [
        {
            "name": D,
            "points": [{"x": 9.0, "y": 1.0, "label": "1", "n": 2}, HOLE, {"x": 8.0, "y": 7.0, "label": "16", "n": 1}],
        },
        {"name": NONE, "points": [{"x": 5.0, "y": 4.0, "label": "4", "n": 2}]},
    ],
    "notes": ["Arms differ in server version (d & $x$ <b>: 1; none: 2).", "word " * 60],
}
MODELS = """
from types import SimpleNamespace
class BenchmarkPoint(SimpleNamespace): pass
class UncertaintySeries(SimpleNamespace): pass
class LatencyThroughputUncertaintyData(SimpleNamespace): pass
"""
# As AIPerf's: for each series an oval, its line sorted by X with bars, and its name.
GENERATOR = """
import json
class Trace:
    def __init__(self, **about): self.__dict__.update({"fill": None, "name": None, **about})
    def update(self, **about): self.__dict__.update(about)
class Figure:
    def __init__(self, data): self.data, self.notes, self.layout = data, [], {}
    def add_annotation(self, **about): self.notes.append(about)
    def update_layout(self, **about): self.layout.update(about)
    def write_html(self, path, **_):
        path.write_text(json.dumps({"data": [vars(t) for t in self.data], "notes": self.notes, "layout": self.layout}))
class PlotGenerator:
    def create_uncertainty_plot(self, data):
        traces = []
        for one in data.series:
            points = sorted(one.points, key=lambda p: p.x_mean)
            traces.append(Trace(fill="toself", name=f"{one.name} CI"))
            traces.append(Trace(name=one.name, x=[p.x_mean for p in points], error_x=[1]))
        return Figure([*traces, Trace(name="something else")])
"""
RENDERER = """
import json
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
class Told(Figure):
    def savefig(self, path, **_):
        super().savefig(str(path) + ".real", format=path.suffix[1:])
        ax = self.axes[0]
        lines = {l.get_label(): [[str(v) for v in pair] for pair in l.get_xydata()] for l in ax.get_lines()}
        legend = [t.get_text() for t in ax.get_legend().get_texts()]
        notes = [[t.get_text(), t.get_parse_math()] for t in ax.texts]
        left = [len(ax.patches), len(ax.containers), len(ax.collections)]
        path.write_text(json.dumps({"lines": lines, "legend": legend, "notes": notes, "left": left}))
def render_matplotlib_uncertainty(data):
    figure = Told()
    ax = figure.subplots()
    for one in data.series:
        points = sorted(one.points, key=lambda p: p.x_mean)
        xs, ys = [p.x_mean for p in points], [p.y_mean for p in points]
        ax.plot(xs, ys, label=one.name)
        ax.errorbar(xs, ys, xerr=1, yerr=1, fmt="none")
        ax.add_patch(Ellipse((xs[0], ys[0]), 1, 1))
    ax.legend()
    return figure
"""


@pytest.fixture
def told(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the page holds, and what the picture."""
    for name, text in (
        ("core/plot_generator", GENERATOR),
        ("models/uncertainty", MODELS),
        ("renderers/matplotlib_uncertainty", RENDERER),
    ):
        path = tmp_path / "env" / "aiperf" / "plot" / f"{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(
        [sys.executable, "-P", aiperf_program.__file__],
        input=json.dumps(JOB | {"folder": str(out)}),
        env={**os.environ, "PYTHONPATH": str(tmp_path / "env")},
        text=True,
        check=True,
    )
    page, picture = ((out / f"figure.{end}").read_text(encoding="utf-8") for end in ("html", "svg"))
    return json.loads(page), json.loads(picture)


def test_curves_go_by_concurrency_and_end_at_a_hole(told: tuple[dict[str, Any], dict[str, Any]]) -> None:
    page, picture = told
    assert [(t["name"], t["x"], t["y"], t["text"]) for t in page["data"]] == [
        (D, [9.0, None, 8.0], [1.0, None, 7.0], ["1", "", "16"]),
        (NONE, [5.0], [4.0], ["4"]),
    ]
    assert {t["connectgaps"] for t in page["data"]} == {False}
    assert picture["lines"] == {D: [["9.0", "1.0"], ["nan", "nan"], ["8.0", "7.0"]], NONE: [["5.0", "4.0"]]}


def test_ovals_and_bars_are_taken_away(told: tuple[dict[str, Any], dict[str, Any]]) -> None:
    page, picture = told
    assert [(t["error_x"], t["error_y"]) for t in page["data"]] == [(None, None), (None, None)]
    assert picture["left"] == [0, 0, 0]
    assert picture["legend"] == [D, NONE]


def test_notes_stand_below_and_names_are_no_markup(told: tuple[dict[str, Any], dict[str, Any]]) -> None:
    page, picture = told
    [note] = page["notes"]
    first, *others = note["text"].split("<br>")
    assert first == "Arms differ in server version (d &amp; $x$ &lt;b&gt;: 1; none: 2)."
    assert " ".join(others) == ("word " * 60).strip()
    assert page["layout"]["margin"]["b"] == 90 + 14 * 3
    [[text, parsed]] = picture["notes"]
    assert (text.split("\n")[0], parsed) == ("Arms differ in server version (d & $x$ <b>: 1; none: 2).", False)
    assert " ".join(text.split("\n")[1:]) == ("word " * 60).strip()
