from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_eval.acceptance import figures, kind, measured, outcome, server_wide
from spec_eval.engines import scrape
from spec_eval.records import RequestRecord, SpecCounters
from spec_eval.stats import Estimate, value, values
from tests.factories import answered, failed, from_histogram, from_steps, not_sent

# k = 2. Short answers accept well, the long coding answer badly.
CODING = [answered(from_histogram((2, 3, 5)), prompt_id="c1"), answered(from_histogram((60, 20, 10)), prompt_id="c2")]
WRITING = [answered(from_histogram((1, 1, 2)), prompt_id="w1"), answered(from_histogram((5, 10, 25)), prompt_id="w2")]


def value_of(records: Sequence[RequestRecord]) -> float:
    estimate = figures(records).acceptance_length
    assert estimate is not None
    return estimate.value


def test_pooled_figures_are_sums_divided_once() -> None:
    # S = 10 + 90, A = 13 + 40, D = 200; steps that accepted at least 1: 8 + 30, at least 2: 5 + 10.
    got = figures(CODING)
    assert (got.steps, got.accepted, got.drafted, got.k) == (100, 53, 200, 2)
    assert (got.conversations, got.requests) == (2, 2)
    assert value_of(CODING) == pytest.approx(1.53)
    assert value(got.acceptance_rate) == pytest.approx(0.265)
    assert got.drafts_per_step == 2.0
    assert values(got.positions) == pytest.approx((0.38, 0.15))


def test_request_mean_is_another_figure_under_its_own_name() -> None:
    # (2.3 + 1.4444 + 2.25 + 2.5) / 4; the shares likewise.
    got = figures(CODING + WRITING)
    assert got.acceptance_length_request_mean is not None
    assert got.acceptance_length_request_mean.value == pytest.approx(2.1236111)
    assert values(got.positions_request_mean) == pytest.approx((0.6895833, 0.4340278))


def test_overall_is_neither_the_mean_of_ratios_nor_the_mean_of_the_categories() -> None:
    # Pooled 1 + 118/144; mean of requests 2.1236; mean of the two categories (1.53 + 2.4773) / 2.
    overall = value_of(CODING + WRITING)
    assert overall == pytest.approx(1 + 118 / 144)
    assert overall != pytest.approx(2.1236111, abs=0.01)
    assert overall != pytest.approx(2.0036364, abs=0.01)


@pytest.mark.parametrize("records", [CODING, WRITING, CODING + WRITING])
def test_acceptance_length_is_one_plus_the_positions(records: list[RequestRecord]) -> None:
    got = figures(records)
    assert got.positions is not None
    assert got.positions_request_mean is not None
    assert got.acceptance_length_request_mean is not None
    assert value_of(records) == pytest.approx(1 + sum(values(got.positions) or ()))
    assert got.acceptance_length_request_mean.value == pytest.approx(1 + sum(values(got.positions_request_mean) or ()))
    assert value(got.acceptance_rate) == pytest.approx(sum(values(got.positions) or ()) / 2)


def test_no_step_is_no_figure() -> None:
    got = figures([answered(from_histogram((0, 0, 0)), prompt_id=f"y{i}", completion_tokens=1) for i in range(2)])
    assert (got.requests, got.steps, got.accepted, got.drafted) == (2, 0, 0, 0)
    assert got.acceptance_length is None
    assert got.acceptance_length_request_mean is None
    assert got.acceptance_rate is None
    assert got.drafts_per_step is None
    assert got.positions is None
    assert got.positions_request_mean is None
    assert got.conditional_positions is None


def test_steps_that_accepted_nothing_are_exactly_one() -> None:
    got = figures([answered(from_histogram((9, 0, 0)))])
    assert got.acceptance_length is not None
    assert got.acceptance_length.value == 1.0
    assert value(got.acceptance_rate) == 0.0
    assert values(got.positions) == (0.0, 0.0)


def test_answer_without_a_step_changes_no_figure_beside_others() -> None:
    silent = answered(from_histogram((0, 0, 0)), prompt_id="y")
    alone, beside = figures(CODING), figures([*CODING, silent])
    assert beside.requests == 3
    assert beside.acceptance_length == alone.acceptance_length
    assert beside.acceptance_length_request_mean == alone.acceptance_length_request_mean
    assert beside.positions_request_mean == alone.positions_request_mean


