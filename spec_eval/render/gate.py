"""A gate's verdict as text, Markdown, JSON and JUnit XML: the same input gives the same bytes."""

from collections.abc import Sequence
from typing import Any, Literal
from xml.etree import ElementTree

from spec_eval.gate import CONFIDENCE, Gate, Ruling, Verdict
from spec_eval.render import compare, console, markdown
from spec_eval.render.grid import Grid
from spec_eval.render.json import interval
from spec_eval.render.words import NOTHING, printable

SCHEMA_VERSION = 1
METHOD = f"closed form, no seed; one-sided {CONFIDENCE:.0%} bounds over pairs of conversations"
OnInconclusive = Literal["exit3", "pass", "fail"]


def sentence(gate: Gate, on_inconclusive: OnInconclusive = "exit3") -> str:
    """The last line of every format for people."""
    let = ""
    if gate.verdict is Verdict.INCONCLUSIVE and on_inconclusive != "exit3":
        let = f" (taken as {on_inconclusive}, as --on-inconclusive says)"
    return printable(f"{gate.sentence()}{let}")


def text(gate: Gate, on_inconclusive: OnInconclusive) -> str:
    """For a terminal."""
    lines = [f"{name}: {printable(value)}" for name, value in _header(gate)]
    tables = [console.plain(*grid) for grid in _grids(gate)]
    reasons = [f"{name}: {printable(reason)}" for name, reason in _reasons(gate)]
    blocks = ["".join(f"{line}\n" for line in block) for block in (lines, reasons) if block]
    return "\n".join([blocks[0], *tables, *blocks[1:], f"{sentence(gate, on_inconclusive)}\n"])


def render(gate: Gate, on_inconclusive: OnInconclusive) -> str:
    """As Markdown, for the summary of a CI job."""
    lines = [f"## gate: {gate.verdict}", ""]
    lines += [f"- **{markdown.escape(name)}**: {markdown.escape(value)}" for name, value in _header(gate)]
    for grid in _grids(gate):
        lines += ["", *markdown.table(*grid)]
    if reasons := _reasons(gate):
        lines += ["", *(f"- {markdown.escape(name)}: {markdown.escape(reason)}" for name, reason in reasons)]
    return "\n".join([*lines, "", markdown.escape(sentence(gate, on_inconclusive)), ""])


def _header(gate: Gate) -> list[tuple[str, str]]:
    comparison = gate.comparison
    return [
        ("baseline (A)", comparison.a.name),
        ("candidate (B)", comparison.b.name),
        ("method", METHOD),
        *compare.settings(comparison.comparability),
        *compare.facts(comparison),
    ]


def _grids(gate: Gate) -> list[Grid]:
    """The rules, then acceptance lengths by category; these are judged only where a rule names them."""
    if not gate.rulings:
        return []
    columns = ["", "verdict", "baseline", "candidate", "change", "98% bounds", "n"]
    return [(columns, [_line(one) for one in gate.rulings]), *compare.grids(gate.comparison)[:1]]


def _line(one: Ruling) -> list[str]:
    share = not one.text.startswith("acceptance_length")
    unit = " pp" if share else "%"

    def figure(value: float | None) -> str:
        return NOTHING if value is None else f"{value:.2%}" if share else f"{value:.4f}"

    def change(value: float | None) -> str:
        return NOTHING if value is None else f"{100 * value:+.2f}{unit}"

    bounds = NOTHING if one.low is None else f"[{change(one.low)}, {change(one.high)}]"
    return [one.text, one.verdict, figure(one.baseline), figure(one.candidate), change(one.change), bounds, str(one.n)]


def _reasons(gate: Gate) -> list[tuple[str, str]]:
    return [(f"{one.verdict}  {one.text}", one.reason) for one in gate.rulings]


def document(gate: Gate, on_inconclusive: OnInconclusive) -> dict[str, Any]:
    """Shares as fractions; null where nothing is known."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": gate.verdict,
        "on_inconclusive": on_inconclusive,
        "sentence": sentence(gate, on_inconclusive),
        "method": METHOD,
        "rules": [_rule(one) for one in gate.rulings],
        "comparison": compare.document(gate.comparison),
    }


def _rule(one: Ruling) -> dict[str, Any]:
    return {
        "rule": one.text,
        "verdict": one.verdict,
        "reason": one.reason,
        "n": one.n,
        "baseline": one.baseline,
        "candidate": one.candidate,
        "change": interval(one.change, one.low, one.high),
        "chance": one.chance,
        "shown_from": one.shown_from,
        "found_from": one.found_from,
        "pairs_needed": one.pairs_needed,
    }


def junit(gate: Gate, on_inconclusive: OnInconclusive) -> str:
    """One test case a rule; without a time, since nothing was timed."""
    cases = gate.rulings or (Ruling("comparable", Verdict.NOT_COMPARABLE, gate.sentence()),)
    tags = [_tag(one.verdict, on_inconclusive) for one in cases]
    suite = ElementTree.Element(
        "testsuite",
        name="spec-eval gate",
        tests=str(len(cases)),
        failures=str(tags.count("failure")),
        errors=str(tags.count("error")),
        skipped=str(tags.count("skipped")),
    )
    for one, tag in zip(cases, tags, strict=True):
        case = ElementTree.SubElement(suite, "testcase", classname="spec-eval.gate", name=printable(one.text))
        if tag is not None:
            ElementTree.SubElement(case, tag, message=printable(one.reason), type=one.verdict)
        else:
            ElementTree.SubElement(case, "system-out").text = printable(one.reason)
    ElementTree.SubElement(suite, "system-out").text = _facts(gate, on_inconclusive)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _tag(verdict: Verdict, on_inconclusive: OnInconclusive) -> str | None:
    if verdict is Verdict.INCONCLUSIVE:
        return {"exit3": "error", "pass": "skipped", "fail": "failure"}[on_inconclusive]
    return {Verdict.PASS: None, Verdict.FAIL: "failure"}.get(verdict, "error")


def _facts(gate: Gate, on_inconclusive: OnInconclusive) -> str:
    lines: Sequence[str] = [f"{name}: {printable(value)}" for name, value in _header(gate)]
    return "\n".join([*lines, sentence(gate, on_inconclusive)])
