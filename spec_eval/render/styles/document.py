"""What the card styles share: rows of several runs joined into tables, and what tells the runs apart.

A table is a heading. A cell is a row of it, whatever run it comes from: two runs with the same cell cannot both stand
in one document. Where the runs' settings differ, the document says in what, and every row names its run.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from spec_eval import tables
from spec_eval.errors import UsageError
from spec_eval.render import facts, words
from spec_eval.render.grid import outcomes
from spec_eval.render.markdown import escape, facts_table, named, table, warned
from spec_eval.store import Cell
from spec_eval.tables import SERVER_WIDE, RunReport

# A table may mix data sets, and says its temperature itself; both are looked at apart from the other settings.
_APART = ("temperature", "data_sha256")
DIFFER = "Where the runs differ"


@dataclass(frozen=True)
class Run:
    """A run as a card needs it. bins: its rows by prompt length, and totals: its cells as a whole, where wanted."""

    report: RunReport
    bins: RunReport | None = None
    totals: RunReport | None = None


@dataclass(frozen=True)
class Line:
    """One row of a joined table. name: without marks."""

    report: RunReport
    row: tables.Row
    name: str
    number: int

    def marked(self, *, numbered: bool) -> str:
        """With all that the figures are not, and the number of its run where runs have to be told apart."""
        found = words.marks(self.report, self.row)
        # A category stands here without the title of its made-up set.
        standin = self.row.standin and "stand-in" not in (*found, self.name.partition(" ")[0])
        more = {"stand-in": standin, f"run {self.number}": numbered}
        return words.marked(self.name, [*found, *(mark for mark, there in more.items() if there)])


@dataclass(frozen=True)
class Joined:
    """One table of the document. first: heading of its first column."""

    heading: str
    first: str
    lines: tuple[Line, ...]


def join(runs: Sequence[Run]) -> list[Joined]:
    """The rows of all runs by heading, in the order of the runs; categories in the order that the suite gives.

    UsageError where two runs hold the same cell, naming both.
    """
    grouped: dict[str, dict[str, Line]] = {}
    for number, run in enumerate(runs, 1):
        for heading, line in _lines(run.report, number):
            held = grouped.setdefault(heading, {}).get(line.name)
            if held is None or not held.row.outcome.planned:
                grouped[heading][line.name] = line
            elif line.row.outcome.planned:
                raise UsageError(
                    f"{held.row.run_id} and {line.row.run_id} both hold {line.name!r} of {heading!r}; give one of them"
                )
    return [_ordered(heading, list(lines.values())) for heading, lines in grouped.items()]


def binned(runs: Sequence[Run], wanted: Callable[[RunReport, Cell], bool]) -> list[Joined]:
    """For each wanted cell its rows by prompt length, and their pooled total last."""
    found = []
    for number, run in enumerate(runs, 1):
        if run.bins is None or run.totals is None:
            continue
        for cell in run.report.plan.cells:
            rows = [row for row in run.bins.rows if row.cell_id == cell.cell_id]
            total = [row for row in run.totals.rows if row.cell_id == cell.cell_id]
            if not rows or not wanted(run.report, cell):
                continue
            lines = [Line(run.report, row, str(row.label), number) for row in rows]
            lines += [Line(run.report, row, "all lengths, pooled", number) for row in total]
            place = f"{cell.table}: {cell.title}" if cell.table else cell.title
            found.append(Joined(f"{place}, by prompt length", "Prompt tokens, as the server counts", tuple(lines)))
    return found


def front(runs: Sequence[Run]) -> list[str]:
    """Title, with every mark that any of the runs has."""
    drafters = dict.fromkeys(run.report.plan.target.drafter or "drafter not named" for run in runs)
    marks = list(dict.fromkeys(mark for run in runs for mark in words.labels(run.report)))
    return [f"# {escape(words.marked(', '.join(drafters), marks))}"]


def back(runs: Sequence[Run], hardware: str | None) -> list[str]:
    """How each run was measured, and what its reader must know."""
    lines = ["", "## How it was measured"]
    for number, run in enumerate(runs, 1):
        report = run.report
        lines += ["", *([f"Run {number}, {escape(report.plan.run_id)}:", ""] if len(runs) > 1 else [])]
        lines += named(words.header(report, hardware))
        if report.warnings:
            lines += ["", "Warnings:", "", *warned(report.warnings)]
    if told := differences(runs, hardware):
        lines += ["", f"## {DIFFER}", ""]
        lines += [f"- {escape(sentence)}" for sentence in told]
    return lines


def merged(runs: Sequence[Run], of: Callable[[RunReport], list[facts.Fact]]) -> list[str]:
    """Lines of a table of facts; where runs tell different things, all of them, each with the numbers of its runs."""
    told: dict[str, dict[str, list[int]]] = {}
    for number, run in enumerate(runs, 1):
        for name, text in of(run.report):
            told.setdefault(name, {}).setdefault(text, []).append(number)
    rows = []
    for name, texts in told.items():
        everywhere = all(len(numbers) >= len(runs) for numbers in texts.values())
        shown = [text if everywhere else f"{text} ({_numbers(numbers)})" for text, numbers in texts.items()]
        rows.append((name, "; ".join(shown)))
    return facts_table(("Property", "Value"), rows)


def counted(joined: Joined, *, numbered: bool) -> list[str]:
    """Lines of the table of outcomes that goes under a table of figures."""
    names = [line.marked(numbered=numbered) for line in joined.lines]
    return table(*outcomes(names, [line.row for line in joined.lines]))


def footnote(joined: Joined, *, numbered: bool) -> list[str]:
    """A line under a table whose rows come from runs that were not measured alike."""
    numbers = dict.fromkeys(line.number for line in joined.lines)
    if not numbered or len(numbers) < 2:
        return []
    return ["", f"{_numbers(numbers).capitalize()} were not measured alike: see “{DIFFER}” below."]


def differences(runs: Sequence[Run], hardware: str | None) -> list[str]:
    """Sentences on the settings and facts in which the runs are not alike; none for a single run."""
    reports = [run.report for run in runs]
    if len(reports) < 2:
        return []
    found = [
        f"settings of run {number} are not known: it is not whole"
        for number, report in enumerate(reports, 1)
        if report.manifest is None
    ]
    keys = dict.fromkeys(
        key for one in reports if one.manifest for cell in one.manifest.settings.values() for key in cell
    )
    for key in keys:
        if key not in _APART:
            found += _unlike(key, [facts.setting(report.manifest, key) for report in reports])
    found += _unlike("engine", [report.plan.target.engine for report in reports])
    found += _unlike("engine version", [str((one.manifest and one.manifest.engine_version) or "") for one in reports])
    specifications = [dict(facts.specification(one.plan, one.manifest, hardware)) for one in reports]
    for name in ("Verifier", "Draft", "Hardware"):
        found += _unlike(name.lower(), [one[name] for one in specifications])
    for joined in join(runs):
        found += _temperatures(joined)
    return [*found, *_data(reports)]


def _lines(report: RunReport, number: int) -> Iterable[tuple[str, Line]]:
    """(heading, line) of each row; within a heading no two have the same name if anything tells them apart."""
    placed = [(_heading(report, row), Line(report, row, _name(report, row), number)) for row in report.rows]
    steps: tuple[Callable[[tables.Row, str], str], ...] = (
        lambda row, name: name if name == row.title else f"{row.title} / {name}",
        lambda row, name: f"{name}, c={row.concurrency}",
    )
    for longer in steps:
        seen = Counter((heading, line.name) for heading, line in placed)
        placed = [
            (heading, replace(line, name=longer(line.row, line.name)) if seen[heading, line.name] > 1 else line)
            for heading, line in placed
        ]
    return placed


def _heading(report: RunReport, row: tables.Row) -> str:
    """As the suite says, else the data set's own; data sets of a single row stand together."""
    if row.table is not None:
        return row.table
    if row.label == SERVER_WIDE:
        return "Totals of the server"
    temperature = f"temperature {words.NOTHING if row.temperature is None else f'{row.temperature:g}'}"
    return f"{'Data sets' if _alone(report, row) else row.title}, {temperature}"


