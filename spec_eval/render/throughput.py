"""Throughput runs as tables: a line for each level of concurrency, and speed-ups against the arm without a drafter."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from spec_eval.arms import Arm, Point, Spread, drafter
from spec_eval.curves import Comparison, Gain
from spec_eval.render import console
from spec_eval.render.words import NOTHING, printable
from spec_eval.store.windows import OK, PrefixCache, WindowCell

SCHEMA_VERSION = 1
X_NAME = "Output Token Throughput Per User (tokens/sec/user)"
Y_NAME = "Output Token Throughput (tokens/sec)"
NOTES = (
    f"X = AIPerf's {X_NAME}: the mean over requests of 1 / inter-token latency. Y = AIPerf's {Y_NAME}: tokens of "
    "completed requests / whole window. Repeats are averaged with equal weight.",
    "server Y = tokens that the server counted between the first and the last reading inside the window, a second; "
    "*: it counts an answer's tokens at its end. dropped = what the end of the window cut off, and Y leaves out.",
    "window AL = 1 + accepted / verification steps over the answers that the windows completed, which favour short "
    "ones: no acceptance length of the data set.",
)


def cell_line(cell: WindowCell) -> str:
    """One finished cell, for a person who waits."""
    if cell.outcome != OK:
        return _lost(cell)
    x, y = cell.average("output_token_throughput_per_user"), cell.average("output_token_throughput")
    sent = f"{_count(cell.requests.completed)} of {_count(cell.requests.dispatched)} requests"
    failed = f", {cell.requests.failed} failed" if cell.requests.failed else ""
    dropped = f", {cell.dropped.share:.0%} of {cell.dropped.basis} dropped" if cell.dropped else ""
    al = cell.drafts.acceptance_length if cell.drafts else None
    window = f", window AL {al:.3f}" if al is not None else ""
    warm = cell.prefix_cache
    window += f", {_share(warm)} of prompt tokens out of the prefix cache" if warm and warm.hits else ""
    return f"{cell.name}: {_number(y)} tok/s, {_number(x)} tok/s/user, {sent}{failed}{dropped}{window}"


def _lost(cell: WindowCell) -> str:
    """What became of a cell without figures."""
    return printable(f"{cell.name}: {cell.outcome}{f' ({cell.detail})' if cell.detail else ''}")


def heading(arm: Arm) -> str:
    """Data set, drafter and marks."""
    marks = "".join(f" ({mark})" for mark in arm.marks)
    return printable(f"{arm.plan.title}: {arm.label}{marks}")


def facts(arm: Arm) -> list[tuple[str, str]]:
    """What a reader needs before the first figure."""
    plan = arm.plan
    window, sampling = plan.window, plan.sampling.model_dump(exclude_none=True)
    version = arm.server_fact("engine_version") or "version not known"
    lines = [
        ("run", plan.run_id),
        ("engine", f"{plan.target.engine} {version}"),
        ("target", arm.server_fact("model") or plan.target.model or "not named"),
        ("drafter", drafter(plan)),
        *([("k", str(arm.k or "not known"))] if arm.drafts is not False else []),
        ("sampling", ", ".join(f"{name} {value}" for name, value in sampling.items())),
        (
            "window",
            f"{window.duration_s:g} s after {window.warmup_s:g} s of warm-up, grace {window.grace_s:g} s, "
            f"repeats {window.repeats}",
        ),
        ("prompts", f"{len(plan.prompts.units)} of {plan.prompts.source}, sha256 {(plan.prompts.sha256 or '')[:12]}"),
        ("AIPerf", f"{plan.aiperf.version} ({plan.aiperf.found}), tokenizer {plan.tokenizer or 'a stand-in'}"),
        ("overrides", ", ".join(f"{name} = {value}" for name, value in plan.overrides.items()) or "none"),
    ]
    if plan.synthetic:
        lines.append(("synthetic", plan.synthetic))
    lines += [("note", note) for note in (arm.manifest.notes if arm.manifest else ())]
    return [(name, printable(text)) for name, text in lines]


HEAD = ("concurrency", "X", "Y", "server Y", "dropped", "requests", "failed", "window AL", "repeats")


def row(point: Point) -> tuple[str, ...]:
    """As it stands in a table; a hole is a dash, and its reason stands in the last column."""
    star = "*" if any(cell.server_window.at_end for cell in point.cells) else ""
    sent = f"{_count(point.completed)} of {_count(point.dispatched)}" if point.cells else NOTHING
    dropped = f"{point.dropped.mean:.1%} of {point.dropped_of}" if point.dropped else NOTHING
    repeats = "; ".join([*([str(len(point.cells))] if point.cells else []), *point.holes])
    return (
        str(point.concurrency),
        _mean(point.x),
        _mean(point.y),
        _mean(point.server) + (star if point.server else ""),
        dropped,
        sent,
        _count(point.failed) if point.cells else NOTHING,
        NOTHING if point.acceptance_length is None else f"{point.acceptance_length:.4f}",
        repeats or NOTHING,
    )


def remarks(arm: Arm) -> list[str]:
    """What became of the cells without figures, and why a cell with figures lacks one of them."""
    reasons: dict[str, list[str]] = {}
    for cell in arm.cells:
        drafts = cell.drafts
        told = [("no server Y", cell.server_window.reason)]
        if arm.drafts is not False:
            told.append(("left out of window AL" if drafts else "no window AL", cell.drafts_reason))
            without = drafts.no_counters.items() if drafts else ()
            told += [
                ("answers without usable counters", f"{n} of {drafts.answers} {why}") for why, n in without if drafts
            ]
        if drafts and drafts.unknown_prompts:
            told.append(("answers to prompts that were not sent", str(drafts.unknown_prompts)))
        for name, why in told:
            if why is not None:
                reasons.setdefault(f"{name}: {why}", []).append(cell.name)
    found = [_lost(cell) for point in arm.points for cell in point.lost]
    if arm.drafts and arm.server_fact("speculative") is False:
        found.append(f"drafter {drafter(arm.plan)} is named, and the server says that it does not draft")
    found += [f"{text} ({', '.join(names)})" for text, names in reasons.items()]
    warm = [f"{cell.name} {_share(cache)}" for cell in arm.cells if (cache := cell.prefix_cache) and cache.hits]
    if warm:
        found.append(f"prompt tokens found in the prefix cache, so that nothing had to read them: {', '.join(warm)}")
    return [printable(line) for line in found]


def _share(cache: PrefixCache) -> str:
    return f"{cache.hits / cache.queries:.1%}"


GAINS = ("arm", "concurrency", "Y ratio", "X ratio")


def gain_row(gain: Gain) -> tuple[str, ...]:
    """As it stands in a table."""
    return gain.arm.label, str(gain.concurrency), _ratio(gain.y_ratio), _ratio(gain.x_ratio)


def stop_lines(found: Comparison) -> list[str]:
    """Where drafting stops to pay, for each arm beside the baseline."""
    return [
        printable(f"{arm.label}: {_stop([gain for gain in found.gains if gain.arm is arm])}")
        for arm in found.arms
        if arm.label in found.stops
    ]


def _stop(gains: Sequence[Gain]) -> str:
    known = {gain.concurrency: gain.y_ratio for gain in gains if gain.y_ratio is not None}
    if not known:
        return "no concurrency has figures of both"
    below = [level for level, ratio in known.items() if ratio < 1]
    if not below:
        return "none measured where Y is below the baseline's"
    first = min(below)
    again = [str(level) for level in sorted(known) if level > first and level not in below]
    after = f", but not at {', '.join(again)}" if again else ""
    return f"Y falls below the baseline's from concurrency {first} on{after}"


def no_baseline(found: Comparison) -> str:
    """Why several arms have no speed-up."""
    if len(found.bare) > 1:
        return f"Several runs have no drafter ({', '.join(found.bare)}); choose one with --baseline RUN."
    return "No arm is known to run without a drafter; name one with --baseline RUN."


def markdown(found: Sequence[Comparison]) -> str:
    """The report."""
    parts: list[str] = []
    for comparison in found:
        for arm in comparison.arms:
            parts += [f"## {heading(arm)}", ""]
            parts += [f"- {name}: {text}" for name, text in facts(arm)]
            parts += ["", _table(HEAD, [row(point) for point in arm.points]), ""]
            told = remarks(arm)
            parts += [*(f"- {line}" for line in told), *([""] if told else [])]
        parts += _speed_up(comparison)
    return "\n".join([*parts, *(f"- {note}" for note in NOTES)]) + "\n"


def show(found: Sequence[Comparison], terminal: Console) -> None:
    """The same on a terminal."""
    for comparison in found:
        for arm in comparison.arms:
            terminal.print(Text(heading(arm), style="bold"))
            for name, text in facts(arm):
                terminal.print(Text.assemble((f"{name}: ", "dim"), text), soft_wrap=True)
            terminal.print(console.table(HEAD, [row(point) for point in arm.points]))
            for line in remarks(arm):
                terminal.print(Text(line), soft_wrap=True)
        if comparison.gains:
            terminal.print(console.table(GAINS, [gain_row(gain) for gain in comparison.gains]))
        without = [no_baseline(comparison)] if comparison.lacks_baseline else []
        for line in (*without, *stop_lines(comparison), *comparison.differences):
            terminal.print(Text(printable(line)), soft_wrap=True)
    for note in NOTES:
        terminal.print(Text(note, style="dim"), soft_wrap=True)


def speed_up(found: Sequence[Comparison]) -> str:
    """The table against the baseline alone; empty where there is no baseline."""
    parts = [line for comparison in found for line in _speed_up(comparison)]
    return "\n".join(parts).rstrip() + "\n" if parts else ""


def _speed_up(found: Comparison) -> list[str]:
    """With the marks of its arms, since it stands in a file of its own; empty for a single arm."""
    if len(found.arms) == 1:
        return []
    lines = [
        f"## {printable(found.title)}: against {printable(found.baseline.label) if found.baseline else 'no baseline'}",
        "",
    ]
    if found.baseline is None:
        lines += [printable(no_baseline(found)), ""]
    else:
        lines += [_table(GAINS, [gain_row(gain) for gain in found.gains]), ""]
        lines += [*(f"- {line}" for line in stop_lines(found)), ""]
    marked = [f"{arm.label}: {', '.join(arm.marks)}" for arm in found.arms if arm.marks]
    notes = [f"- {printable(line)}" for line in (*marked, *found.differences)]
    return [*lines, *notes, *([""] if notes else [])]


def document(found: Sequence[Comparison]) -> str:
    """JSON: AIPerf's numbers to the last digit, null where there are none."""
    runs = [_run(comparison, arm) for comparison in found for arm in comparison.arms]
    gains = [
        {
            "dataset": c.dataset,
            "baseline": c.baseline.plan.run_id if c.baseline else None,
            "rows": [
                {
                    "run_id": g.arm.plan.run_id,
                    "arm": g.arm.label,
                    "concurrency": g.concurrency,
                    "y_ratio": g.y_ratio,
                    "x_ratio": g.x_ratio,
                }
                for g in c.gains
            ],
            "stops_paying_at": c.stops,
            "differences": c.differences,
        }
        for c in found
    ]
    content = {"schema_version": SCHEMA_VERSION, "kind": "throughput", "runs": runs, "speed_up": gains}
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _run(comparison: Comparison, arm: Arm) -> dict[str, Any]:
    plan = arm.plan
    return {
        "run_id": plan.run_id,
        "suite": plan.suite_name,
        "suite_sha256": plan.suite_sha256,
        "dataset": comparison.dataset,
        "arm": arm.label,
        "marks": arm.marks,
        "synthetic": plan.synthetic,
        "standin": plan.prompts.standin,
        "whole": arm.manifest is not None,
        "engine": plan.target.engine,
        "engine_version": arm.server_fact("engine_version"),
        "remarks": remarks(arm),
        "model": arm.server_fact("model") or plan.target.model,
        "drafter": plan.target.drafter,
        "k": arm.k,
        "sampling": plan.sampling.model_dump(mode="json"),
        "window": plan.window.model_dump(mode="json"),
        "prompts_sha256": plan.prompts.sha256,
        "aiperf": plan.aiperf.model_dump(mode="json"),
        "overrides": plan.overrides,
        "points": [point_object(point) for point in arm.points],
        "cells": [cell.model_dump(mode="json") for point in arm.points for cell in point.cells],
        "lost_cells": [cell.model_dump(mode="json") for point in arm.points for cell in point.lost],
    }


