import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spec_eval import verdict
from spec_eval.engines.scrape import Totals
from spec_eval.errors import NoVerdict, RunNotWhole
from spec_eval.loaded import LoadedRun
from spec_eval.records import RequestRecord
from spec_eval.store import Plan, Point, Target
from spec_eval.store.windows import Outcome, Requests, WindowFolder
from spec_eval.verdict import NO_FIGURE, Cause, Shortfall
from tests import windows as windowed
from tests.factories import answered, cell, failed, from_histogram, loaded, plan

COUNTERS = from_histogram((1, 1, 1))
IDLE = from_histogram((0, 0, 0))
NO_DRAFTER = Target(engine="vllm", model="a", drafter=None, k=None, recipe={"drafter": {"algorithm": "none"}})


def of(records: list[RequestRecord], more: int = 0, **changes: Any) -> Plan:
    """A plan of these requests, and of as many `more` that have no record."""
    units = [(r.prompt_id, r.category, 1) for r in records] + [(f"more{i}", "qa", 1) for i in range(more)]
    return plan(cell(units), **changes)


def driven(sent: int, failures: int = 0, unread: int = 0, broken: int = 0, **changes: Any) -> LoadedRun:
    counters = [COUNTERS] * (sent - failures - unread - broken)
    records = [answered(one, prompt_id=f"p{i}") for i, one in enumerate(counters)]
    records += [answered(None, prompt_id=f"n{i}") for i in range(unread)]
    records += [answered(replace(COUNTERS, histogram=(3, 1, 1)), prompt_id=f"b{i}") for i in range(broken)]
    records += [failed(prompt_id=f"f{i}") for i in range(failures)]
    return loaded(of(records, **changes), records)


def only(run: LoadedRun) -> Shortfall:
    (one,) = verdict.shortfalls(run)
    return one


def causes(run: LoadedRun) -> list[Cause]:
    return [one.cause for one in verdict.shortfalls(run)]


def test_a_run_that_is_what_was_planned_falls_short_of_nothing() -> None:
    assert verdict.shortfalls(driven(100)) == ()
    assert verdict.first(()) is None


@pytest.mark.parametrize(
    ("sent", "failures", "allowed", "words"),
    [
        (100, 5, 0.05, None),
        (100, 6, 0.05, "6 of 100 requests failed, more than --max-failures 5% allows"),
        (100, 1, 0.0, "1 of 100 requests failed, more than --max-failures 0% allows"),
        (1000, 26, 0.025, "26 of 1000 requests failed, more than --max-failures 2.5% allows"),
        (1000, 5, 0.004, "5 of 1000 requests failed, more than --max-failures 0.4% allows"),
        (100, 29, 0.29, None),  # as a float, 0.29 is a little less than 29 of 100
        (100, 60, 1.0, None),
    ],
)
def test_failures_begin_above_the_allowance(sent: int, failures: int, allowed: float, words: str | None) -> None:
    run = driven(sent, failures, max_failures=allowed)
    assert [one.what for one in verdict.shortfalls(run)] == ([] if words is None else [words])
    assert set(causes(run)) <= {Cause.FAILURES}


@pytest.mark.parametrize(
    ("sent", "unread", "broken", "words"),
    [
        (100, 5, 0, None),
        (20, 1, 0, None),
        (100, 6, 0, "coverage 94.0% is below 95%: 94 of 100 answers have usable counters"),
        (100, 3, 3, "coverage 94.0% is below 95%: 94 of 100 answers have usable counters"),
        (10_000, 501, 0, "coverage 94.9% is below 95%: 9499 of 10000 answers have usable counters"),
    ],
)
def test_coverage_begins_below_its_bound(sent: int, unread: int, broken: int, words: str | None) -> None:
    run = driven(sent, unread=unread, broken=broken)
    assert [one.what for one in verdict.shortfalls(run)] == ([] if words is None else [words])
    assert set(causes(run)) <= {Cause.LOW_COVERAGE}


