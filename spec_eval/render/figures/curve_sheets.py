"""Throughput figures into a folder: SVG, PNG, the plotted numbers as CSV, speed-ups, and where they all come from."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from spec_eval import __version__
from spec_eval.arms import Arm, Point
from spec_eval.curves import Comparison
from spec_eval.render import throughput as tables
from spec_eval.render.figures import aiperf_renderer, look, sheets
from spec_eval.render.figures import throughput as drawing
from spec_eval.render.words import printable

SCHEMA_VERSION = 1
SPEED_UP = "speed-up"


def gaps(found: Comparison) -> list[str]:
    """What is missing, or rests on some of its repeats alone; one line a level."""
    return [_gap(arm, point) for arm in found.arms for point in arm.points if point.holes]


def _gap(arm: Arm, point: Point) -> str:
    what = f"rests on {len(point.cells)} of {arm.plan.window.repeats} repeats" if point.cells else "no figures"
    return f"{arm.label}: {what} at concurrency {point.concurrency} ({'; '.join(point.holes)})"


def write(found: Sequence[Comparison], folder: Path, *, spread: bool, aiperf: Path | None) -> list[Path]:
    """All files, and provenance.json last; nothing where there is nothing to draw.

    aiperf: its executable, where AIPerf's own classes are to draw.
    """
    if not found:
        return []
    files: dict[str, bytes] = {}
    stems = names(found)
    for stem, comparison in zip(stems, found, strict=True):
        notes = _notes(comparison)
        if aiperf is None:
            pictures = _pictures(comparison, notes, spread=spread)
        else:
            pictures = aiperf_renderer.draw(comparison, notes, aiperf)
        files |= {f"{stem}{suffix}": content for suffix, content in pictures.items()}
        files[f"{stem}.csv"] = tables.table_csv([comparison]).encode(errors="replace")
    if text := tables.speed_up(found):
        files[f"{SPEED_UP}.md"] = text.encode(errors="replace")
        files[f"{SPEED_UP}.csv"] = tables.gains_csv(found).encode(errors="replace")
    files[sheets.PROVENANCE] = _provenance(found, files, by_aiperf=aiperf is not None).encode()
    return sheets.put(files, folder)


def names(found: Sequence[Comparison]) -> list[str]:
    """Of the files of each data set; two whose names are written alike are numbered."""
    plain = [f"throughput-{re.sub(r'[^A-Za-z0-9._-]+', '-', one.dataset).strip('-')}" for one in found]
    alike = [plain[:i].count(stem) for i, stem in enumerate(plain)]
    return [f"{stem}-{n + 1}" if n else stem for stem, n in zip(plain, alike, strict=True)]


def _notes(found: Comparison) -> list[str]:
    """Below the picture: holes, and all that differs beside the drafter."""
    return [printable(note) for note in (*(f"{gap}." for gap in gaps(found)), *found.differences)]


@look.applied()
def _pictures(found: Comparison, notes: Sequence[str], *, spread: bool) -> dict[str, bytes]:
    figure = drawing.curves(found, notes, spread=spread)
    look.settle(figure)
    return {".svg": look.svg(figure, drawing.title(found)), ".png": look.png(figure)}


def _provenance(found: Sequence[Comparison], files: Mapping[str, bytes], *, by_aiperf: bool) -> str:
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    figures = [
        {
            "name": stem,
            "title": drawing.title(comparison),
            "run_ids": [arm.plan.run_id for arm in comparison.arms],
            "baseline": comparison.baseline.plan.run_id if comparison.baseline else None,
            "differences": comparison.differences,
            "files": {file: d for file, d in digests.items() if Path(file).stem == stem},
        }
        for stem, comparison in zip(names(found), found, strict=True)
    ]
    if speed := {file: d for file, d in digests.items() if Path(file).stem == SPEED_UP}:
        figures.append({"name": SPEED_UP, "title": "Speed-up", "files": speed})
    document = {
        "schema_version": SCHEMA_VERSION,
        "spec_eval_version": __version__,
        "renderer": "aiperf" if by_aiperf else "matplotlib",
        "matplotlib_version": None if by_aiperf else matplotlib.__version__,
        "runs": [_run(arm) for comparison in found for arm in comparison.arms],
        "figures": figures,
    }
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _run(arm: Arm) -> dict[str, Any]:
    """What another person needs to make the curve again."""
    plan = arm.plan
    return {
        "run_id": plan.run_id,
        "arm": arm.label,
        "marks": arm.marks,
        "synthetic": plan.synthetic,
        "suite": plan.suite_name,
        "suite_sha256": plan.suite_sha256,
        "dataset": plan.dataset,
        "prompts_sha256": plan.prompts.sha256,
        "target": plan.target.model_dump(mode="json"),
        "server": arm.server,
        "whole": arm.manifest is not None,
        "sampling": plan.sampling.model_dump(mode="json"),
        "window": plan.window.model_dump(mode="json"),
        "aiperf": plan.aiperf.model_dump(mode="json"),
        "tokenizer": plan.tokenizer,
        "spec_eval_version": plan.spec_eval_version,
        "spec_eval_commit": plan.spec_eval_commit,
        "command": plan.command,
        "cells": [
            {
                "concurrency": cell.concurrency,
                "repeat": cell.repeat,
                "command": cell.command,
                "aiperf_version": cell.aiperf_version,
                "native": cell.native,
                "requests": cell.requests.model_dump(mode="json"),
                "dropped": cell.dropped.model_dump(mode="json") if cell.dropped else None,
                "server_window": cell.server_window.model_dump(mode="json"),
            }
            for point in arm.points
            for cell in point.cells
        ],
        "holes": {str(point.concurrency): point.holes for point in arm.points if point.holes},
    }
