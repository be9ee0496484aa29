import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from spec_eval import guards, tables
from spec_eval.acceptance import Figures
from spec_eval.loaded import LoadedRun, load
from spec_eval.store import Point, Records, RunFolder, Target
from spec_eval.suite import Sampling
from spec_eval.verdict import Shortfall
from tests.factories import answered, cell, failed, from_histogram, loaded, not_sent, plan, run_folder

UNITS = (("w1", "writing", 1), ("c1", "coding", 2), ("w2", "writing", 1), ("q1", "qa", 1))
PLAN = plan(cell(UNITS))
RECORDS = (
    answered(from_histogram((1, 0, 1)), prompt_id="c1", category="coding", turn=0),
    answered(from_histogram((0, 0, 2)), prompt_id="c1", category="coding", turn=1),
    answered(from_histogram((3, 1, 0)), prompt_id="w2", category="writing"),
    failed(prompt_id="w1", category="writing"),
)


def test_rows_stand_in_the_order_of_the_plan_with_what_was_planned(tmp_path: Path) -> None:
    got = tables.build(run_folder(tmp_path, PLAN, RECORDS))
    assert [(row.label, row.outcome.planned, row.outcome.measured) for row in got.rows] == [
        ("writing", 2, 1),
        ("coding", 2, 2),
        ("qa", 1, 0),
    ]
    assert [row.figures.steps for row in got.rows] == [4, 4, 0]


def test_category_without_a_record_has_counts_and_no_figure(tmp_path: Path) -> None:
    row = tables.build(run_folder(tmp_path, PLAN, RECORDS)).rows[2]
    assert row.label == "qa"
    assert (row.outcome.planned, row.outcome.sent, row.outcome.not_sent_by) == (1, 0, {"stopped": 1})
    assert row.figures.acceptance_length is None
    assert row.figures.positions is None
    assert row.outcome.coverage is None


def test_overall_pools_the_requests(tmp_path: Path) -> None:
    # S = 2 + 2 + 4, A = 2 + 4 + 1; the mean of the rows would be (1.25 + 2.5) / 2.
    got = tables.build(run_folder(tmp_path, PLAN, RECORDS)).overall
    assert (got.outcome.planned, got.outcome.ok, got.outcome.failed, got.outcome.not_sent) == (5, 3, 1, 1)
    assert got.figures.acceptance_length is not None
    assert got.figures.acceptance_length.value == pytest.approx(1 + 7 / 8)
    assert got.label is None


def test_rows_add_up_to_the_overall_one(tmp_path: Path) -> None:
    for by in ("category", "dataset", "turn"):
        got = tables.build(run_folder(tmp_path / by, PLAN, RECORDS), by)
        for name in ("planned", "sent", "not_sent", "ok", "failed", "measured"):
            assert sum(getattr(row.outcome, name) for row in got.rows) == getattr(got.overall.outcome, name)
        assert sum(row.figures.steps for row in got.rows) == got.overall.figures.steps


def test_rows_by_turn_count_from_one(tmp_path: Path) -> None:
    got = tables.build(run_folder(tmp_path, PLAN, RECORDS), "turn")
    assert [(row.label, row.outcome.planned, row.figures.steps) for row in got.rows] == [
        ("turn 1", 4, 6),
        ("turn 2", 1, 2),
    ]


def test_rows_by_dataset_are_one_a_cell(tmp_path: Path) -> None:
    (row,) = tables.build(run_folder(tmp_path, PLAN, RECORDS), "dataset").rows
    assert (row.label, row.title, row.outcome.planned, row.figures.steps) == (None, "Chat", 5, 8)


def test_repeats_multiply_what_is_planned(tmp_path: Path) -> None:
    got = tables.build(run_folder(tmp_path, plan(cell(UNITS, repeats=3)), RECORDS))
    assert [row.outcome.planned for row in got.rows] == [6, 6, 3]
    assert got.overall.outcome.planned == 15


def test_cells_keep_their_own_rows_and_settings(tmp_path: Path) -> None:
    hot = Sampling(temperature=1.0, max_tokens=64)
    cells = (
        cell(UNITS[:1], cell_id="cold"),
        cell(UNITS[:1], cell_id="hot", dataset="talk", title="Talk", sampling=hot, concurrency=4),
    )
    records = [
        answered(from_histogram((0, 1)), cell_id="cold", prompt_id="w1", category="writing"),
        answered(from_histogram((1, 0)), cell_id="hot", prompt_id="w1", category="writing", dataset="talk"),
    ]
    got = tables.build(run_folder(tmp_path, plan(*cells), records))
    assert [(r.dataset, r.title, r.temperature, r.concurrency, r.figures.accepted) for r in got.rows] == [
        ("chat", "Chat", 0.0, 1, 1),
        ("talk", "Talk", 1.0, 4, 0),
    ]
    assert got.overall.figures.steps == 2
    assert (got.overall.dataset, got.overall.title) == ("chat", "chat")


