from pathlib import Path

import pytest

from spec_eval import sides
from spec_eval.compare import Comparison, State, compare
from tests.factories import CELL, answered, failed
from tests.sides import AFTER, BEFORE, Histograms, run


def compared(tmp_path: Path, a: Histograms, b: Histograms) -> Comparison:
    first, second = run(tmp_path, "a", a), run(tmp_path, "b", b)
    return compare(sides.load(first), sides.load(second))


def test_a_higher_length_by_hand(tmp_path: Path) -> None:
    found = compared(tmp_path, BEFORE, AFTER)
    overall = found.overall
    assert overall is not None
    length = overall.acceptance_length
    assert (length.a, length.b, length.n, overall.state) == (1.5, 2.0, 20, State.HIGHER)
    # t(19; 0.975) is 2.093024: exp(0.2876821 ∓ 0.1600575) - 1
    assert length.value == pytest.approx(1 / 3)
    assert length.low == pytest.approx(0.136126, abs=1e-5)
    assert length.high == pytest.approx(0.564769, abs=1e-5)
    assert length.correlation is None  # AFTER does not vary
    (position,) = overall.positions[:1]
    # 0.5 ∓ 2.093024 · 0.114708
    assert (position.a, position.b, position.value) == (0.5, 1.0, 0.5)
    assert position.low == pytest.approx(0.259914, abs=1e-5)
    assert position.high == pytest.approx(0.740086, abs=1e-5)
    rate = overall.acceptance_rate
    assert (rate.a, rate.b, rate.value) == (0.5, 1.0, 0.5)
    (row,) = found.rows
    assert (row.cell, row.category, row.acceptance_length) == (CELL, "coding", length)


def test_the_other_way_round_is_lower(tmp_path: Path) -> None:
    overall = compared(tmp_path, AFTER, BEFORE).overall
    assert overall is not None
    assert overall.state is State.LOWER
    assert overall.acceptance_length.value == pytest.approx(-0.25)


def test_equal_runs_differ_by_nothing(tmp_path: Path) -> None:
    overall = compared(tmp_path, BEFORE, BEFORE).overall
    assert overall is not None
    length = overall.acceptance_length
    assert (length.value, length.low, length.high, overall.state) == (0.0, 0.0, 0.0, State.NOT_SHOWN)
    assert length.correlation == pytest.approx(1.0)


def test_under_twenty_pairs_there_is_no_interval(tmp_path: Path) -> None:
    overall = compared(tmp_path, BEFORE[:19], AFTER[:19]).overall
    assert overall is not None
    length = overall.acceptance_length
    assert (length.low, length.high, length.n, overall.state) == (None, None, 19, None)
    # 9 of 19 steps accept: (1 + 9/19) to 2
    assert length.value == pytest.approx(2 / (28 / 19) - 1)


def test_figures_are_over_what_both_measured(tmp_path: Path) -> None:
    a = run(tmp_path, "a", BEFORE, records=[answered(None, prompt_id="p20")])
    b = run(tmp_path, "b", [*AFTER, [9, 0]])
    overall = compare(sides.load(a), sides.load(b)).overall
    assert overall is not None
    assert (overall.used, overall.left_out, overall.enough) == (20, 1, True)
    assert (overall.acceptance_length.b, overall.state) == (2.0, State.HIGHER)


def test_too_few_pairs_give_no_state(tmp_path: Path) -> None:
    gone = [failed(prompt_id=f"p{i}") for i in (20, 21)]
    a = run(tmp_path, "a", BEFORE, records=gone)
    b = run(tmp_path, "b", [*AFTER, [0, 1], [0, 1]])
    overall = compare(sides.load(a), sides.load(b)).overall
    assert overall is not None
    assert (overall.used, overall.left_out, overall.enough, overall.state) == (20, 2, False, None)


def test_a_row_without_a_step_has_no_figure(tmp_path: Path) -> None:
    a = run(tmp_path, "a", [[0, 0], *BEFORE], categories=("yesno",) + ("coding",) * 20)
    b = run(tmp_path, "b", [[0, 0], *AFTER], categories=("yesno",) + ("coding",) * 20)
    found = compare(sides.load(a), sides.load(b))
    yesno, coding = found.rows
    assert (yesno.category, yesno.used, yesno.state) == ("yesno", 1, None)
    assert (yesno.acceptance_length.a, yesno.acceptance_length.value) == (None, None)
    assert (coding.category, coding.state) == ("coding", State.HIGHER)
    assert found.overall is not None
    assert (found.overall.used, found.overall.acceptance_length.n) == (21, 20)


def test_rows_by_category_or_by_data_set(tmp_path: Path) -> None:
    a = run(tmp_path, "a", BEFORE, categories=("one", "two"))
    b = run(tmp_path, "b", AFTER, categories=("one", "two"))
    left, right = sides.load(a), sides.load(b)
    rows = compare(left, right).rows
    # "one" holds the steps without an acceptance, "two" those with: 1 to 2, and 2 to 2
    assert [(r.category, r.acceptance_length.a, r.acceptance_length.b) for r in rows] == [
        ("one", 1.0, 2.0),
        ("two", 2.0, 2.0),
    ]
    (row,) = compare(left, right, by="dataset").rows
    assert (row.cell, row.category, row.used) == (CELL, None, 20)


def test_nothing_is_computed_where_settings_differ(tmp_path: Path) -> None:
    a, b = run(tmp_path, "a", BEFORE), run(tmp_path, "b", AFTER, settings={"temperature": 1.0})
    found = compare(sides.load(a), sides.load(b))
    assert (found.rows, found.overall) == ((), None)
    assert [(d.key, d.a, d.b) for d in found.comparability.differences] == [("temperature", 0.0, 1.0)]
    assert compare(sides.load(a), sides.load(b), allow=["temperature"]).overall is not None


def test_an_unfinished_run_is_not_compared(tmp_path: Path) -> None:
    a, b = run(tmp_path, "a", BEFORE), run(tmp_path, "b", AFTER, whole=False)
    found = compare(sides.load(a), sides.load(b))
    assert found.overall is None
    assert "b is not whole" in found.comparability.sentence()


def test_what_may_differ_is_shown_by_dotted_names(tmp_path: Path) -> None:
    a = run(tmp_path, "a", BEFORE, manifest={"packages": {"openai": "3"}})
    b = run(tmp_path, "b", BEFORE, manifest={"packages": {"openai": "4"}, "engine_version": "b2"})
    facts = compare(sides.load(a), sides.load(b)).facts
    assert ("packages.openai", "3", "4") in facts
    assert ("engine_version", "b1", "b2") in facts
    assert "speculative" not in [name for name, _, _ in facts]