def test_nothing_measured_has_no_counts_of_drafts_or_k() -> None:
    got = figures([failed(), answered(None)])
    assert (got.requests, got.conversations, got.drafted, got.k) == (0, 0, None, None)
    assert got.acceptance_length is None


def test_variable_drafts_give_conditional_positions_beside_the_shares() -> None:
    # Steps (drafted, accepted): at least 1 drafted in 5, accepted in 4; 2: 3 and 2; 3: 2 and 1. S = 5, A = 7, D = 10.
    records = [
        answered(from_steps([(3, 2), (1, 0), (2, 1)], k=4), prompt_id="a"),
        answered(from_steps([(3, 3), (1, 1)], k=4), prompt_id="b"),
    ]
    got = figures(records)
    assert values(got.positions) == pytest.approx((4 / 5, 2 / 5, 1 / 5, 0.0))
    assert got.conditional_positions is not None
    assert got.conditional_positions[:3] == pytest.approx((4 / 5, 2 / 3, 1 / 2))
    assert got.conditional_positions[3] is None
    assert value_of(records) == pytest.approx(2.4)
    assert value(got.acceptance_rate) == pytest.approx(0.7)
    assert got.drafts_per_step == pytest.approx(2.0)


def test_conditional_positions_need_every_step() -> None:
    got = figures([answered(from_steps([(2, 1)], k=2), prompt_id="a"), answered(from_histogram((1, 1, 0)))])
    assert got.conditional_positions is None
    assert values(got.positions) == pytest.approx((2 / 3, 0.0))


def test_nominal_drafts_leave_the_rate_open_and_nothing_else() -> None:
    nominal = answered(replace(from_histogram((1, 1, 2)), drafted=None), prompt_id="n")
    got = figures([*CODING, nominal])
    assert (got.drafted, value(got.acceptance_rate), got.drafts_per_step) == (None, None, None)
    assert value_of([*CODING, nominal]) == pytest.approx(1 + 58 / 104)


def test_sums_without_a_histogram_leave_the_positions_open() -> None:
    got = figures([answered(SpecCounters(steps=4, accepted=6, drafted=8, histogram=None, k=2))])
    assert got.positions is None
    assert got.positions_request_mean is None
    assert value(got.acceptance_rate) == 0.75


def test_shorter_k_counts_as_nothing_accepted_beyond_it() -> None:
    got = figures([answered(from_histogram((1, 3)), prompt_id="a"), answered(from_histogram((0, 2, 2)), prompt_id="b")])
    assert got.k == 2
    assert values(got.positions) == pytest.approx((7 / 8, 2 / 8))


def test_end_inside_a_draft_changes_no_figure_and_is_told_beside() -> None:
    # Three answers with S = 3, A = 11, C = 10: 1 + 11/3, delivered (10 - 1) / 3, 1 + 3 + 11 - 10 = 5 tokens too many.
    records = [answered(from_histogram((0, 0, 0, 1, 2)), prompt_id=f"p{i}", completion_tokens=10) for i in range(3)]
    got = figures(records)
    assert value_of(records) == pytest.approx(1 + 11 / 3)
    assert value(got.delivered_per_step) == pytest.approx(3.0)
    assert (got.undelivered, got.unexplained) == (15, 0)


def test_tokens_of_plain_steps_are_told_beside() -> None:
    # C = 9 = 1 + S 2 + A 2 + 4 plain steps; the other answer lacks one.
    records = [
        answered(from_histogram((1, 0, 1)), prompt_id="a", completion_tokens=9),
        answered(from_histogram((1, 0, 1)), prompt_id="b", completion_tokens=4),
    ]
    got = figures(records)
    assert got.delivered_per_step is None
    assert (got.undelivered, got.unexplained) == (1, 4)


def test_delivery_is_open_where_an_answer_does_not_count_its_tokens() -> None:
    got = figures([answered(from_histogram((1, 0, 1)), prompt_id="a", completion_tokens=9), *CODING])
    assert (got.delivered_per_step, got.undelivered, got.unexplained) == (None, None, None)


