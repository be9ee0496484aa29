import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_eval.records import RequestRecord, SpecCounters, breach, is_count, padded_histogram
from tests.factories import answered, failed, from_histogram, from_steps

# S = 10, A = 0*4 + 1*3 + 2*2 + 3*1 = 10, D = 30, k = 3.
GOOD = from_histogram((4, 3, 2, 1))
# S = 3, A = 2 + 0 + 1 = 3, D = 3 + 1 + 2 = 6, k = 3.
STEPWISE = from_steps([(3, 2), (1, 0), (2, 1)], k=3)
NAN = float("nan")


def test_counters_that_keep_every_identity_have_no_breach() -> None:
    assert (GOOD.steps, GOOD.accepted, GOOD.drafted) == (10, 10, 30)
    assert breach(GOOD, completion_tokens=21) is None
    assert breach(GOOD, completion_tokens=None) is None
    assert breach(STEPWISE, completion_tokens=7) is None


def test_no_verification_step_at_all_is_no_breach() -> None:
    assert breach(from_histogram((0, 0, 0)), completion_tokens=1) is None


def test_nominal_draft_count_left_out_is_no_breach() -> None:
    assert breach(replace(GOOD, drafted=None), completion_tokens=21) is None


@pytest.mark.parametrize("bad", [True, False, NAN, 3.0, -1, "3", None])
@pytest.mark.parametrize("field", ["steps", "accepted", "k"])
def test_scalar_that_is_not_a_count_is_named(field: str, bad: object) -> None:
    changes: dict[str, Any] = {field: bad}
    assert breach(replace(GOOD, **changes), 21) == "not an integer count"


@pytest.mark.parametrize("bad", [True, NAN, 30.0, -1, "30"])
def test_draft_count_that_is_not_a_count_is_named(bad: Any) -> None:
    assert breach(replace(GOOD, drafted=bad), 21) == "not an integer count"


@pytest.mark.parametrize("bad", [True, NAN, 1.0, -1, None])
@pytest.mark.parametrize("field", ["histogram", "per_step_accepted", "per_step_drafted"])
def test_list_entry_that_is_not_a_count_is_named(field: str, bad: object) -> None:
    changes: dict[str, Any] = {field: (0, 1, bad)}
    assert breach(replace(STEPWISE, **changes), 7) == "not an integer count"


@pytest.mark.parametrize(
    ("counters", "completion_tokens", "name"),
    [
        (replace(GOOD, exact=False), 21, "steps may be merged"),
        (SpecCounters(steps=2, accepted=7, drafted=None, histogram=None, k=3), 20, "accepted > k x steps"),
        (SpecCounters(steps=4, accepted=6, drafted=5, histogram=None, k=3), 20, "accepted > drafted"),
        (SpecCounters(steps=4, accepted=2, drafted=3, histogram=None, k=3), 20, "steps > drafted"),
        (SpecCounters(steps=4, accepted=2, drafted=13, histogram=None, k=3), 20, "drafted > k x steps"),
        (GOOD, 9, "steps > completion tokens"),
        (replace(GOOD, histogram=(4, 3, 2, 1, 0)), 21, "histogram is not k + 1 long"),
        (replace(GOOD, histogram=(4, 3, 3)), 21, "histogram is not k + 1 long"),
        (replace(GOOD, histogram=(5, 3, 2, 1)), 21, "histogram sum != steps"),
        (replace(GOOD, histogram=(3, 4, 2, 1)), 21, "histogram weight != accepted"),
        (replace(STEPWISE, per_step_accepted=(2, 1)), 7, "per-step accepted does not add up"),
        (replace(STEPWISE, per_step_accepted=(2, 0, 2)), 7, "per-step accepted does not add up"),
        (replace(STEPWISE, per_step_drafted=(3, 3)), 7, "per-step drafted does not add up"),
        (replace(STEPWISE, per_step_drafted=(3, 1, 3)), 7, "per-step drafted does not add up"),
        (replace(STEPWISE, per_step_drafted=(4, 1, 1)), 7, "a step drafted more than k"),
        (replace(STEPWISE, per_step_drafted=(3, 0, 3)), 7, "a step drafted more than k"),
        (replace(STEPWISE, per_step_drafted=(1, 3, 2)), 7, "a step accepted more than it drafted"),
    ],
)
def test_each_broken_identity_has_its_name(counters: SpecCounters, completion_tokens: int, name: str) -> None:
    assert breach(counters, completion_tokens) == name


def test_identities_hold_at_their_edges() -> None:
    assert breach(SpecCounters(steps=4, accepted=12, drafted=12, histogram=None, k=3), 4) is None
    assert breach(SpecCounters(steps=4, accepted=0, drafted=4, histogram=None, k=3), 4) is None


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)).map(lambda s: (s[0], min(s))), max_size=40))
def test_counters_counted_step_by_step_never_breach(steps: list[tuple[int, int]]) -> None:
    counters = from_steps(steps, k=6)
    assert breach(counters, completion_tokens=1 + len(steps) + sum(a for _, a in steps)) is None


