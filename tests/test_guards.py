from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from spec_eval import acceptance, guards, verdict
from spec_eval.guards import Code, run_warnings
from spec_eval.records import RequestRecord
from spec_eval.store import NotExact, Plan, Reconciliation, Target
from spec_eval.suite import Sampling
from tests.factories import answered, cell, failed, from_histogram, loaded, not_sent, plan, session_end

COUNTERS = from_histogram((1, 1, 1))


def many(n: int, **changes: Any) -> list[RequestRecord]:
    return [answered(changes.get("counters", COUNTERS), prompt_id=f"p{i}") for i in range(n)]


def given(
    records: Sequence[RequestRecord], *, of: Plan | None = None, whole: bool = True, **changes: Any
) -> list[guards.Warning]:
    of = of or plan(cell([(r.prompt_id, r.category, 1) for r in records]))
    run = loaded(of, records, whole=whole, **changes)
    return run_warnings(run, acceptance.figures(records), verdict.shortfalls(run))


def only(found: list[guards.Warning], code: Code) -> guards.Warning:
    assert [w.code for w in found] == [code]
    assert found[0].message
    assert found[0].remedy
    return found[0]


def test_clean_run_of_eighty_conversations_has_no_warning() -> None:
    assert given(many(80)) == []


def test_unfinished_run_counts_what_was_sent() -> None:
    records = [*many(80), not_sent("oversized: 1", prompt_id="x")]
    of = plan(cell([(name, "qa", 1) for name in (*(r.prompt_id for r in records), *"abcdefghi")]))
    warning = only(given(records, of=of, whole=False), Code.INCOMPLETE)
    assert "80 of 90" in warning.message
    assert "--resume" in warning.remedy


@pytest.mark.parametrize(("origin", "remedy"), [("measured", "--resume"), ("imported", "import it again")])
def test_lost_records_are_told_with_what_brings_them_back(origin: str, remedy: str) -> None:
    records = many(80)
    of = plan(cell([(r.prompt_id, r.category, 1) for r in records]), origin=origin)
    warning = only(given(records, of=of, outcome={"sent": 82}), Code.INCOMPLETE)
    assert "2 records are missing" in warning.message
    assert remedy in warning.remedy


def test_lines_set_aside_are_told_one_by_one() -> None:
    found = given(many(80), set_aside=("a torn", "b torn"))
    assert [(w.code, w.message) for w in found] == [(Code.SET_ASIDE, "a torn"), (Code.SET_ASIDE, "b torn")]


def test_doubles_are_named() -> None:
    warning = only(given(many(80), doubles=(("c", "p3", 0, 0), ("c", "p4", 0, 0))), Code.DOUBLES)
    assert "2 requests were measured twice (p3, p4)" in warning.message


def test_answers_that_tell_drafts_alone_give_their_pooled_rate() -> None:
    # accepted 6 + 3 of drafted 10 + 20: 30%, and not the mean of 60% and 15%; the others tell nothing sound
    raws = [
        {"predicted_n": 9, "draft_n": 10, "draft_n_accepted": 6},
        {"predicted_n": 30, "draft_n": 20, "draft_n_accepted": 3},
        {"predicted_n": 5, "draft_n": 2, "draft_n_accepted": 4},
        {"predicted_n": 5, "draft_n": 2.5, "draft_n_accepted": 1},
        {"predicted_n": 5, "draft_n": 0, "draft_n_accepted": 0},
        None,
    ]
    bare = [replace(answered(None, prompt_id=f"b{i}"), raw_counters=raw) for i, raw in enumerate(raws)]
    records = [*many(200), *bare]
    of = plan(
        cell([(r.prompt_id, r.category, 1) for r in records]),
        target=Target(engine="llamacpp", model="m", drafter="d", k=2),
    )
    warning = only(given(records, of=of), Code.RATE_ALONE)
    assert warning.message.startswith("2 answers tell drafts and no steps: rate 30.00% (9 of 30 drafts accepted)")
    of = plan(
        cell([(r.prompt_id, r.category, 1) for r in records]), target=Target(engine="vllm", model="m", drafter="d", k=2)
    )
    assert given(records, of=of) == []


def test_failures_are_told_by_reason() -> None:
    warning = only(
        given([*many(80), failed("timeout", prompt_id="x"), failed("http 500: a", prompt_id="y")]), Code.FAILURES
    )
    assert "2 of 82 requests failed" in warning.message
    assert "1 timeout" in warning.message
    assert "1 http 500" in warning.message


@pytest.mark.parametrize(("ended", "warned"), [(20, False), (21, True)])
def test_more_than_a_fifth_ended_by_length(ended: int, warned: bool) -> None:
    records = many(100)
    records[:ended] = [replace(r, finish_reason="length") for r in records[:ended]]
    found = given(records)
    assert [w.code for w in found] == [Code.MANY_LENGTH] * warned
    if warned:
        assert "21 of 100" in found[0].message