def test_steps_that_drafted_exactly_k_have_figures_of_their_own() -> None:
    # Of k = 3: (3, 2), (3, 3), (3, 0): AL 1 + 5/3; positions 2/3, 2/3, 1/3.
    records = [
        answered(from_steps([(3, 2), (1, 1), (3, 3)], k=3), prompt_id="a"),
        answered(from_steps([(2, 2), (3, 0)], k=3), prompt_id="b"),
    ]
    full = figures(records).full_steps
    assert full is not None
    assert full.steps == 3
    assert full.acceptance_length == pytest.approx(1 + 5 / 3)
    assert full.positions == pytest.approx((2 / 3, 2 / 3, 1 / 3))
    assert figures([answered(from_steps([(2, 1)], k=3))]).full_steps is None
    assert figures(CODING).full_steps is None


def test_turns_and_repeats_of_a_prompt_are_one_draw() -> None:
    # 20 prompts x 2 turns, both turns alike: half-width as of 20 coin flips, 0.240086, not as of 40.
    records = [
        answered(from_histogram((1 - i % 2, i % 2)), prompt_id=f"p{i}", turn=turn)
        for i in range(20)
        for turn in range(2)
    ]
    for estimate in (figures(records).acceptance_length, figures(records).acceptance_length_request_mean):
        assert estimate is not None
        assert estimate.n == 20
        assert estimate.high == pytest.approx(1.5 + 0.240086, abs=1e-6)


def test_many_repeats_of_few_prompts_have_no_interval() -> None:
    records = [answered(from_histogram((1, 2)), prompt_id=f"p{i}", repeat=r) for i in range(19) for r in range(5)]
    estimate = figures(records).acceptance_length
    assert estimate is not None
    assert (estimate.n, estimate.low, estimate.high) == (19, None, None)


def test_one_prompt_id_in_two_data_sets_is_two_conversations() -> None:
    records = [
        answered(from_histogram((i % 2, 1)), prompt_id=str(i), dataset=dataset)
        for i in range(10)
        for dataset in ("left", "right")
    ]
    got = figures(records)
    assert got.conversations == 20
    assert got.acceptance_length is not None
    assert got.acceptance_length.n == 20


def test_broken_counters_and_failures_never_enter_the_sums() -> None:
    broken = answered(from_histogram((0, 0, 50), drafted=10), prompt_id="x")
    lost = replace(answered(from_histogram((0, 0, 50)), prompt_id="y"), status="failed", failure_reason="cut")
    assert [r.prompt_id for r, _ in measured([*CODING, broken, lost, answered(None)])] == ["c1", "c2"]
    assert figures([*CODING, broken, lost, answered(None)]) == figures(CODING)


def test_every_fate_is_counted_under_its_reason() -> None:
    records = [
        answered(from_histogram((1, 1)), prompt_id="a", finish_reason="length"),
        answered(from_histogram((0, 0)), prompt_id="b"),
        answered(None, prompt_id="c", finish_reason="length"),
        answered(from_histogram((1, 1)), prompt_id="d", completion_tokens=1),
        failed("http 500: no memory", prompt_id="e"),
        failed("http 500: other words", prompt_id="f"),
        failed("timeout", prompt_id="g"),
        not_sent("oversized: 9000 > 4096", prompt_id="h"),
        not_sent("earlier turn failed", prompt_id="i"),
    ]
    got = outcome(records, planned=12)
    assert got.planned == 12
    assert got.not_sent_by == {"earlier turn failed": 1, "oversized": 1, "stopped": 3}
    assert got.failed_by == {"http 500": 2, "timeout": 1}
    assert got.no_counters_by == {"no metrics object": 1}
    assert got.invalid_by == {"steps > completion tokens": 1}
    assert (got.not_sent, got.sent, got.ok, got.failed) == (5, 7, 4, 3)
    assert (got.measured, got.no_counters, got.invalid, got.zero_steps, got.length) == (2, 1, 1, 1, 2)
    assert got.coverage == 0.5


def test_coverage_of_nothing_answered_is_not_known() -> None:
    assert outcome([failed()], planned=1).coverage is None
    assert outcome([], planned=0).coverage is None
    assert outcome([answered(None)], planned=1).coverage == 0.0


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("http 500: a: b", "http 500"), ("timeout", "timeout"), (None, "unknown"), ("", "unknown"), ("a:b", "a:b")],
)
def test_kind_is_what_stands_before_the_colon(reason: str | None, expected: str) -> None:
    assert kind(reason) == expected