def test_setting_in_which_cells_differ_is_open_in_the_overall_row(tmp_path: Path) -> None:
    cells = (
        cell(UNITS[:1], cell_id="cold"),
        cell(UNITS[:1], cell_id="hot", sampling=Sampling(temperature=1.0, max_tokens=64), concurrency=4),
    )
    overall = tables.build(run_folder(tmp_path, plan(*cells), [])).overall
    assert (overall.temperature, overall.concurrency) == (None, None)


def test_records_that_were_never_planned_are_left_out(tmp_path: Path) -> None:
    stray = answered(from_histogram((0, 9)), prompt_id="x9", category="writing")
    got = tables.build(run_folder(tmp_path, PLAN, [*RECORDS, stray]))
    assert got.overall.figures.steps == 8
    assert got.overall.outcome.planned == 5


def test_requests_not_sent_are_told_by_reason(tmp_path: Path) -> None:
    lost = [
        not_sent("earlier turn failed", prompt_id="c1", category="coding", turn=1),
        failed(prompt_id="c1", category="coding", turn=0),
        not_sent("oversized: 5000", prompt_id="w1", category="writing"),
    ]
    got = tables.build(run_folder(tmp_path, PLAN, lost)).overall.outcome
    assert got.not_sent_by == {"earlier turn failed": 1, "oversized": 1, "stopped": 2}


def test_unfinished_run_is_told_apart(tmp_path: Path) -> None:
    got = tables.build(run_folder(tmp_path, PLAN, RECORDS, whole=False))
    assert not got.whole
    assert got.manifest is None
    assert (got.reconciliation.status, got.reconciliation.reason) == ("not available", "the run is not whole")
    assert "incomplete" in [w.code for w in got.warnings]
    assert tables.build(run_folder(tmp_path / "two", PLAN, RECORDS)).whole


def test_records_that_are_gone_since_the_run_ended_are_missed(tmp_path: Path) -> None:
    units = [("a", "easy", 1), ("b", "easy", 1)]
    kept = (answered(from_histogram((1, 1)), prompt_id="a", category="easy"),)
    folder = run_folder(tmp_path, plan(cell(units)), kept)
    path = folder.path / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "outcome": {"sent": 2}}))
    report = tables.build(folder)
    assert not report.whole
    assert report.reconciliation.sentence() == "not available: 1 records are missing from requests.jsonl"


def test_views_of_a_run_are_read_pooled_and_judged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_folder(tmp_path, PLAN, RECORDS)
    calls: list[str] = []
    records, run_warnings = RunFolder.records, guards.run_warnings

    def read(self: RunFolder) -> Records:
        calls.append("read")
        return records(self)

    def judge(run: LoadedRun, figures: Figures, short: Sequence[Shortfall]) -> list[guards.Warning]:
        calls.append("judged")
        return run_warnings(run, figures, short)

    monkeypatch.setattr(RunFolder, "records", read)
    monkeypatch.setattr(guards, "run_warnings", judge)
    found = tables.views(load(folder), None, "turn", "dataset")
    assert calls == ["read", "judged"]
    assert [[row.label for row in view.rows] for view in found] == [
        ["writing", "coding", "qa"],
        ["turn 1", "turn 2"],
        [None],
    ]
    assert all(view.overall is found[0].overall and view.warnings is found[0].warnings for view in found)


def test_server_wide_runs_look_the_same_in_every_view() -> None:
    scraped = plan(cell(UNITS), target=Target(engine="scrape", model="a", drafter="b", k=2))
    for view in tables.views(loaded(scraped, RECORDS), None, "turn"):
        assert view.rows == (view.overall,)
    cells = [cell((), cell_id=name) for name in ("x", "y")]
    points = {name: Point(planned=2, ok=2, failed=0, steps=4, drafted=8, accepted=3) for name in ("x", "y")}
    imported = plan(*cells, origin="imported", server_wide=True)
    for view in tables.views(loaded(imported, (), points=points), None, "bin"):
        assert [row.cell_id for row in view.rows] == ["x", "y"]
        assert view.overall.figures.steps == 8
