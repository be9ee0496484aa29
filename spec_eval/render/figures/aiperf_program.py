"""Runs in AIPerf's environment, never in ours: points on standard input, pictures into the folder that they name.

PlotGenerator draws the page (plotly), its matplotlib twin the SVG and PNG, since an image of a page needs a browser.
Ovals, their entries in the legend and error bars are taken away; lines go on in order of concurrency, where AIPerf
sorts by X, and end at a hole.
"""

import html
import json
import sys
import textwrap
from pathlib import Path
from typing import Any


def main() -> None:
    """One figure, three files."""
    import matplotlib
    from aiperf.plot.core.plot_generator import PlotGenerator
    from aiperf.plot.models.uncertainty import BenchmarkPoint, LatencyThroughputUncertaintyData, UncertaintySeries
    from aiperf.plot.renderers.matplotlib_uncertainty import render_matplotlib_uncertainty

    matplotlib.rcParams["text.parse_math"] = False  # names come from outside: a dollar sign is one
    job: dict[str, Any] = json.load(sys.stdin)
    series = [
        UncertaintySeries(name=one["name"], points=[_point(BenchmarkPoint, p) for p in one["points"] if p])
        for one in job["series"]
    ]
    data = LatencyThroughputUncertaintyData(series=series, title=job["title"], x_label=job["x"], y_label=job["y"])
    folder = Path(job["folder"])
    _page(PlotGenerator().create_uncertainty_plot(data), job).write_html(folder / "figure.html", include_plotlyjs=True)
    picture = _picture(render_matplotlib_uncertainty(data), job)
    for suffix in ("svg", "png"):
        picture.savefig(folder / f"figure.{suffix}", dpi=160, bbox_inches="tight")


def _point(kind: Any, p: dict[str, Any]) -> Any:
    return kind(
        x_mean=p["x"], y_mean=p["y"], x_ci_low=p["x"], x_ci_high=p["x"], y_ci_low=p["y"], y_ci_high=p["y"],
        label=p["label"], n_runs=p["n"],
    )  # fmt: skip


def _page(figure: Any, job: dict[str, Any]) -> Any:
    """Only the curves are left."""
    places = {one["name"]: one["points"] for one in job["series"]}
    figure.data = [trace for trace in figure.data if trace.fill != "toself" and trace.name in places]
    for trace in figure.data:
        points = places[trace.name]
        trace.update(
            x=[p["x"] if p else None for p in points],
            y=[p["y"] if p else None for p in points],
            text=[p["label"] if p else "" for p in points],
            error_x=None,
            error_y=None,
            connectgaps=False,
        )
    if lines := _lines(job["notes"], 150):
        figure.add_annotation(
            text="<br>".join(map(html.escape, lines)), xref="paper", yref="paper", x=0, y=-0.14, showarrow=False,
            xanchor="left", yanchor="top", align="left", font={"size": 10},
        )  # fmt: skip
        figure.update_layout(margin={"b": 90 + 14 * len(lines)})
    return figure


def _lines(notes: list[str], width: int) -> list[str]:
    """A note that is too long for one line goes on in the next."""
    return [line for note in notes for line in textwrap.wrap(note, width)]


def _picture(figure: Any, job: dict[str, Any]) -> Any:
    """Likewise."""
    nan = float("nan")
    ax = figure.axes[0]
    for patch in list(ax.patches):
        patch.remove()
    for container in list(ax.containers):
        container.remove()
    places = {one["name"]: one["points"] for one in job["series"]}
    lines = [line for line in ax.get_lines() if line.get_label() in places]
    for line in lines:
        points = places[line.get_label()]
        line.set_data([p["x"] if p else nan for p in points], [p["y"] if p else nan for p in points])
    ax.legend(handles=lines)
    if notes := _lines(job["notes"], 120):
        ax.text(0, -0.12, "\n".join(notes), transform=ax.transAxes, size=7, va="top")
    return figure


if __name__ == "__main__":
    main()
