"""Every key of every output stands in docs/design/output.md, and every key of the page is written by some output."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from spec_eval import cli, compare, curves, gate, sides, tables
from spec_eval.prompts import Conversation, PromptSet, mrcr
from spec_eval.prompts.conversation import Reference, index
from spec_eval.records import RequestRecord
from spec_eval.render import compare as render_compare
from spec_eval.render import csv as render_csv
from spec_eval.render import gate as render_gate
from spec_eval.render import json as render_json
from spec_eval.render import throughput
from spec_eval.render.figures import charts, curve_sheets, sheets
from spec_eval.rules import read
from spec_eval.run.grading import grades
from spec_eval.store import (
    Cell,
    Manifest,
    NotExact,
    Plan,
    Point,
    PromptRef,
    Reconciliation,
    RunFolder,
    SessionEnd,
    Target,
)
from spec_eval.store.windows import WindowCell, WindowManifest, WindowPlan, WindowSession
from spec_eval.suite import Sampling, Window
from tests import windows
from tests.factories import answered, cell, failed, from_histogram, from_steps, not_sent, plan, run_folder, session_end
from tests.llamacpp_server import LlamaCppServer
from tests.output_page import PAGE, SHAPES, Paths, model_paths, not_written, off_the_page, paths
from tests.output_page import tables as tables_of
from tests.sides import AFTER, BEFORE, run

KEYS = tables_of(PAGE.read_text(encoding="utf-8"))
TOTALS = {"steps": 2, "drafted": 4, "accepted": 3, "positions": [2, 1]}


def parsed(text: str) -> Any:
    return json.loads(text)


def columns(text: str) -> Paths:
    """Of a CSV; a column of position 2 and on is one of position 1 again."""
    (head,) = [next(csv.reader(io.StringIO(text)))]
    return {(re.sub(r"^position_\d+", "position_1", name),) for name in head}


def requests(where: Path) -> RunFolder:
    """Two prompts, twice each, one answer without counters, one broken, one failed, one not sent."""
    units = [("a", "one", 1), ("b", "two", 1), ("c", "two", 3)]
    of = plan(cell(units, repeats=2), choices={"top_p": "0.95"}, overrides={"limit": 3})
    full = from_steps([(2, 2), (2, 1)], k=2)
    records = [
        *(answered(full, prompt_id=p, category=c, repeat=r) for p, c in (("a", "one"), ("b", "two")) for r in (0, 1)),
        answered(None, prompt_id="c", category="two"),
        answered(from_histogram((1, 1), accepted=5), prompt_id="c", category="two", turn=1),
        failed(prompt_id="c", category="two", turn=2),
        not_sent(prompt_id="c", category="two", repeat=1),
    ]
    known = Reconciliation(status="differs", reason="foreign traffic", server=TOTALS, requests=TOTALS)
    return run_folder(where, of, records, reconciliation=known)


def totals(where: Path) -> RunFolder:
    """What another tool kept of a server's totals."""
    point = Point(planned=2, ok=1, failed=1, steps=4, drafted=8, accepted=2, load={"mean_tpot_ms": 8.0})
    of = plan(cell((), cell_id="c=1"), run_id="points", server_wide=True, origin="imported")
    return run_folder(where, of, (), points={"c=1": point})


@pytest.fixture(scope="module")
def curved(tmp_path_factory: pytest.TempPathFactory) -> list[curves.Comparison]:
    where = tmp_path_factory.mktemp("windows")
    curve: windows.Curve = {1: [(100.0, 90.0)] * 2, 4: ["timed out"] * 2}
    folders = [
        windows.folder(where, "r1", "d", curve),
        windows.folder(where, "r2", "none", curve, overrides={"limit": 1}),
    ]
    return curves.read(folders)


@pytest.fixture(scope="module")
def plotted(tmp_path_factory: pytest.TempPathFactory, curved: list[curves.Comparison]) -> Path:
    where = tmp_path_factory.mktemp("plots")
    arms = charts.read([requests(where)])
    drawn, notes = charts.all_of(arms)
    sheets.write(arms, drawn, notes, where / "requests")
    curve_sheets.write(curved, where / "throughput", spread=False, aiperf=None)
    return where


