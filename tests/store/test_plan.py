import pytest
from pydantic import ValidationError

from spec_eval.store import Plan, Target
from spec_eval.suite import Sampling
from tests.factories import cell, plan

UNITS = (("a", "qa", 2), ("b", "coding", 1))


def test_units_are_every_turn_of_every_prompt_in_every_repeat() -> None:
    assert list(cell(UNITS, cell_id="x", repeats=2).units()) == [
        ("x", "a", 0, 0),
        ("x", "a", 1, 0),
        ("x", "b", 0, 0),
        ("x", "a", 0, 1),
        ("x", "a", 1, 1),
        ("x", "b", 0, 1),
    ]


def test_prompt_that_was_asked_more_often_has_more_units() -> None:
    one = cell(UNITS, cell_id="x", repeats_of={"b": 3})
    assert list(one.units()) == [
        ("x", "a", 0, 0),
        ("x", "a", 1, 0),
        ("x", "b", 0, 0),
        ("x", "b", 0, 1),
        ("x", "b", 0, 2),
    ]
    assert (one.planned(), one.asked("a"), one.asked("b")) == (5, 1, 3)


def test_planned_counts_all_cells() -> None:
    cells = (cell(UNITS, cell_id="x", repeats=2), cell(UNITS, cell_id="y"), cell((), cell_id="z"))
    assert plan(*cells).planned() == 9


def test_plan_survives_json() -> None:
    one = plan(cell(UNITS, sampling=Sampling(temperature=0.6, max_tokens=9, top_p=0.9)), overrides={"k": 3}, seed=None)
    assert Plan.model_validate_json(one.model_dump_json()) == one


def test_plan_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        Plan.model_validate({**plan(cell(UNITS)).model_dump(), "surprise": 1})


BASE = plan(cell(UNITS))


@pytest.mark.parametrize(
    "other",
    [
        plan(cell(UNITS, sampling=Sampling(temperature=0.1, max_tokens=64))),
        plan(cell(UNITS, sampling=Sampling(temperature=0.0, max_tokens=65))),
        plan(cell(UNITS, concurrency=2)),
        plan(cell(UNITS, repeats=2)),
        plan(cell(UNITS[:1])),
        plan(cell(UNITS), seed=8),
        plan(cell(UNITS), seed=None),
        plan(cell(UNITS), suite_sha256="3" * 64),
        plan(cell(UNITS), target=Target(engine="llamacpp", model="target-a", drafter="drafter-a", k=4)),
        plan(cell(UNITS), target=Target(engine="llamacpp", model="target-a", drafter="drafter-b", k=3)),
        plan(cell(UNITS), target=Target(engine="llamacpp", model="target-b", drafter="drafter-a", k=3)),
        plan(cell(UNITS), synthetic="fixed rates"),
    ],
)
def test_settings_hash_tells_what_must_stay_the_same(other: Plan) -> None:
    assert other.settings_sha256 != BASE.settings_sha256


@pytest.mark.parametrize(
    "other",
    [
        plan(cell(UNITS), run_id="another"),
        plan(cell(UNITS), created="2031-01-01T00:00:00+00:00"),
        plan(cell(UNITS), command=("spec-eval",)),
        plan(cell(UNITS), max_failures=1.0),
        plan(cell(UNITS), spec_eval_version="9"),
        plan(cell(UNITS), target=BASE.target.model_copy(update={"base_url": "http://127.0.0.1:9/v1"})),
    ],
)
def test_settings_hash_leaves_out_what_may_change(other: Plan) -> None:
    assert other.settings_sha256 == BASE.settings_sha256


def test_there_are_never_more_slots_than_conversations() -> None:
    two = cell([("a", "x", 3), ("b", "x", 1)], concurrency=2000, repeats=3)
    assert (two.slots, two.concurrency) == (6, 2000)


@pytest.mark.parametrize("changes", [{"concurrency": 0}, {"concurrency": -1}, {"repeats": 0}])
def test_a_cell_that_asks_nothing_is_none(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        cell([("a", "qa", 1)], **changes)
