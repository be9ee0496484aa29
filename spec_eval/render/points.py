"""What stands above the figures of points that another tool measured: speed as its user sees it, and what is amiss."""

from spec_eval.store import Point
from spec_eval.tables import RunReport


def lines(report: RunReport) -> list[tuple[str, str]]:
    """(name, text), some for each point; none for a run of any other kind."""
    points = report.manifest.points if report.manifest else {}
    titles = {cell.cell_id: cell.title for cell in report.plan.cells}
    return [(f"{name}, {titles[cell_id]}", text) for cell_id, point in points.items() for name, text in _lines(point)]


def _lines(point: Point) -> list[tuple[str, str]]:
    found = []
    if speed := _speed(point):
        found.append(("interactivity", speed))
    if point.no_figure:
        found.append(("no figure", point.no_figure))
    if point.missing:
        found.append(("read as missing", ", ".join(point.missing)))
    return found


def _speed(point: Point) -> str:
    """Tokens per second that one user gets, and what it is made of."""
    load, parts = point.load, []
    if (each := point.tokens_per_second_per_user) is not None:
        parts.append(f"{each:.2f} tokens/s/user (1000 / mean TPOT {load['mean_tpot_ms']:.2f} ms)")
    if (first := load.get("mean_ttft_ms")) is not None:
        parts.append(f"mean TTFT {first:.2f} ms")
    if (output := load.get("output_throughput")) is not None:
        parts.append(f"{output:.2f} output tokens/s in all")
    return ", ".join(parts)
