from dataclasses import replace

import pytest

from spec_eval.engines import ENGINES
from spec_eval.engines.scrape import Totals
from spec_eval.reconcile import reconcile, request_totals
from spec_eval.records import RequestRecord, SpecCounters
from spec_eval.store import NotExact, Reconciliation
from tests.factories import answered, failed, from_histogram, from_steps, not_sent

LLAMACPP = ENGINES["llamacpp"]
# S = 4 + 3, D = 8 + 4, A = 4 + 2; at least 1: 3 + 1, at least 2: 1 + 1.
RECORDS: list[RequestRecord] = [
    answered(from_histogram((1, 2, 1)), prompt_id="a"),
    answered(from_steps([(2, 2), (1, 0), (1, 0)], k=2), prompt_id="b"),
]


def exposition(steps: int, drafted: int, accepted: int, *positions: int, prefix: str = "llamacpp:") -> str:
    lines = [
        f"{prefix}spec_decode_num_drafts_total {steps}",
        f"{prefix}spec_decode_num_draft_tokens_total {drafted}",
        f"{prefix}spec_decode_num_accepted_tokens_total {accepted}",
        *(
            f'{prefix}spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {n}'
            for i, n in enumerate(positions)
        ),
    ]
    return "\n".join(lines) + "\n"


BEFORE = exposition(100, 200, 50, 30, 20)


def held_against(after: str | None, records: list[RequestRecord], *, aborted: int = 0) -> Reconciliation:
    return reconcile(BEFORE, after, LLAMACPP, records, aborted=aborted)


def test_request_totals_are_sums_over_the_measured_ones() -> None:
    assert request_totals(RECORDS) == Totals(steps=7, drafted=12, accepted=6, positions=(4, 2))
    broken = answered(replace(from_histogram((1, 2, 1)), steps=9), prompt_id="c")
    assert request_totals([*RECORDS, broken, failed(), answered(None), not_sent()]) == request_totals(RECORDS)
    assert request_totals([]) == Totals(0, 0, 0, ())


@pytest.mark.parametrize("unknown", ["histogram", "drafted"])
def test_request_totals_are_open_where_one_request_is(unknown: str) -> None:
    counters: SpecCounters = replace(from_histogram((1, 1)), **{unknown: None})  # type: ignore[arg-type]
    assert request_totals([*RECORDS, answered(counters, prompt_id="c")]) is None


def test_equal_sums_are_exact() -> None:
    got = held_against(exposition(107, 212, 56, 34, 22), RECORDS)
    table = {"steps": 7, "drafted": 12, "accepted": 6, "positions": [4, 2]}
    assert got == Reconciliation(status="exact", reason=None, server=table, requests=table)
    assert got.sentence().startswith("exact: ")


def test_position_that_never_accepted_may_lack_on_either_side() -> None:
    before, after = exposition(0, 0, 0), exposition(2, 6, 1, 1)
    records = [answered(from_histogram((1, 1, 0, 0)))]
    assert reconcile(before, after, LLAMACPP, records, aborted=0).status == "exact"


def test_idle_server_and_no_requests_are_exact() -> None:
    assert held_against(BEFORE, []).status == "exact"


@pytest.mark.parametrize(
    ("after", "records", "aborted", "cause", "words"),
    [
        (exposition(110, 218, 59, 36, 23), RECORDS, 2, NotExact.UNTOLD, "likely 2 aborted in flight"),
        (
            exposition(110, 218, 59, 36, 23),
            [*RECORDS, failed(prompt_id="c")],
            0,
            NotExact.UNTOLD,
            "likely 1 failed half-way",
        ),
        (
            exposition(110, 218, 59, 36, 23),
            [*RECORDS, answered(None)],
            0,
            NotExact.UNTOLD,
            "likely 1 without usable counters",
        ),
        (
            exposition(110, 218, 59, 36, 23),
            RECORDS,
            0,
            NotExact.FOREIGN_TRAFFIC,
            "likely foreign traffic on the server",
        ),
        (
            exposition(110, 218, 59, 36, 23),
            [*RECORDS, not_sent()],
            0,
            NotExact.FOREIGN_TRAFFIC,
            "likely foreign traffic on the server",
        ),
        (exposition(105, 210, 54, 33, 21), RECORDS, 0, NotExact.SERVER_COUNTED_LESS, "likely a restart"),
        (
            exposition(110, 218, 59, 36, 99),
            RECORDS,
            2,
            NotExact.INCONSISTENT,
            "positions do not add up to its accepted tokens",
        ),
    ],
)
def test_difference_is_told_with_its_likely_cause(
    after: str, records: list[RequestRecord], aborted: int, cause: NotExact, words: str
) -> None:
    got = held_against(after, records, aborted=aborted)
    assert (got.status, got.cause) == ("differs", cause)
    assert got.reason is not None
    assert words in got.reason
    assert got.requests == {"steps": 7, "drafted": 12, "accepted": 6, "positions": [4, 2]}
    assert got.server is not None


