from typing import Any

import pytest

from spec_eval import acceptance, counting
from spec_eval.store import Plan, Target
from tests.factories import answered, cell, from_histogram, manifest, plan


def of(engine: str = "vllm", **changes: Any) -> Plan:
    return plan(cell([("p0", "qa", 1)]), target=Target(engine=engine, model="a", drafter="b", k=2), **changes)


@pytest.mark.parametrize(
    ("made", "wide"), [(of(), False), (of("scrape"), True), (of(origin="imported", server_wide=True), True)]
)
def test_server_wide_is_an_engine_or_an_import_that_knows_totals_only(made: Plan, wide: bool) -> None:
    assert counting.is_server_wide(made) is wide
    assert counting.counts_by_request(made) is not wide


def test_without_a_drafter_no_answer_is_to_carry_counters() -> None:
    recipe = {"drafter": {"algorithm": "none"}}
    made = plan(cell(()), target=Target(engine="vllm", model="a", drafter=None, k=None, recipe=recipe))
    assert not counting.is_server_wide(made)
    assert not counting.counts_by_request(made)


@pytest.mark.parametrize(("engine", "nominal"), [("sglang", True), ("vllm", False)])
def test_nominal_drafts_are_the_engines_and_need_a_count(engine: str, nominal: bool) -> None:
    figures = acceptance.figures([answered(from_histogram((1, 1)))])
    assert counting.has_nominal_drafts(of(engine), figures) is nominal
    assert not counting.has_nominal_drafts(of(engine), acceptance.figures([]))


def test_adaptive_is_the_manifests_word_and_before_it_the_plans() -> None:
    asked = of()
    target = asked.target.model_copy(update={"adaptive": True})
    assert counting.is_adaptive(asked.model_copy(update={"target": target}), None)
    assert not counting.is_adaptive(asked, None)
    assert counting.is_adaptive(asked, manifest(asked, settings={"c": {"adaptive": None}, "d": {"adaptive": True}}))
    assert not counting.is_adaptive(asked, manifest(asked, settings={"c": {"adaptive": None}}))


def test_a_tree_is_what_the_server_says() -> None:
    assert counting.is_tree(manifest(of(), server={"tree": True}))
    assert not counting.is_tree(manifest(of(), server={}))
    assert not counting.is_tree(None)