def test_what_failed_is_not_covered_and_not_missed_in_the_coverage() -> None:
    assert causes(driven(100, failures=50, max_failures=0.5)) == []
    assert causes(driven(100, failures=50, unread=10)) == [Cause.FAILURES, Cause.LOW_COVERAGE]


def test_an_unfinished_run_says_how_far_it_is_and_how_to_go_on() -> None:
    records = [answered(COUNTERS, prompt_id=f"p{i}") for i in range(3)]
    one = only(loaded(of(records, more=1), records, whole=False))
    assert (one.cause, one.what) == (Cause.UNFINISHED, "not whole: 3 of 4 requests so far")
    assert one.remedy == "go on with `spec-eval run --resume run`"


def test_records_that_are_gone_since_are_missed() -> None:
    records = [answered(COUNTERS, prompt_id=f"p{i}") for i in range(3)]
    one = only(loaded(of(records, more=2), records, outcome={"sent": 5}))
    assert (one.cause, one.what) == (
        Cause.LOST_RECORDS,
        "not whole: 2 records are missing from requests.jsonl",
    )


def test_an_imported_run_is_never_told_to_resume() -> None:
    records = [answered(COUNTERS), failed(prompt_id="f"), answered(None, prompt_id="n")]
    found = verdict.shortfalls(loaded(of(records, origin="imported"), records, outcome={"sent": 9}))
    assert [one.cause for one in found] == [Cause.LOST_RECORDS, Cause.FAILURES, Cause.LOW_COVERAGE]
    assert not [one for one in found if "resume" in one.remedy]


def test_answers_without_a_step_are_no_figure_and_covered() -> None:
    records = [answered(IDLE, prompt_id=f"p{i}") for i in range(3)]
    one = only(loaded(of(records), records))
    assert (one.cause, one.what) == (Cause.NO_STEP, "no verification step was measured, so there is no figure")


def test_a_run_without_a_drafter_lacks_no_counters() -> None:
    records = [answered(None, prompt_id=f"p{i}") for i in range(3)]
    assert causes(loaded(of(records, target=NO_DRAFTER), records)) == [Cause.NO_DRAFTER]


@pytest.mark.parametrize(
    ("totals", "expected"),
    [(Totals(4, 8, 3, (2, 1)), []), (Totals(0, 0, 0, ()), [Cause.NO_STEP]), (None, [Cause.NO_STEP])],
)
def test_a_servers_totals_cover_what_no_answer_tells(totals: Totals | None, expected: list[Cause]) -> None:
    records = [answered(None, prompt_id=f"p{i}") for i in range(3)]
    target = Target(engine="scrape", model="a", drafter="b", k=2)
    assert causes(loaded(of(records, target=target), records, totals=totals)) == expected


@pytest.mark.parametrize(
    ("steps", "fails", "expected"), [(40, 0, []), (None, 0, [Cause.NO_STEP]), (40, 3, [Cause.FAILURES])]
)
def test_points_are_judged_by_their_own_counts(steps: int | None, fails: int, expected: list[Cause]) -> None:
    made = plan(cell(()), origin="imported", server_wide=True)
    accepted = None if steps is None else 10
    point = Point(planned=50, ok=50 - fails, failed=fails, steps=steps, drafted=accepted, accepted=accepted)
    run = loaded(made, (), points={made.cells[0].cell_id: point})
    assert causes(run) == expected