@pytest.mark.parametrize(("silent", "warned"), [(20, False), (21, True)])
def test_more_than_a_fifth_without_a_step(silent: int, warned: bool) -> None:
    nothing = from_histogram((0, 0, 0))
    records = [*many(100 - silent, counters=COUNTERS)]
    records += [answered(nothing, prompt_id=f"z{i}") for i in range(silent)]
    found = [w for w in given(records) if w.code is not Code.FEW_CONVERSATIONS]
    assert [w.code for w in found] == [Code.ZERO_STEPS] * warned


@pytest.mark.parametrize(
    ("n", "words"), [(1, "too few for an interval"), (19, "too few"), (20, "approximate"), (79, "approximate")]
)
def test_few_conversations(n: int, words: str) -> None:
    warning = only(given(many(n)), Code.FEW_CONVERSATIONS)
    assert warning.message.startswith(f"{n} conversations")
    assert words in warning.message


def test_repeats_are_no_further_conversations() -> None:
    records = [replace(r, repeat=repeat) for r in many(10) for repeat in range(10)]
    assert "10 conversations" in only(given(records), Code.FEW_CONVERSATIONS).message


def test_nothing_measured_is_not_called_few() -> None:
    assert Code.FEW_CONVERSATIONS not in [w.code for w in given([failed()])]


@pytest.mark.parametrize(("silent", "warned"), [(5, False), (6, True)])
def test_coverage_under_ninety_five_percent(silent: int, warned: bool) -> None:
    records = many(100)
    records[:silent] = [answered(None, prompt_id=f"n{i}") for i in range(silent)]
    found = given(records)
    assert [w.code for w in found] == [Code.LOW_COVERAGE] * warned
    if warned:
        assert "94 of 100" in found[0].message
        assert "6 no metrics object" in found[0].message


def test_invalid_counters_are_told_by_identity() -> None:
    broken = answered(replace(COUNTERS, histogram=(3, 1, 1)), prompt_id="x")
    warning = only(given([*many(99), broken]), Code.INVALID_COUNTERS)
    assert "1 answers left out: 1 histogram sum != steps" in warning.message


def test_requests_that_differ_in_k() -> None:
    warning = only(given([*many(99), answered(from_histogram((1, 1)), prompt_id="x")]), Code.MIXED_K)
    assert "1, 2" in warning.message


def test_server_that_counted_otherwise() -> None:
    differs = Reconciliation(status="differs", reason="the server counted 9 steps: likely foreign traffic")
    warning = only(given(many(80), reconciliation=differs), Code.UNRECONCILED)
    assert "likely foreign traffic" in warning.message
    missing = Reconciliation(status="not available", reason="no /metrics")
    assert given(many(80), reconciliation=missing) == []


def test_notes_on_the_data_name_their_set() -> None:
    of = plan(cell([(f"p{i}", "qa", 1) for i in range(80)], notes=("categories 'A', 'a' differ",)))
    assert only(given(many(80), of=of), Code.DATA_NOTE).message == "chat: categories 'A', 'a' differ"


def test_synthetic_run_is_never_to_be_published() -> None:
    of = plan(cell([(f"p{i}", "qa", 1) for i in range(80)]), synthetic="rates .8, .6")
    warning = only(given(many(80), of=of), Code.SYNTHETIC)
    assert "rates .8, .6" in warning.message
    assert "never publish" in warning.remedy


@pytest.mark.parametrize(("lags", "warned"), [((50.0, None), False), ((2.0, 51.0), True), ((None,), False)])
def test_slow_event_loop(lags: tuple[float | None, ...], warned: bool) -> None:
    ends = tuple(session_end(session=i, loop_lag_p99_ms=lag) for i, lag in enumerate(lags, 1))
    found = given(many(80), sessions=ends)
    assert [w.code for w in found] == [Code.SLOW_CLIENT] * warned
    if warned:
        assert "51 ms" in found[0].message


def test_adaptive_verification_is_told() -> None:
    of = plan(cell([(f"p{i}", "qa", 1) for i in range(80)]))
    settings = {c.cell_id: {"adaptive": True} for c in of.cells}
    warning = only(given(many(80), of=of, settings=settings), Code.ADAPTIVE)
    assert "nominal" in warning.message
    assert given(many(80), of=of, settings={c.cell_id: {"adaptive": None} for c in of.cells}) == []


def test_warm_prefix_cache_is_told() -> None:
    of = plan(cell([(f"p{i}", "qa", 1) for i in range(80)]), cold_cache=False)
    only(given(many(80), of=of), Code.WARM_CACHE)