def point_object(point: Point) -> dict[str, Any]:
    """One level."""
    return {
        "concurrency": point.concurrency,
        "x": _spread(point.x),
        "y": _spread(point.y),
        "server_tokens_per_second": _spread(point.server),
        "dropped_share": _spread(point.dropped),
        "dropped_of": point.dropped_of,
        "dispatched": point.dispatched,
        "completed": point.completed,
        "failed": point.failed,
        "window_acceptance_length": point.acceptance_length,
        "repeats": len(point.cells),
        "holes": list(point.holes),
    }


def table_csv(found: Sequence[Comparison]) -> str:
    """A line for each level of each arm, full precision; empty where there is no figure."""
    text = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for comparison in found:
        for arm in comparison.arms:
            for point in arm.points:
                line = csv_line(arm, point)
                if writer is None:
                    writer = csv.DictWriter(text, fieldnames=list(line), lineterminator="\n")
                    writer.writeheader()
                writer.writerow(line)
    return text.getvalue()


def gains_csv(found: Sequence[Comparison]) -> str:
    """A line for each level of each arm beside the baseline, full precision."""
    text = io.StringIO()
    names = ("dataset", "arm", "run_id", "baseline", "concurrency", "y_ratio", "x_ratio", "marks")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for c in found:
        base = c.baseline.plan.run_id if c.baseline else None
        for g in c.gains:
            ids = (c.dataset, printable(g.arm.label), g.arm.plan.run_id, base)
            marks = "; ".join(dict.fromkeys([*g.arm.marks, *(c.baseline.marks if c.baseline else ())]))
            writer.writerow([*ids, g.concurrency, g.y_ratio, g.x_ratio, marks or None])
    return text.getvalue()