def check(heading: str, written: Paths) -> None:
    assert off_the_page(written, KEYS[heading]) == []
    assert not_written(written, KEYS[heading]) == []


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in names}


def test_a_report(tmp_path: Path) -> None:
    found = [parsed(render_json.render([tables.build(make(tmp_path))])) for make in (requests, totals)]
    runs = [one for document in found for one in document["runs"]]
    rows = [
        one for document in found for one in (*document["rows"], document["overall"], *[r["overall"] for r in runs])
    ]
    check("report --format json", paths([document | {"runs": [], "rows": [], "overall": {}} for document in found]))
    check("A run", paths([run | {"overall": {}} for run in runs]))
    check("A row", paths(rows))


def test_a_report_as_csv(tmp_path: Path) -> None:
    check("report --format csv", columns(render_csv.render([tables.build(requests(tmp_path))])))


def test_a_throughput_report(curved: list[curves.Comparison]) -> None:
    document = parsed(throughput.document(curved))
    runs = document["runs"]
    assert all(set(one) == set(WindowCell.model_fields) for run in runs for one in run["cells"])
    check("report --format json, throughput", paths(document | {"runs": []}))
    check("A throughput run", paths([run | {"points": []} for run in runs]))
    check("A level", paths([run["points"] for run in runs]))
    check("report --format csv, throughput", columns(throughput.table_csv(curved)))


def test_a_comparison(tmp_path: Path) -> None:
    a, b = run(tmp_path, "a", BEFORE), run(tmp_path, "b", AFTER, settings={"concurrency": 8})
    found = compare.compare(sides.load(a), sides.load(b), allow=["concurrency"])
    document = render_compare.document(found)
    rows = [*document["rows"], document["overall"]]
    check("compare --format json", paths(document | {"rows": [], "overall": {}}))
    check("A row of a comparison", paths(rows))


def test_a_gate(tmp_path: Path) -> None:
    a, b = run(tmp_path, "a", BEFORE), run(tmp_path, "b", AFTER)
    found = gate.judge(sides.load(a), sides.load(b), read(["acceptance_length:-2%"]))
    check("gate --format json", paths(render_gate.document(found, "exit3") | {"comparison": {}}))


def printed(capsys: pytest.CaptureFixture[str], *argv: object) -> Any:
    with pytest.raises(SystemExit):
        cli.main([*map(str, argv), "--format", "json"])
    return parsed(capsys.readouterr().out)


def test_a_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    with LlamaCppServer() as server:
        there = printed(capsys, "doctor", "--engine", "llamacpp", "--base-url", server.root)
    nobody = printed(capsys, "doctor", "--engine", "llamacpp", "--base-url", "http://127.0.0.1:9")
    check("doctor --format json", paths([there, nobody]))


def test_a_checked_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = tmp_path / "card.md"
    card.write_text("num_speculative_tokens 4\n\nSet\tAL\tAcceptance rate\tPos 0\tPos 1\none\t2.30\t65%\t80%\t50%\n")
    check("check-card --format json", paths(printed(capsys, "check-card", card)))


def test_the_numbers_of_plots(plotted: Path) -> None:
    files = [*(plotted / "requests").glob("*.csv")]
    assert len(files) == 3
    check("CSV of acceptance figures", set.union(*(columns(path.read_text(encoding="utf-8")) for path in files)))
    check("throughput-*.csv", columns((plotted / "throughput" / "throughput-humaneval.csv").read_text()))
    check("speed-up.csv", columns((plotted / "throughput" / "speed-up.csv").read_text()))


