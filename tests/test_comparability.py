import pytest

from spec_eval.comparability import ANY_CELL, KEYS, Difference, judge
from spec_eval.engines.base import Identity
from spec_eval.errors import UsageError
from spec_eval.run import provenance
from tests.factories import cell, manifest, plan

ONE = {"k": 4, "temperature": 0.0, "top_p": None, "synthetic": None}


def test_keys_are_those_that_a_run_records() -> None:
    of = plan(cell([("p0", "coding", 1)]))
    (settings,) = provenance.comparable_settings(of, Identity(models=()), ()).values()
    assert set(settings) == set(KEYS)
    assert manifest(of).settings.keys() == {of.cells[0].cell_id}


def test_equal_settings_are_comparable_and_unknown_ones_are_named() -> None:
    found = judge({"chat": ONE}, {"chat": dict(ONE)})
    assert found.comparable
    assert found.differences == ()
    assert "top_p" in found.unknown
    # null means real acceptance here, which is known
    assert "synthetic" not in found.unknown
    assert not {"k", "temperature"} & set(found.unknown)


@pytest.mark.parametrize(
    ("key", "other"),
    [("k", 8), ("temperature", 0.7), ("temperature", None), ("top_p", 0.95), ("synthetic", "rates of a card")],
)
def test_a_value_against_another_or_against_null_is_a_difference(key: str, other: object) -> None:
    found = judge({"chat": ONE}, {"chat": {**ONE, key: other}})
    assert not found.comparable
    assert found.differences == (Difference(key, ONE[key], other, ("chat",)),)
    assert found.sentence().startswith(f"{key} ")


def test_numbers_are_equal_by_value_and_true_is_not_one() -> None:
    assert judge({"c": {"temperature": 0}}, {"c": {"temperature": 0.0}}).comparable
    assert not judge({"c": {"adaptive": True}}, {"c": {"adaptive": 1}}).comparable


def test_a_key_that_nobody_knew_before_must_be_equal_too() -> None:
    found = judge({"c": {"drift": 1}}, {"c": {"drift": 2}})
    assert [d.key for d in found.differences] == ["drift"]


def test_one_difference_in_many_cells_is_told_once() -> None:
    a = {name: {"k": 4} for name in ("x", "y", "z", "w")}
    b = {name: {"k": 8} for name in ("x", "y", "z")} | {"w": {"k": 7}}
    found = judge(a, b)
    assert found.differences == (Difference("k", 4, 8, ("x", "y", "z")), Difference("k", 4, 7, ("w",)))
    assert found.sentence() == "k 4 against 8 (x, y, z); k 4 against 7 (w)"


def test_a_cell_of_one_side_only_is_a_difference_that_cannot_be_allowed() -> None:
    found = judge({"x": {"k": 4}, "y": {"k": 4}}, {"x": {"k": 4}, "z": {"k": 4}})
    assert found.differences == (Difference("cell", "y", None, ("y",)), Difference("cell", None, "z", ("z",)))
    assert found.sentence() == "cell 'y' is only in A; cell 'z' is only in B"
    with pytest.raises(UsageError, match="--allow cell: no such setting"):
        judge({"x": {}}, {"y": {}}, allow=["cell"])


def test_an_allowed_difference_stays_named_and_others_still_stand_in_the_way() -> None:
    a, b = {"c": {"k": 4, "concurrency": 1}}, {"c": {"k": 4, "concurrency": 8}}
    found = judge(a, b, allow=["concurrency"])
    assert found.comparable
    assert found.differences == (Difference("concurrency", 1, 8, ("c",), allowed=True),)
    assert found.allowed == ("concurrency",)
    assert not judge(a, {"c": {"k": 5, "concurrency": 8}}, allow=["concurrency"]).comparable


def test_a_misspelt_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="--allow concurency: no such setting, did you mean 'concurrency'"):
        judge({"c": ONE}, {"c": ONE}, allow=["concurency"])


def test_told_acceptance_is_never_compared_with_real() -> None:
    with pytest.raises(UsageError, match="--allow synthetic"):
        judge({"c": ONE}, {"c": {**ONE, "synthetic": "rates of a card"}}, allow=["synthetic"])
    same = {"c": {**ONE, "synthetic": "rates of a card"}}
    assert judge(same, same).comparable


def test_a_description_stands_for_every_cell_of_the_other_side() -> None:
    found = judge({ANY_CELL: {"k": 4}}, {"x": {"k": 4}, "y": {"k": 8}})
    assert found.differences == (Difference("k", 4, 8, ("y",)),)
    assert judge({"x": {"k": 8}}, {ANY_CELL: {"k": 4}}).differences == (Difference("k", 8, 4, ("x",)),)
    assert judge({ANY_CELL: {"k": 8}}, {ANY_CELL: {"k": 4}}).differences == (Difference("k", 8, 4, ()),)


def test_a_problem_of_a_side_is_enough() -> None:
    found = judge({"c": ONE}, {"c": ONE}, problems=["run-a is not whole"])
    assert not found.comparable
    assert found.sentence() == "run-a is not whole"


def test_a_synthetic_run_against_a_real_one_differs_in_just_that() -> None:
    real = {"chat": ONE}
    told = {"synthetic-chat": {**ONE, "synthetic": "played from a deck"}}
    found = judge(real, told)
    assert not found.comparable
    assert [(one.key, one.a, one.b) for one in found.differences] == [("synthetic", None, "played from a deck")]