@pytest.mark.parametrize(("engine", "warned"), [("vllm", True), ("llamacpp", False)])
def test_prompt_that_the_cache_left_one_token_of_is_a_phantom_step(engine: str, warned: bool) -> None:
    target = Target(engine=engine, model="target-a", drafter="drafter-a", k=2)
    of = plan(cell([(f"p{i}", "qa", 1) for i in range(80)]), target=target)
    records = many(80)
    records[0] = replace(records[0], prompt_tokens=33, cached_tokens=32)
    records[1] = replace(records[1], prompt_tokens=33, cached_tokens=31)
    records[2] = replace(records[2], prompt_tokens=33, cached_tokens=None)
    found = given(records, of=of)
    assert [w.code for w in found] == [Code.PHANTOM] * warned
    if warned:
        assert found[0].message.startswith("1 answers")


@pytest.mark.parametrize(("drafter", "warned"), [("drafter-a", True), ("ngram-simple", False), (None, True)])
def test_tokens_of_no_step_are_told_but_for_drafters_that_skip_some(drafter: str | None, warned: bool) -> None:
    # S = 3, A = 3: seven tokens are explained, nine are two too many; a deficit is none.
    target = Target(engine="llamacpp", model="target-a", drafter=drafter, k=2)
    of = plan(cell([(f"p{i}", "qa", 1) for i in range(80)]), target=target)
    records = [replace(r, completion_tokens=7) for r in many(80)]
    records[:2] = [replace(records[0], completion_tokens=9), replace(records[1], completion_tokens=6)]
    found = given(records, of=of)
    assert [w.code for w in found] == [Code.UNEXPLAINED] * warned
    if warned:
        assert found[0].message.startswith("2 tokens")


LOOP = "again and again and " * 10


@pytest.mark.parametrize(("looping", "warned"), [(2, False), (3, True)])
def test_more_than_two_in_a_hundred_answers_that_loop(looping: int, warned: bool) -> None:
    records = [replace(r, text=LOOP) if i < looping else r for i, r in enumerate(many(100))]
    found = given(records)
    assert [w.code for w in found] == [Code.LOOPING] * warned
    if warned:
        assert "3 of 100 answers" in found[0].message


def test_a_loop_in_the_reasoning_of_an_answer_without_text_counts() -> None:
    records = [replace(r, text=None, reasoning_text=LOOP) for r in many(80)]
    assert only(given(records), Code.LOOPING).message.startswith("80 of 80")


def test_a_drafter_beyond_its_context_is_told_with_the_length() -> None:
    records = [replace(r, prompt_tokens=100 + i) for i, r in enumerate(many(80))]
    silent = from_histogram((30, 0, 0))
    records += [answered(silent, prompt_id=f"l{i}", prompt_tokens=9000 + i) for i in range(4)]
    warning = only(given(records), Code.DRAFTER_CONTEXT)
    assert "prompts of 9000 tokens and more (4)" in warning.message


@pytest.mark.parametrize(
    ("asked", "reasoning", "code"),
    [
        (True, "", Code.NO_THINKING),
        (False, "hm", Code.UNASKED_THINKING),
        (True, "hm", None),
        (False, "", None),
        (None, "hm", None),
    ],
)
def test_thinking_that_is_not_as_asked(asked: bool | None, reasoning: str, code: Code | None) -> None:
    records = [replace(r, reasoning_text=reasoning) for r in many(80)]
    units = [(r.prompt_id, r.category, 1) for r in records]
    of = plan(cell(units, sampling=Sampling(temperature=0.0, max_tokens=8, thinking=asked)))
    assert [w.code for w in given(records, of=of)] == ([] if code is None else [code])


def test_prompts_of_one_text_are_named() -> None:
    records = many(80)
    one = cell([(r.prompt_id, r.category, 1) for r in records])
    prompts = one.prompts.model_copy(update={"duplicates": ("p7", "p9")})
    warning = only(given(records, of=plan(one.model_copy(update={"prompts": prompts}))), Code.DUPLICATES)
    assert "2 prompts" in warning.message
    assert "p7, p9" in warning.message


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (NotExact.FOREIGN_TRAFFIC, Code.FOREIGN_TRAFFIC),
        (NotExact.UNTOLD, Code.UNRECONCILED),
        (None, Code.UNRECONCILED),  # of a manifest that is older than the causes
    ],
)
def test_foreign_traffic_has_a_code_of_its_own(cause: NotExact | None, code: Code) -> None:
    reason = "the server counted 9 steps and 9 accepted, the requests 8 and 8: likely foreign traffic"
    differs = Reconciliation(status="differs", cause=cause, reason=reason)
    assert only(given(many(80), reconciliation=differs), code).message == reason