def _name(report: RunReport, row: tables.Row) -> str:
    single = row.label is None or row.label == SERVER_WIDE or (row.table is None and _alone(report, row))
    return row.title if single else str(row.label)


def _alone(report: RunReport, row: tables.Row) -> bool:
    """Whether the row is all of its cell."""
    return sum(other.cell_id == row.cell_id for other in report.rows) == 1


def _ordered(heading: str, lines: list[Line]) -> Joined:
    cells = [cell for line in lines for cell in line.report.plan.cells if cell.cell_id == line.row.cell_id]
    order = list(dict.fromkeys(category for cell in cells for category in cell.order))
    lines.sort(key=lambda line: order.index(str(line.row.label)) if line.row.label in order else len(order))
    throughput = all((cell.member or "").startswith("speed-bench-throughput") for cell in cells) and bool(cells)
    categories = any(line.row.label not in (None, SERVER_WIDE) for line in lines)
    first = "Category" if categories else "Context length" if throughput else "Data set"
    return Joined(heading, first, tuple(lines))


def _unlike(name: str, values: Sequence[str]) -> list[str]:
    if len(set(values)) == 1:
        return []
    told = [f"{value or facts.NOT_KNOWN} (run {number})" for number, value in enumerate(values, 1)]
    return [f"{name}: {', '.join(told)}"]


def _temperatures(joined: Joined) -> list[str]:
    told: dict[str, list[int]] = {}
    for line in joined.lines:
        told.setdefault(facts.shown(line.row.temperature), []).append(line.number)
    if len(told) < 2 or len({line.number for line in joined.lines}) < 2:
        return []
    shown = ", ".join(f"{value} ({_numbers(numbers)})" for value, numbers in told.items())
    return [f"temperature of {joined.heading!r}: {shown}"]


def _data(reports: Sequence[RunReport]) -> list[str]:
    """Data sets of the same name with other rows."""
    told: dict[str, dict[str, list[int]]] = {}
    for number, report in enumerate(reports, 1):
        for cell in report.plan.cells:
            digest = (cell.prompts.sha256 or facts.NOT_KNOWN)[:12]
            told.setdefault(cell.dataset, {}).setdefault(digest, []).append(number)
    return [
        f"prompts of {dataset}: {', '.join(f'{digest} ({_numbers(numbers)})' for digest, numbers in digests.items())}"
        for dataset, digests in told.items()
        if len(digests) > 1
    ]


def _numbers(numbers: Iterable[int]) -> str:
    found = [str(number) for number in dict.fromkeys(numbers)]
    return f"{'run' if len(found) == 1 else 'runs'} {', '.join(found)}"
