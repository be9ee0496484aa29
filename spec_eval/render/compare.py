"""Two runs side by side as text, Markdown and a document for JSON."""

from typing import Any

from spec_eval.comparability import Comparability, shown
from spec_eval.compare import Comparison, Delta, Row
from spec_eval.pairs import Side
from spec_eval.render import console, markdown
from spec_eval.render.grid import Grid
from spec_eval.render.json import interval
from spec_eval.render.words import NOTHING, number, printable

SCHEMA_VERSION = 1
_ALWAYS = ("engine", "engine_version", "target", "drafter")
_DEFINITIONS = (
    "AL of either run is over the conversations that both measured whole; change = B / A - 1, paired by conversation",
    "rate and positions: B - A in percentage points, ± half of the 95% interval",
)


def text(comparison: Comparison) -> str:
    """For a terminal."""
    lines = [f"{name}: {printable(value)}" for name, value in header(comparison)]
    tables = [console.plain(*grid) for grid in grids(comparison)]
    return "".join(f"{line}\n" for line in lines) + "".join(f"\n{table}" for table in tables)


def render(comparison: Comparison) -> str:
    """As Markdown."""
    lines = ["## comparison", ""]
    lines += [f"- **{markdown.escape(name)}**: {markdown.escape(value)}" for name, value in header(comparison)]
    for grid in grids(comparison):
        lines += ["", *markdown.table(*grid)]
    return "\n".join(lines) + "\n"


def header(comparison: Comparison) -> list[tuple[str, str]]:
    """(name, text) of everything that a reader needs before the first figure: differing settings first."""
    return [
        ("A", comparison.a.name),
        ("B", comparison.b.name),
        *settings(comparison.comparability),
        *facts(comparison),
        *([("definition", one) for one in _DEFINITIONS] if comparison.overall else []),
    ]


def settings(judged: Comparability) -> list[tuple[str, str]]:
    """What differs, what was allowed to, and what nobody knows."""
    lines = [("allowed to differ" if d.allowed else "differs", d.sentence()) for d in judged.differences]
    lines += [("not comparable", problem) for problem in judged.problems]
    lines += [("allowed, and does not differ", key) for key in idle(judged)]
    if judged.unknown:
        lines.append(("unknown in both", ", ".join(judged.unknown)))
    return lines


def idle(judged: Comparability) -> list[str]:
    """Keys that were allowed to differ and do not."""
    return [key for key in judged.allowed if all(d.key != key for d in judged.differences)]


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """What may differ: the main ones always, the others where they do."""
    return [
        (name, shown(a) if a == b else f"{shown(a)} against {shown(b)}")
        for name, a, b in comparison.facts
        if name in _ALWAYS or a != b
    ]


def grids(comparison: Comparison) -> list[Grid]:
    """Acceptance lengths, then rates and positions; none where nothing may be compared."""
    if comparison.overall is None:
        return []
    rows = [*comparison.rows, comparison.overall]
    k = max(len(row.positions) for row in rows)
    lengths = (
        ["", "AL A", "AL B", "change", "95% interval", "correlation", "pairs", "left out", "B is"],
        [_length(row) for row in rows],
    )
    shares = (
        ["", "rate", *(f"pos {i}" for i in range(1, k + 1))],
        [[_name(row), *(_points(one) for one in _shares(row, k))] for row in rows],
    )
    return [lengths, shares]


def _name(row: Row) -> str:
    parts = [part for part in (row.cell, row.category) if part is not None]
    return " / ".join(parts) or "overall, pooled"


def _length(row: Row) -> list[str]:
    one = row.acceptance_length
    return [
        _name(row),
        number(one.a),
        number(one.b),
        _signed(one.value, "{:+.2%}"),
        NOTHING if one.low is None or one.high is None else f"[{one.low:+.2%}, {one.high:+.2%}]",
        number(one.correlation, 2),
        str(row.used),
        str(row.left_out),
        row.state or NOTHING,
    ]


def _shares(row: Row, k: int) -> list[Delta | None]:
    return [row.acceptance_rate, *row.positions, *[None] * (k - len(row.positions))]


def _points(one: Delta | None) -> str:
    if one is None or one.value is None:
        return NOTHING
    half = "" if one.low is None or one.high is None else f" ±{50 * (one.high - one.low):.2f}"
    return f"{100 * one.value:+.2f}{half}"


def _signed(value: float | None, form: str) -> str:
    return NOTHING if value is None else form.format(value)


def document(comparison: Comparison) -> dict[str, Any]:
    """Shares as fractions; null where nothing is known."""
    return {
        "schema_version": SCHEMA_VERSION,
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        **judgement(comparison.comparability),
        "facts": [{"name": name, "a": a, "b": b} for name, a, b in comparison.facts],
        "rows": [_row(row) for row in comparison.rows],
        "overall": _row(comparison.overall) if comparison.overall else None,
    }


def judgement(judged: Comparability) -> dict[str, Any]:
    """Of the settings."""
    return {
        "comparable": judged.comparable,
        "problems": list(judged.problems),
        "differences": [
            {"key": d.key, "a": d.a, "b": d.b, "cells": list(d.cells), "allowed": d.allowed} for d in judged.differences
        ],
        "allowed": list(judged.allowed),
        "unknown_in_both": list(judged.unknown),
    }


def _side(side: Side) -> dict[str, Any]:
    return {"name": side.name, "measured": side.measured, "ok": side.ok, "settings": side.settings}


def _row(row: Row) -> dict[str, Any]:
    return {
        "cell": row.cell,
        "category": row.category,
        "pairs": row.used,
        "left_out": row.left_out,
        "enough_pairs": row.enough,
        "state": row.state,
        "acceptance_length": _delta(row.acceptance_length),
        "acceptance_rate": _delta(row.acceptance_rate),
        "positions": [_delta(one) for one in row.positions],
    }


def _delta(one: Delta) -> dict[str, Any]:
    change = interval(one.value, one.low, one.high)
    return {"a": one.a, "b": one.b, "change": change, "n": one.n, "correlation": one.correlation}