def test_the_gravest_comes_first_and_may_be_passed_over() -> None:
    records = [failed(prompt_id="f"), answered(IDLE)]
    found = verdict.shortfalls(loaded(of(records, more=1), records, whole=False))
    assert [one.cause for one in found] == [Cause.UNFINISHED, Cause.FAILURES, Cause.NO_STEP]
    assert verdict.first(found) is found[0]
    assert verdict.first(found, but=frozenset({Cause.UNFINISHED})) is found[1]
    assert verdict.first(found[2:], but=NO_FIGURE) is None


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (Cause.UNFINISHED, RunNotWhole),
        (Cause.LOST_RECORDS, RunNotWhole),
        (Cause.FAILURES, RunNotWhole),
        (Cause.LOW_COVERAGE, RunNotWhole),
        (Cause.NO_DRAFTER, NoVerdict),
        (Cause.NO_STEP, NoVerdict),
    ],
)
def test_its_error_names_where_what_and_the_remedy(cause: Cause, kind: type[Exception]) -> None:
    one = Shortfall(cause, loaded(plan(cell(())), ()).path, "it rained", "wait")
    assert type(one.error()) is kind
    assert str(one.error()) == "run: it rained; wait"
    assert str(one.error("wait, or go")) == "run: it rained; wait, or go"


@pytest.mark.parametrize(("measured", "ok", "low"), [(0, 0, False), (0, 1, True), (19, 20, False), (18, 19, True)])
def test_low_coverage_is_exact(measured: int, ok: int, low: bool) -> None:
    assert verdict.is_low(measured, ok) is low


def test_a_percentage_is_cut_and_not_rounded() -> None:
    assert [verdict.floored(*of) for of in ((9499, 10_000), (94_999, 100_000), (19, 20), (20, 20))] == [
        "94.9%",
        "94.9%",
        "95.0%",
        "100.0%",
    ]


def windows(root: Path, *tried: tuple[float, float] | Outcome, whole: bool = True, failed: int = 0) -> WindowFolder:
    """A run of a repeat for each that was tried; `failed` of ten requests in every cell with figures."""
    made = windowed.folder(root, "w", "d", {4: tried}, whole=whole)
    path = made.path / "cells.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if line["outcome"] == "ok":
            line["requests"] |= {"dispatched": 12, "completed": 10 - failed, "failed": failed, "dropped": 2}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return made


GOOD = (10.0, 40.0)


@pytest.mark.parametrize(
    ("tried", "more", "causes"),
    [
        ((GOOD, GOOD), {}, []),
        ((GOOD, "killed"), {}, [Cause.HOLES]),
        (("killed", "timed out"), {}, [Cause.NO_CELL, Cause.HOLES]),
        ((GOOD,), {"whole": False}, [Cause.UNFINISHED]),
        ((GOOD, "all failed"), {"whole": False}, [Cause.UNFINISHED, Cause.HOLES]),
        ((GOOD,), {"failed": 1}, [Cause.FAILURES]),  # one of ten, and 5% are allowed
    ],
)
def test_a_throughput_run_falls_short_by_its_cells(
    tried: tuple[Any, ...], more: dict[str, Any], causes: list[Cause], tmp_path: Path
) -> None:
    assert [one.cause for one in verdict.window_shortfalls(windows(tmp_path, *tried, **more))] == causes


def test_what_a_throughput_run_lacks_is_named(tmp_path: Path) -> None:
    (one,) = verdict.window_shortfalls(windows(tmp_path, GOOD, "killed"))
    assert str(one.error()) == (
        f"{tmp_path}/w: 1 of 2 cells have no figures (c4-r2 killed); they stay holes, or try them again with "
        f"`spec-eval run --resume {tmp_path}/w`"
    )
    assert isinstance(one.error(), RunNotWhole)


def test_failures_in_a_window_are_a_share_of_what_came_to_an_end(tmp_path: Path) -> None:
    (one,) = verdict.window_shortfalls(windows(tmp_path, GOOD, GOOD, failed=3))
    assert one.what == "requests failed in c4-r1 3, c4-r2 3, more than --max-failures 5% allows"
    cell = windowed.cell(1, 1, GOOD, requests=Requests(dispatched=100, completed=19, failed=1, dropped=80))
    assert not cell.fails_more_than(0.05)
    assert cell.fails_more_than(0.04)
    unknown = windowed.cell(1, 1, GOOD, requests=Requests(dispatched=100))
    assert not unknown.fails_more_than(0.0)
