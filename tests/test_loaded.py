from pathlib import Path

import pytest

from spec_eval.engines.scrape import Totals
from spec_eval.errors import UsageError
from spec_eval.loaded import load
from spec_eval.store import NotExact, Point, Reconciliation, RunFolder, Target
from tests.factories import answered, cell, failed, from_histogram, loaded, plan, run_folder, session_end

UNITS = [("a", "qa", 1), ("b", "qa", 1), ("c", "qa", 1)]
RECORDS = [answered(from_histogram((1, 1)), prompt_id="a"), failed(prompt_id="b")]
SCRAPED = Target(engine="scrape", model="target-a", drafter="b", k=2)


def of_totals(where: Path, *totals: dict[str, object] | None) -> RunFolder:
    folder = run_folder(where, plan(cell(UNITS), target=SCRAPED), RECORDS)
    for number, one in enumerate(totals, 1):
        read = Reconciliation.unavailable(NotExact.SERVER_WIDE, "no counters by request", server=one)
        folder.end_session(session_end(session=number, reconciliation=read))
    return folder


def test_it_is_what_the_folder_says(tmp_path: Path) -> None:
    stray = answered(from_histogram((0, 9)), prompt_id="x")
    folder = run_folder(tmp_path, plan(cell(UNITS)), [*RECORDS, stray])
    run = load(folder)
    assert (run.path, run.plan, run.manifest) == (folder.path, folder.plan(), folder.manifest())
    assert [r.prompt_id for r in run.read.records] == ["a", "b", "x"]
    assert [r.prompt_id for r in run.records] == ["a", "b"]
    assert (run.outcome.planned, run.outcome.ok, run.outcome.failed, run.outcome.not_sent) == (3, 1, 1, 1)
    assert (run.grades, run.totals, run.of_points, run.stepped) == ({}, None, (), True)
    assert run.reconciliation.status == "exact"


def test_records_and_outcome_are_worked_out_once() -> None:
    run = loaded(plan(cell(UNITS)), RECORDS)
    assert run.records is run.records
    assert run.outcome is run.outcome


def test_an_unfinished_run_has_nothing_to_compare() -> None:
    run = loaded(plan(cell(UNITS)), RECORDS, whole=False)
    assert (run.lost, run.reconciliation.status, run.reconciliation.cause) == (0, "not available", NotExact.UNFINISHED)


@pytest.mark.parametrize(("sent", "lost"), [(1, 0), (2, 0), (5, 3)])
def test_lost_records_are_those_that_the_manifest_counted(sent: int, lost: int) -> None:
    run = loaded(plan(cell(UNITS)), RECORDS, outcome={"sent": sent})
    assert run.lost == lost
    expected = (None, None) if not lost else (NotExact.LOST_RECORDS, "3 records are missing from requests.jsonl")
    assert (run.reconciliation.cause, run.reconciliation.reason) == expected


def test_a_servers_totals_are_summed_over_the_sessions_that_have_them(tmp_path: Path) -> None:
    first = {"steps": 10, "drafted": 20, "accepted": 12, "positions": [8, 4]}
    second = {"steps": 5, "drafted": 5, "accepted": 1, "positions": [1]}
    run = load(of_totals(tmp_path, first, None, second))
    assert run.totals == Totals(15, 25, 13, (9, 4))
    assert run.stepped
    assert not load(of_totals(tmp_path / "none")).stepped


def test_damaged_sessions_are_refused_only_where_the_figures_lie_in_them(tmp_path: Path) -> None:
    damage = '{"event": "end", "session": "first"}\n'
    counted = run_folder(tmp_path / "counted", plan(cell(UNITS)), RECORDS)
    (counted.path / "sessions.jsonl").write_text(damage, encoding="utf-8")
    assert load(counted).stepped
    wide = of_totals(tmp_path / "wide")
    (wide.path / "sessions.jsonl").write_text(damage, encoding="utf-8")
    with pytest.raises(UsageError, match=r"sessions\.jsonl.*damaged"):
        load(wide)


def test_points_come_in_the_order_of_the_cells() -> None:
    one, two = (Point(planned=n, ok=n, failed=0, steps=n, drafted=n, accepted=0) for n in (3, 4))
    made = plan(cell((), cell_id="x"), cell((), cell_id="y"), origin="imported", server_wide=True)
    run = loaded(made, (), points={"y": two, "x": one})
    assert run.of_points == (one, two)
    assert (run.outcome.planned, run.outcome.ok, run.stepped) == (7, 7, True)