@pytest.mark.parametrize(("value", "expected"), [(0, True), (7, True), (-1, False), (True, False), (7.0, False)])
def test_is_count(value: object, expected: bool) -> None:
    assert is_count(value) is expected


@pytest.mark.parametrize(
    ("histogram", "k", "expected"),
    [
        ([5, 2], 4, (5, 2, 0, 0, 0)),
        ([], 2, (0, 0, 0)),
        ([5, 2, 1], 2, (5, 2, 1)),
        ([5, 2, 1, 0, 0], 2, (5, 2, 1)),
        ([5, 2, 1, 0, 1], 2, None),
        ([5], 0, (5,)),
    ],
)
def test_histogram_is_padded_with_zeros_and_never_cut_where_it_counts(
    histogram: list[int], k: int, expected: tuple[int, ...] | None
) -> None:
    assert padded_histogram(histogram, k) == expected


def test_padding_leaves_values_for_the_identities_to_judge() -> None:
    padded = padded_histogram([1, 2.5], 2)
    assert padded == (1, 2.5, 0)


def through_json(record: RequestRecord) -> RequestRecord:
    return RequestRecord.from_json(json.loads(json.dumps(record.to_json())))


def test_record_survives_json_whole() -> None:
    record = answered(STEPWISE, prompt_id="p7", turn=2, repeat=3, raw_counters={"draft_n": 6, "nested": [1, None]})
    assert through_json(record) == record
    assert through_json(failed()) == failed()


def test_json_begins_with_the_schema_version() -> None:
    assert next(iter(answered(GOOD).to_json().items())) == ("schema_version", 1)


@settings(deadline=None, derandomize=True)
@given(text=st.text(st.characters(), max_size=20), reasoning=st.text(max_size=20))
def test_any_text_survives_json(text: str, reasoning: str) -> None:
    record = answered(GOOD, text=text, reasoning_text=reasoning)
    assert through_json(record) == record


def test_lone_surrogates_and_line_separators_survive_json() -> None:
    record = answered(GOOD, text="half \ud83d and \u2028 and \u0085", raw_counters={"\u2028": "\udc00"})
    assert through_json(record) == record


@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True, None])
def test_record_of_another_schema_version_is_refused_with_its_number(version: object) -> None:
    with pytest.raises(ValueError, match=f"schema version {version!r}.*reads 1"):
        RequestRecord.from_json({**answered(GOOD).to_json(), "schema_version": version})


def test_record_without_a_field_names_it() -> None:
    row = answered(GOOD).to_json()
    del row["repeat"], row["category"]
    with pytest.raises(ValueError, match="record without category, repeat"):
        RequestRecord.from_json(row)


@pytest.mark.parametrize("name", ["cell_id", "dataset", "prompt_id", "category", "turn", "repeat", "attempt"])
def test_record_that_stands_for_no_request_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"record whose {name} is null"):
        RequestRecord.from_json({**answered(GOOD).to_json(), name: None})


def test_record_with_an_unknown_status_is_refused() -> None:
    with pytest.raises(ValueError, match="status 'lost'"):
        RequestRecord.from_json({**answered(GOOD).to_json(), "status": "lost"})


@pytest.mark.parametrize("counters", [{"steps": 1}, {"surprise": 1}, 7, [7]])
def test_counters_of_another_shape_are_refused(counters: object) -> None:
    with pytest.raises(ValueError, match=r"^counters"):
        RequestRecord.from_json({**answered(GOOD).to_json(), "counters": counters})


def test_counters_with_a_number_for_a_list_are_refused() -> None:
    row = answered(GOOD).to_json()
    row["counters"]["histogram"] = 4
    with pytest.raises(ValueError, match=r"^counters"):
        RequestRecord.from_json(row)


def test_unit_tells_cell_prompt_turn_and_repeat_apart() -> None:
    base = answered(GOOD, cell_id="c", prompt_id="p", turn=1, repeat=2)
    assert base.unit == ("c", "p", 1, 2)
    assert replace(base, attempt=5, text="other").unit == base.unit


def test_a_k_that_no_drafter_has_is_refused_and_costs_no_memory() -> None:
    absurd = 10**9
    padded = padded_histogram([1, 1], absurd)
    assert padded == (1, 1)
    counters = SpecCounters(steps=2, accepted=1, drafted=2, histogram=padded, k=absurd)
    assert breach(counters, 10) == "k > 1024"


@pytest.mark.parametrize(("name", "value"), [("completion_tokens", "9"), ("turn", "0"), ("prompt_id", 7), ("text", 1)])
def test_field_of_another_type_is_refused_by_name(name: str, value: object) -> None:
    row = {**answered(from_histogram((1, 1))).to_json(), name: value}
    with pytest.raises(ValueError, match=f"record whose {name} is"):
        RequestRecord.from_json(row)