COUNTERS = st.one_of(
    st.none(),
    st.lists(st.integers(0, 9), min_size=3, max_size=3).map(from_histogram),
    st.builds(
        SpecCounters,
        steps=st.integers(-1, 5),
        accepted=st.integers(-1, 12),
        drafted=st.none() | st.integers(0, 12),
        histogram=st.none(),
        k=st.integers(0, 3),
    ),
)
RECORDS = st.lists(
    st.one_of(
        st.builds(
            lambda c, tokens, end, prompt: answered(c, completion_tokens=tokens, finish_reason=end, prompt_id=prompt),
            COUNTERS,
            st.none() | st.integers(0, 40),
            st.sampled_from(["stop", "length", None]),
            st.sampled_from("abcdef"),
        ),
        st.sampled_from(["http 500: x", "timeout", "cut"]).map(failed),
        st.sampled_from(["oversized: 1", "earlier turn failed", "stopped"]).map(not_sent),
    ),
    max_size=30,
)


@settings(deadline=None, derandomize=True)
@given(records=RECORDS, unseen=st.integers(0, 5))
def test_accounting_adds_up(records: list[RequestRecord], unseen: int) -> None:
    got = outcome(records, planned=len(records) + unseen)
    assert got.planned == got.sent + got.not_sent
    assert got.sent == got.ok + got.failed
    assert got.ok == got.measured + got.no_counters + got.invalid
    assert got.zero_steps <= got.measured
    assert got.length <= got.ok
    assert got.ok == sum(r.status == "ok" for r in records)
    assert got.failed == sum(r.status == "failed" for r in records)
    assert (got.coverage is None) == (got.ok == 0)
    assert got.measured == figures(records).requests


@settings(deadline=None, derandomize=True)
@given(RECORDS)
def test_figures_are_in_range_or_absent(records: list[RequestRecord]) -> None:
    got = figures(records)
    if got.steps == 0:
        assert got.acceptance_length is None
        assert got.positions is None
        return
    assert got.acceptance_length is not None
    assert got.k is not None
    assert 1.0 <= got.acceptance_length.value <= 1 + got.k
    assert got.acceptance_rate is None or 0.0 <= got.acceptance_rate.value <= 1.0
    if got.positions is not None:
        assert len(got.positions) == got.k
        assert all(later <= earlier for earlier, later in pairwise(values(got.positions) or ()))
        assert got.acceptance_length.value == pytest.approx(1 + sum(values(got.positions) or ()))


def test_answer_without_a_step_is_all_plain_steps() -> None:
    # The second answer's 199 tokens after the first came from no verification step.
    records = [
        answered(from_histogram((1, 0, 1)), prompt_id="a", completion_tokens=5),
        answered(from_histogram((0, 0, 0)), prompt_id="b", completion_tokens=200),
        answered(from_histogram((0, 0, 0)), prompt_id="c", completion_tokens=1),
    ]
    got = figures(records)
    assert (got.unexplained, got.undelivered, got.delivered_per_step) == (199, 0, None)


def test_totals_of_a_server_are_figures_without_an_interval() -> None:
    # before: nothing; after: 90 steps, 250 drafted, 135 accepted, of them 63, 45 and 27 at positions 1, 2, 3
    text = """
llamacpp:spec_decode_num_drafts_total 90
llamacpp:spec_decode_num_draft_tokens_total 250
llamacpp:spec_decode_num_accepted_tokens_total 135
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 63
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 45
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 27
"""
    found = scrape.find(text)
    assert found is not None
    prefix, totals = found
    assert prefix == "llamacpp:"
    got = server_wide(totals.steps, totals.drafted, totals.accepted, totals.positions, None, 5)
    assert got.acceptance_length == Estimate(2.5, None, None, 0)
    assert value(got.acceptance_rate) == pytest.approx(0.54)
    assert values(got.positions) == pytest.approx([0.7, 0.5, 0.3])
    assert got.k == 3
    assert got.drafts_per_step == pytest.approx(250 / 90)
    assert got.acceptance_length_request_mean is None
    padded = server_wide(90, None, 135, (63, 45, 27), 4, 5)
    assert (padded.k, padded.acceptance_rate) == (4, None)
    assert values(padded.positions) == pytest.approx([0.7, 0.5, 0.3, 0.0])
    assert server_wide(90, 250, 135, (63, 45), 3, 5).positions is None  # they do not add up
    nothing = server_wide(0, 0, 0, (), None, 5)
    assert (nothing.acceptance_length, nothing.acceptance_rate, nothing.positions, nothing.k) == (None,) * 4