def test_the_provenance_of_plots(plotted: Path, tmp_path: Path) -> None:
    found = parsed((plotted / "requests" / "provenance.json").read_text())
    (run,) = parsed(render_json.render([tables.build(requests(tmp_path))]))["runs"]
    shared = without(run, "macro_mean", "overall")
    (drawn,) = found["runs"]
    assert shared.keys() <= drawn.keys()
    check("provenance.json of acceptance figures", paths(found | {"runs": [without(drawn, *shared)]}))
    check(
        "provenance.json of throughput figures", paths(parsed((plotted / "throughput" / "provenance.json").read_text()))
    )


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("plan.json", Plan),
        ("A cell of a plan", Cell),
        ("The target", Target),
        ("Prompts", PromptRef),
        ("Sampling", Sampling),
        ("manifest.json", Manifest),
        ("Reconciliation", Reconciliation),
        ("The end of a session", SessionEnd),
        ("A point", Point),
        ("requests.jsonl", RequestRecord),
        ("plan.json, throughput", WindowPlan),
        ("The window", Window),
        ("cells.jsonl", WindowCell),
        ("sessions.jsonl, throughput", WindowSession),
        ("manifest.json, throughput", WindowManifest),
    ],
)
def test_files_of_a_run(heading: str, model: type) -> None:
    check(heading, model_paths(model))


def test_every_cause_is_named() -> None:
    (line,) = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `cause` |")]
    assert set(re.findall(r"`(\w+)`", line)) == {"cause", "differs", *NotExact}


def test_the_lines_of_sessions(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, plan(cell([("a", "one", 1)]), synthetic="told"), [], whole=False)
    folder.start_session("2030-01-02T03:04:05+00:00", {"model": "m"}, ["k 3, now 4"])
    folder.end_session(session_end())
    start, end = [parsed(line) for line in (folder.path / "sessions.jsonl").read_text().splitlines()]
    check("sessions.jsonl", paths(start | {"server": {}}))
    assert set(end) == {"event"} | set(SessionEnd.model_fields)


def test_the_lines_of_grades(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mrcr, "o200k_counter", lambda: lambda _conversation, _reference: 5)
    asked = Conversation("a", "one", None, (({"role": "user", "content": "?"},),), Reference("Q7ab", "Q7"))
    prompts = PromptSet(
        source="needles", revision=None, files={}, sha256="0" * 64, rows=1, standin=False, entries=index([asked]),
        notes=(), graded=True, preparation=None, reread=lambda: iter([asked]),
    )  # fmt: skip
    of = plan(cell([("a", "one", 1)], cell_id="needles"))
    record = answered(None, cell_id="needles", prompt_id="a")
    check("grades.jsonl", paths(list(grades(of, {"needles": prompts}, (record,)))))


def test_an_interval_has_the_keys_that_are_told_once() -> None:
    assert set(KEYS["Numbers with an interval"]) == SHAPES[0]
    assert render_json.interval(2.0, 1.5, 2.5) == {"value": 2.0, "low": 1.5, "high": 2.5}
    assert render_json.interval(None, None, None) is None


PAGE_OF_TWO = """## One
| key | what | null |
| --- | --- | --- |
| `a`, `rows[].b` | | |
| `by.*` | | |
| `open…` | | |
"""
WHOLE = {"a": 1, "rows": [{"b": {"value": 1, "low": 0, "high": 2}}], "by": {"x.y": 1}, "open": {"any": {"thing": 1}}}


@pytest.mark.parametrize(
    ("change", "off", "unwritten"),
    [
        ({}, [], []),
        ({"c": None}, ["c"], []),
        ({"rows": [{"b": 1, "c": 1}]}, ["rows.c"], []),
        ({"rows": [{"b": {"low": 0, "high": 2}}]}, ["rows.b.high", "rows.b.low"], []),
        ({"rows": []}, [], ["rows[].b"]),
        ({"by": {"x": {"deep": 1}}}, ["by.x.deep"], []),
        ({"by": {}}, [], ["by.*"]),
        ({"open": None}, [], []),
    ],
)
def test_a_page_and_an_output_that_differ_are_told_apart(
    change: dict[str, Any], off: list[str], unwritten: list[str]
) -> None:
    named = tables_of(PAGE_OF_TWO)["One"]
    written = paths(WHOLE | change)
    assert (off_the_page(written, named), not_written(written, named)) == (off, unwritten)
    assert not_written(paths({"a": 1}), named) == ["by.*", "open…", "rows[].b"]


def test_every_table_of_the_page_is_held_against_an_output() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    told_once = {"Numbers with an interval"}
    assert [heading for heading in KEYS if f'"{heading}"' not in source and heading not in told_once] == []