def test_every_certain_cause_is_named_with_both_sums() -> None:
    got = held_against(exposition(110, 218, 59, 36, 23), [*RECORDS, failed(), answered(None)], aborted=1)
    assert got.reason is not None
    assert "the server counted 10 steps and 9 accepted, the requests 7 and 6" in got.reason
    assert "1 aborted in flight, 1 failed half-way, 1 without usable counters" in got.reason


@pytest.mark.parametrize(
    "after",
    [
        exposition(107, 213, 56, 34, 22),
        exposition(107, 212, 57, 34, 23),
        exposition(107, 212, 56, 35, 21),
        exposition(107, 212, 56, 34, 21, 1),
    ],
)
def test_any_sum_or_position_that_differs_is_a_difference(after: str) -> None:
    assert held_against(after, RECORDS).status == "differs"


def test_counter_that_went_down_is_a_restart() -> None:
    got = held_against(exposition(7, 12, 6, 4, 2), RECORDS)
    assert (got.status, got.cause, got.server) == ("not available", NotExact.RESTARTED, None)
    assert "restarted" in str(got.reason)


@pytest.mark.parametrize(("before", "after"), [(None, BEFORE), (BEFORE, None), (None, None)])
def test_missing_scrape_names_the_remedy(before: str | None, after: str | None) -> None:
    got = reconcile(before, after, LLAMACPP, RECORDS, aborted=0)
    assert (got.status, got.cause) == ("not available", NotExact.NO_METRICS)
    assert LLAMACPP.metrics_remedy in str(got.reason)


@pytest.mark.parametrize(
    "text",
    [
        "<html>hello</html>",
        "Not found",
        exposition(1, 2, 1).replace(" 2\n", " 2.5\n"),
        exposition(1, 2, 1).replace(" 2\n", " +Inf\n"),
        exposition(1, 2, 1) + "llamacpp:spec_decode_num_accepted_tokens_per_pos_total 4\n",
    ],
)
def test_scrape_that_cannot_be_read_is_not_available(text: str) -> None:
    assert held_against(text, RECORDS).status == "not available"


def test_counters_of_another_engine_are_not_available() -> None:
    got = held_against(exposition(107, 212, 56, 34, 22, prefix="vllm:"), RECORDS)
    assert (got.status, got.cause) == ("not available", NotExact.NO_TOTALS)
    assert got.reason == "no llamacpp:spec_decode counters in /metrics"


def test_nominal_drafts_are_not_available_and_the_server_is_kept() -> None:
    nominal = answered(replace(from_histogram((1, 1)), drafted=None), prompt_id="c")
    got = held_against(exposition(107, 212, 56, 34, 22), [*RECORDS, nominal])
    assert (got.status, got.cause, got.requests) == ("not available", NotExact.NOMINAL_DRAFTS, None)
    assert got.server == {"steps": 7, "drafted": 12, "accepted": 6, "positions": [4, 2]}
    assert got.sentence() == f"not available: {got.reason}"


def test_an_engine_without_counters_by_request_keeps_the_servers_sums() -> None:
    before, after = (exposition(*sums, prefix="vllm:") for sums in ((1, 2, 1, 1), (4, 8, 3, 2, 1)))
    got = reconcile(before, after, ENGINES["scrape"], [answered(None)], aborted=0)
    assert (got.status, got.cause, got.requests) == ("not available", NotExact.SERVER_WIDE, None)
    assert got.server == {"steps": 3, "drafted": 6, "accepted": 2, "positions": [1, 1]}


def test_servers_sums_that_contradict_themselves_are_not_kept() -> None:
    # 2 accepted, and 1 + 2 over the positions
    before, after = (exposition(*sums, prefix="vllm:") for sums in ((1, 2, 1, 1), (4, 8, 3, 2, 2)))
    got = reconcile(before, after, ENGINES["scrape"], [answered(None)], aborted=0)
    assert (got.status, got.cause, got.server) == ("not available", NotExact.INCONSISTENT, None)
    assert got.reason == "its accepted tokens contradict themselves: 3 over the positions, 2 in all"


def test_where_nobody_counted_a_step_and_a_request_failed_nothing_was_compared() -> None:
    got = held_against(BEFORE, [failed()])
    assert (got.status, got.cause) == ("not available", NotExact.NOTHING_MEASURED)
    assert got.server == {"steps": 0, "drafted": 0, "accepted": 0, "positions": [0, 0]}
    assert got.requests == {"steps": 0, "drafted": 0, "accepted": 0, "positions": []}


def test_what_is_no_prometheus_text_is_unreadable() -> None:
    got = held_against(exposition(1, 2, 1).replace(" 2\n", " 2.5\n"), RECORDS)
    assert (got.status, got.cause) == ("not available", NotExact.UNREADABLE)
    assert "/metrics is not readable" in str(got.reason)
