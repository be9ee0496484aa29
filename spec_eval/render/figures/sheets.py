"""Figures into a folder: SVG, PNG, the plotted numbers as CSV, and where they all come from."""

import contextlib
import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib

from spec_eval import __version__, jsontext
from spec_eval.errors import UsageError
from spec_eval.render.figures import acceptance, look
from spec_eval.render.figures.charts import Arm, Chart, Point
from spec_eval.render.json import about

SCHEMA_VERSION = 1
PROVENANCE = "provenance.json"
_DRAWING = {
    "positions": acceptance.positions,
    "acceptance-by-category": acceptance.categories,
    "acceptance-by-length": acceptance.lengths,
}


def write(arms: Sequence[Arm], charts: Sequence[Chart], notes: Sequence[str], folder: Path) -> list[Path]:
    """All files of the charts, and provenance.json last; UsageError where the folder cannot be written."""
    files = {name: content for chart in charts for name, content in _files(chart).items()}
    files[PROVENANCE] = _provenance(arms, charts, notes, files).encode()
    return put(files, folder)


def put(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write the files by name; UsageError where the folder cannot be written.

    Files that an earlier provenance.json names, and that are still as it left them, are removed first: a figure of
    other runs must not stand beside this provenance.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror}); give another folder with -o") from error
    return [folder / name for name in files]


def numbers(chart: Chart) -> str:
    """Every point that is drawn, and every group that is left out because it is empty."""
    rows = [_line(chart, point) for point in chart.points]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@look.applied()
def _files(chart: Chart) -> dict[str, bytes]:
    figure = _DRAWING[chart.name](chart)
    look.settle(figure)
    return {
        f"{chart.name}.svg": look.svg(figure, acceptance.title(chart)),
        f"{chart.name}.png": look.png(figure),
        f"{chart.name}.csv": numbers(chart).encode(errors="replace"),
    }


def _line(chart: Chart, point: Point) -> dict[str, Any]:
    row, plan, estimate = point.row, point.arm.report.plan, point.estimate
    overall = point.group.overall
    line: dict[str, Any] = {
        "run_id": plan.run_id,
        "arm": point.arm.label,
        "drafter": plan.target.drafter,
        "row": "overall" if overall else "row",
        "table": None if overall else row.table,
        "title": None if overall else row.title,
        "dataset": None if overall else row.dataset,
        "group": point.group.name,
        **({chart.along: point.at} if chart.along else {}),
        "value": estimate.value if estimate else None,
        "low": estimate.low if estimate else None,
        "high": estimate.high if estimate else None,
        "conversations": estimate.n if estimate else None,
        "empty": estimate is None,
        "note": point.note,
        "partial": row.partial,
        "standin": row.standin,
        "labels": "; ".join(point.arm.marks) or None,
        "synthetic": plan.synthetic,
    }
    return {name: value.replace("\r", " ") if isinstance(value, str) else value for name, value in line.items()}


def _provenance(arms: Sequence[Arm], charts: Sequence[Chart], notes: Sequence[str], files: dict[str, bytes]) -> str:
    document = {
        "schema_version": SCHEMA_VERSION,
        "spec_eval_version": __version__,
        "renderer": "matplotlib",
        "matplotlib_version": matplotlib.__version__,
        "runs": [
            {
                **about(arm.report),
                "arm": arm.label,
                "marks": arm.marks,
                "spec_eval_version": arm.report.plan.spec_eval_version,
                "spec_eval_commit": arm.report.plan.spec_eval_commit,
                "warnings": [asdict(warning) for warning in arm.report.warnings],
            }
            for arm in arms
        ],
        "figures": [
            {
                "name": chart.name,
                "title": acceptance.title(chart),
                "run_ids": [arm.report.plan.run_id for arm in chart.arms],
                "files": {
                    name: hashlib.sha256(content).hexdigest()
                    for name, content in files.items()
                    if name.rpartition(".")[0] == chart.name
                },
            }
            for chart in charts
        ],
        "notes": list(notes),
    }
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _clear(folder: Path) -> None:
    """Only what is ours: files in this very folder whose bytes are those that an earlier provenance.json names."""
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        document = jsontext.loads((folder / PROVENANCE).read_bytes())
        for name, digest in ((n, d) for figure in document["figures"] for n, d in figure["files"].items()):
            path = folder / Path(name).name
            if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
                path.unlink()