def csv_line(arm: Arm, point: Point) -> dict[str, Any]:
    """One level, flat."""
    names = (("x", point.x), ("y", point.y))
    spreads = {
        f"{name}{suffix}": getattr(spread, part) if spread else None
        for name, spread in names
        for suffix, part in (("", "mean"), ("_low", "low"), ("_high", "high"))
    }
    return {
        "run_id": arm.plan.run_id,
        "dataset": arm.plan.dataset,
        "arm": printable(arm.label),
        "concurrency": point.concurrency,
        **spreads,
        "repeats": len(point.cells),
        "server_tokens_per_second": point.server.mean if point.server else None,
        "dropped_share": point.dropped.mean if point.dropped else None,
        "dropped_of": point.dropped_of,
        "dispatched": point.dispatched,
        "completed": point.completed,
        "failed": point.failed,
        "window_acceptance_length": point.acceptance_length,
        "holes": "; ".join(point.holes) or None,
        "marks": "; ".join(arm.marks) or None,
    }


def _spread(spread: Spread | None) -> dict[str, float | int] | None:
    return (
        {"mean": spread.mean, "low": spread.low, "high": spread.high, "repeats": spread.n}
        if spread is not None
        else None
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(printable(text).replace('|', '/') for text in line)} |" for line in lines)


def _mean(spread: Spread | None) -> str:
    return NOTHING if spread is None else _number(spread.mean)


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _ratio(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)
