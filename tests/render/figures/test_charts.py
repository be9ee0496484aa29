from dataclasses import replace
from pathlib import Path

import pytest

from spec_eval.errors import UsageError
from spec_eval.render.figures import charts
from spec_eval.store import Target
from tests.factories import answered, cell, from_histogram, plan, run_folder
from tests.render.figures.samples import EASY, HALF, RECORDS, UNITS, arms, easy, folder, seen, throughput


def test_categories_stand_in_the_order_of_the_plan_and_the_pooled_one_last(tmp_path: Path) -> None:
    chart = charts.categories(arms(tmp_path))
    assert seen(chart) == [
        ("easy", None, 1.5),
        ("hard", None, pytest.approx(1 + 1 / 5)),
        ("never", None, None),
        ("overall, pooled", None, pytest.approx(1 + 11 / 25)),
    ]
    assert [group.name for group in chart.groups] == ["easy", "hard", "overall, pooled"]
    assert chart.empty == ["never"]


def test_intervals_are_the_reports_own_and_their_absence_has_a_reason(tmp_path: Path) -> None:
    wide, few, never, overall = charts.categories(arms(tmp_path)).points
    assert wide.estimate is not None
    assert [wide.estimate.low, wide.estimate.high] == pytest.approx([1.5 - HALF, 1.5 + HALF], abs=1e-6)
    assert wide.note == "approximate interval: 20 to 79 conversations"
    assert few.estimate is not None
    assert (few.estimate.low, few.estimate.n, few.note) == (None, 2, "no interval: under 20 conversations")
    assert never.note == "empty: no verification step was measured"
    assert overall.estimate is not None
    assert overall.estimate.n == 22


def test_a_position_is_a_point_and_an_empty_group_is_named(tmp_path: Path) -> None:
    # k = 2 in one group: of three steps two accept at least one draft, one accepts two
    records = [*easy(), answered(from_histogram((1, 1, 1)), prompt_id="h1", category="hard")]
    chart = charts.positions(arms(tmp_path, folder(tmp_path, records=records, k=2)))
    assert seen(chart) == [
        ("easy", "1", 0.5),
        ("hard", "1", pytest.approx(2 / 3)),
        ("hard", "2", pytest.approx(1 / 3)),
        ("never", None, None),
        ("overall, pooled", "1", pytest.approx(12 / 23)),
        ("overall, pooled", "2", pytest.approx(1 / 23)),
    ]
    share = chart.points[0].estimate
    assert share is not None
    assert [share.low, share.high] == pytest.approx([0.5 - HALF, 0.5 + HALF], abs=1e-6)


def test_a_run_without_positions_is_in_the_other_figures_only(tmp_path: Path) -> None:
    bare = [answered(replace(from_histogram((1, 1)), histogram=None), prompt_id="h1", category="hard")]
    found = arms(tmp_path, folder(tmp_path, "bare", records=bare))
    drawn, notes = charts.all_of(found)
    assert [chart.name for chart in drawn] == ["acceptance-by-category", "acceptance-by-length"]
    assert notes == ["bare: positions are not known; not in positions"]


def test_a_run_without_a_step_is_told_once_and_its_neighbour_is_drawn(tmp_path: Path) -> None:
    idle = folder(tmp_path, "idle", records=[answered(from_histogram((0, 0)), prompt_id="h1", category="hard")])
    drawn, notes = charts.all_of(arms(tmp_path, idle, folder(tmp_path, "busy")))
    assert [[arm.report.plan.run_id for arm in chart.arms] for chart in drawn] == [["busy"]] * 3
    assert notes == [
        "idle: no verification step was measured; not in positions, acceptance-by-category, acceptance-by-length"
    ]


def test_lengths_are_the_bins_of_the_reports(tmp_path: Path) -> None:
    chart = charts.lengths(arms(tmp_path))
    assert seen(chart) == [
        ("Chat", "0-8192", 1.5),
        ("Chat", "8193-16384", pytest.approx(1.2)),
        ("Chat", "16385-32768", None),
        ("Chat", "32769-65536", None),
        ("Chat", "65537-131072", None),
    ]
    assert chart.empty == ["16k–32k", "32k–64k", "64k–128k"]


def test_a_length_that_nobody_knows_has_a_place_of_its_own(tmp_path: Path) -> None:
    records = [*easy(), answered(from_histogram((0, 1)), prompt_id="h1", category="hard", prompt_tokens=None)]
    chart = charts.lengths(arms(tmp_path, folder(tmp_path, records=records)))
    assert [(p.at, p.rank) for p in chart.drawn] == [("0-8192", 0), ("length not known", 6)]


def test_where_no_length_is_known_there_is_no_figure_of_lengths(tmp_path: Path) -> None:
    found = arms(tmp_path, folder(tmp_path, "blind", units=EASY, records=easy(prompt_tokens=None)))
    drawn, notes = charts.all_of(found)
    assert [chart.name for chart in drawn] == ["positions", "acceptance-by-category"]
    assert notes == ["blind: prompt lengths are not known; not in acceptance-by-length"]


def test_throughput_sets_are_lengths_themselves(tmp_path: Path) -> None:
    chart = charts.lengths(arms(tmp_path, throughput(tmp_path, "card")))
    assert seen(chart) == [("Low entropy", "1k", 1.5), ("Low entropy", "8k", 1.5)]
    assert [p.rank for p in chart.points] == [1, 8]
    assert [(g.heading, g.name) for g in charts.categories(arms(tmp_path, throughput(tmp_path, "b"))).groups] == [
        ("Low entropy", "1k"),
        ("Low entropy", "8k"),
        ("Talk", "Chat"),
        (None, "overall, pooled"),
    ]


def test_arms_carry_their_drafter_and_their_run_id_where_drafters_are_equal(tmp_path: Path) -> None:
    names = [("a", "eagle"), ("b", "eagle"), ("c", "x" * 80), ("d", "x" * 80)]
    found = arms(tmp_path, *(folder(tmp_path, run, drafter=drafter) for run, drafter in names))
    assert [arm.label for arm in found[:2]] == ["eagle (a)", "eagle (b)"]
    assert [arm.label for arm in found[2:]] == [f"{'x' * 29}…{'x' * 29} (c)", f"{'x' * 29}…{'x' * 29} (d)"]
    unnamed = run_folder(
        tmp_path, plan(cell(UNITS), run_id="e", target=Target(engine="vllm", model=None, drafter=None, k=1)), RECORDS
    )
    assert [arm.label for arm in arms(tmp_path, unnamed, folder(tmp_path, "f"))] == ["drafter not named", "eagle"]


def test_groups_of_several_arms_meet_by_name(tmp_path: Path) -> None:
    other = [("h9", "hard", 1), ("z1", "late", 1)]
    records = [answered(from_histogram((0, 1)), prompt_id=p, category=c) for p, c, _ in other]
    found = arms(tmp_path, folder(tmp_path), folder(tmp_path, "two", units=other, records=records))
    chart = charts.categories(found)
    assert [group.name for group in chart.groups] == ["easy", "hard", "late", "overall, pooled"]
    assert [(p.arm.number, p.group.name) for p in chart.drawn if p.group.name == "hard"] == [(0, "hard"), (1, "hard")]


def test_cells_that_differ_in_settings_only_are_told_apart(tmp_path: Path) -> None:
    cells = [cell(EASY, cell_id=f"c{n}", concurrency=n, rows="cell") for n in (1, 8)]
    made = plan(*cells, run_id="levels")
    found = arms(tmp_path, run_folder(tmp_path, made, [r for n in (1, 8) for r in easy(cell_id=f"c{n}")]))
    assert [group.name for group in charts.categories(found).groups] == [
        "Chat, T=0, c=1",
        "Chat, T=0, c=8",
        "overall, pooled",
    ]
    assert [group.name for group in charts.lengths(found).groups] == ["Chat, T=0, c=1", "Chat, T=0, c=8"]


def test_partial_and_made_up_rows_say_so(tmp_path: Path) -> None:
    (chart,) = [charts.categories(arms(tmp_path, folder(tmp_path, records=RECORDS[:10])))]
    assert [chart.shown(group) for group in chart.groups] == ["easy (partial)", "overall, pooled (partial)"]
    made_up = cell(EASY, table="Talk", title="Chat", rows="cell")
    made_up = made_up.model_copy(update={"prompts": made_up.prompts.model_copy(update={"standin": True})})
    (arm,) = arms(tmp_path, run_folder(tmp_path, plan(made_up, run_id="made-up"), easy()))
    chart = charts.categories([arm])
    assert chart.shown(chart.groups[0]) == "Chat (stand-in)"
    assert arm.marks == ["stand-in rows"]
    lone = made_up.model_copy(update={"table": None, "title": "stand-in chat", "rows": "category"})
    alone = arms(tmp_path, run_folder(tmp_path, plan(lone, run_id="lone"), easy()))
    assert [c.shown(c.groups[0]) for c in (charts.categories(alone), charts.lengths(alone))] == [
        "easy (stand-in)",
        "stand-in chat",
    ]


def test_a_category_that_is_called_so_by_chance_is_marked_all_the_same(tmp_path: Path) -> None:
    units = [(f"e{i}", "stand-in actors", 1) for i in range(20)]
    made_up = cell(units, table="Talk", title="Chat", rows="category")
    made_up = made_up.model_copy(update={"prompts": made_up.prompts.model_copy(update={"standin": True})})
    found = arms(tmp_path, run_folder(tmp_path, plan(made_up, run_id="actors"), easy(category="stand-in actors")))
    chart = charts.categories(found)
    assert [chart.shown(group) for group in chart.groups] == ["stand-in actors (stand-in)", "overall, pooled"]


def test_marks_are_the_labels_of_the_report_and_partial_below_the_floor(tmp_path: Path) -> None:
    lost = [answered(None, prompt_id=f"e{i}", category="easy") for i in range(10, 20)]
    (arm,) = arms(tmp_path, folder(tmp_path, records=[*easy()[:10], *lost], synthetic="told"))
    assert arm.marks == ["synthetic", "partial"]


@pytest.mark.parametrize(("runs", "told"), [(["one", "one"], "one: the run is given twice"), (list("abcdefgh"), "8 ")])
def test_arms_that_cannot_be_told_apart_are_refused(runs: list[str], told: str, tmp_path: Path) -> None:
    made = {name: folder(tmp_path, name) for name in set(runs)}
    with pytest.raises(UsageError, match=told):
        charts.read([made[name] for name in runs])


def test_more_groups_than_a_page_holds_are_left_to_the_report(tmp_path: Path) -> None:
    units = [(f"p{i}", f"kind {i}", 1) for i in range(101)]
    records = [answered(from_histogram((1, 1)), prompt_id=p, category=c) for p, c, _ in units]
    drawn, notes = charts.all_of(arms(tmp_path, folder(tmp_path, units=units, records=records)))
    assert [chart.name for chart in drawn] == ["acceptance-by-length"]
    assert notes == [
        f"{name}: 102 groups, a figure holds 100; use `report`" for name in ("positions", "acceptance-by-category")
    ]
