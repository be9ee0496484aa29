import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spec_eval import tables
from spec_eval.records import RequestRecord
from spec_eval.render.json import render
from spec_eval.store import Plan
from spec_eval.suite import Sampling
from tests.factories import answered, cell, failed, from_histogram, from_steps, not_sent, plan, run_folder

PLAN = plan(cell([("y1", "yesno", 1), ("h1", "hard", 1), ("e1", "easy", 1), ("e2", "easy", 1)]))
RECORDS = (
    answered(from_histogram((0, 0, 0)), prompt_id="y1", category="yesno", completion_tokens=1),
    answered(from_histogram((6, 0, 0)), prompt_id="h1", category="hard"),
    answered(from_histogram((1, 1, 2)), prompt_id="e1", category="easy", finish_reason="length"),
    failed(prompt_id="e2", category="easy"),
)
ROW_KEYS = {
    "dataset",
    "category",
    "temperature",
    "k",
    "requests",
    "conversations",
    "coverage",
    "steps",
    "drafted",
    "accepted",
    "acceptance_length",
    "acceptance_length_request_mean",
    "acceptance_rate",
    "positions",
    "positions_request_mean",
    "conditional_positions",
}
REQUEST_KEYS = {
    "planned",
    "sent",
    "not_sent",
    "ok",
    "failed",
    "measured",
    "length",
    "no_counters",
    "zero_steps",
    "invalid",
    "not_sent_by",
    "failed_by",
}


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def parsed(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return document


def document(
    where: Path, of: Plan = PLAN, records: tuple[RequestRecord, ...] = RECORDS, **options: Any
) -> dict[str, Any]:
    return parsed(render([tables.build(run_folder(where, of, records, **options))]))


def test_document_has_the_agreed_keys(tmp_path: Path) -> None:
    got = document(tmp_path)
    assert got["schema_version"] == 1
    assert {"runs", "rows", "overall", "warnings"} <= got.keys()
    (run,) = got["runs"]
    assert {"run_id", "suite", "engine", "drafter", "k", "temperature"} <= run.keys()
    for row in (*got["rows"], got["overall"]):
        assert row.keys() >= ROW_KEYS
        assert row["requests"].keys() >= REQUEST_KEYS
    for warning in got["warnings"]:
        assert warning.keys() >= {"code", "message", "remedy"}
    assert {w["code"] for w in got["warnings"]} == {"failures", "few_conversations", "many_ended_by_length"} | {
        "zero_step_requests"
    }


def test_run_says_what_it_was(tmp_path: Path) -> None:
    (run,) = document(tmp_path)["runs"]
    assert (run["run_id"], run["suite"], run["engine"]) == ("20300102-030405-chat", "chat", "llamacpp")
    assert (run["model"], run["drafter"], run["k"], run["temperature"]) == ("target-a", "drafter-a", 2, 0.0)
    assert run["whole"] is True
    assert run["reconciliation"]["status"] == "exact"


def test_no_step_is_null_and_nothing_accepted_is_one(tmp_path: Path) -> None:
    yesno, hard, easy = document(tmp_path)["rows"]
    assert [yesno["category"], hard["category"], easy["category"]] == ["yesno", "hard", "easy"]
    for name in ("acceptance_length", "acceptance_rate", "positions", "positions_request_mean"):
        assert yesno[name] is None
    assert yesno["requests"]["ok"] == yesno["requests"]["zero_steps"] == 1
    assert hard["acceptance_length"] == {"value": 1.0, "low": None, "high": None}
    assert hard["acceptance_rate"] == 0.0
    assert hard["positions"] == [0.0, 0.0]


def test_figures_are_fractions_of_pooled_counters(tmp_path: Path) -> None:
    # S = 6 + 4, A = 0 + 5, D = 20; at least 1: 3, at least 2: 2.
    overall = document(tmp_path)["overall"]
    assert (overall["steps"], overall["accepted"], overall["drafted"], overall["k"]) == (10, 5, 20, 2)
    assert overall["acceptance_length"]["value"] == pytest.approx(1.5)
    assert overall["acceptance_length_request_mean"]["value"] == pytest.approx((1 + 2.25) / 2)
    assert overall["acceptance_rate"] == pytest.approx(0.25)
    assert overall["positions"] == pytest.approx([0.3, 0.2])
    assert overall["positions_request_mean"] == pytest.approx([0.375, 0.25])
    assert overall["conditional_positions"] is None
    assert (overall["conversations"], overall["coverage"]) == (3, 1.0)


def test_requests_are_accounted_for(tmp_path: Path) -> None:
    lost = not_sent("oversized: 1", prompt_id="e2", category="easy")
    requests = document(tmp_path, records=(*RECORDS[:2], failed("timeout", prompt_id="e1", category="easy"), lost))[
        "overall"
    ]["requests"]
    assert {key: requests[key] for key in ("planned", "sent", "not_sent", "ok", "failed", "measured")} == {
        "planned": 4,
        "sent": 3,
        "not_sent": 1,
        "ok": 2,
        "failed": 1,
        "measured": 2,
    }
    assert requests["not_sent_by"] == {"oversized": 1}
    assert requests["failed_by"] == {"timeout": 1}


def test_interval_stands_beside_its_value(tmp_path: Path) -> None:
    # Twenty coin flips: 1.5 ± 0.240086.
    units = [(f"p{i}", "qa", 1) for i in range(20)]
    records = tuple(answered(from_histogram((1 - i % 2, i % 2)), prompt_id=f"p{i}", category="qa") for i in range(20))
    got = document(tmp_path, plan(cell(units)), records)["overall"]["acceptance_length"]
    assert got == {"value": 1.5, "low": pytest.approx(1.259914, abs=1e-6), "high": pytest.approx(1.740086, abs=1e-6)}


def test_conditional_positions_are_null_where_nothing_was_drafted(tmp_path: Path) -> None:
    records = (answered(from_steps([(2, 2), (1, 0)], k=3), prompt_id="h1", category="hard"),)
    got = document(tmp_path, records=records)["overall"]
    assert got["conditional_positions"] == [0.5, 1.0, None]
    assert got["positions"] == [0.5, 0.5, 0.0]


def test_run_without_any_record_is_valid_and_open(tmp_path: Path) -> None:
    got = document(tmp_path, records=(), whole=False)
    overall = got["overall"]
    assert overall["requests"]["not_sent_by"] == {"stopped": 4}
    assert overall["coverage"] is None
    assert overall["acceptance_length"] is None
    assert got["runs"][0]["whole"] is False
    assert got["runs"][0]["k"] == 3
    assert "incomplete" in [w["code"] for w in got["warnings"]]


def test_counters_that_are_no_numbers_never_reach_the_document(tmp_path: Path) -> None:
    nan = float("nan")
    broken = replace(from_histogram((1, 1, 1)), accepted=nan, histogram=(nan, 1, 1))  # type: ignore[arg-type]
    records = (*RECORDS[:3], answered(broken, prompt_id="e2", category="easy", raw_counters={"rate": nan}))
    requests = document(tmp_path, records=records)["overall"]["requests"]
    assert (requests["measured"], requests["invalid"]) == (3, 1)
    assert requests["invalid_by"] == {"not an integer count": 1}


def test_several_runs_have_no_overall_row_but_their_own(tmp_path: Path) -> None:
    other = plan(*PLAN.cells, run_id="second")
    reports = [tables.build(run_folder(tmp_path, of, RECORDS)) for of in (PLAN, other)]
    got = parsed(render(reports))
    assert got["overall"] is None
    assert [run["run_id"] for run in got["runs"]] == ["20300102-030405-chat", "second"]
    assert [run["overall"]["steps"] for run in got["runs"]] == [10, 10]
    assert [row["run_id"] for row in got["rows"]] == ["20300102-030405-chat"] * 3 + ["second"] * 3


def test_setting_in_which_cells_differ_is_null(tmp_path: Path) -> None:
    units = [("h1", "hard", 1)]
    cells = (
        cell(units, cell_id="cold"),
        cell(units, cell_id="hot", sampling=Sampling(temperature=1.0, max_tokens=64), concurrency=4),
    )
    got = document(tmp_path, plan(*cells), ())
    assert (got["runs"][0]["temperature"], got["runs"][0]["concurrency"]) == (None, None)
    assert [(row["temperature"], row["concurrency"]) for row in got["rows"]] == [(0.0, 1), (1.0, 4)]
    assert (got["overall"]["temperature"], got["overall"]["concurrency"]) == (None, None)


def test_text_from_outside_stays_a_string(tmp_path: Path) -> None:
    name = 'x", "schema_version": 9, "\u2028</script>'
    got = document(tmp_path, plan(cell([("a", name, 1)])), (answered(None, prompt_id="a", category=name),))
    assert got["schema_version"] == 1
    assert got["rows"][0]["category"] == name


def test_rate_and_positions_keep_their_numbers_and_have_intervals_beside_them(tmp_path: Path) -> None:
    # Twenty conversations of one step with k = 1: the rate and position 1 are twenty coin flips, 0.5 ± 0.240086.
    units = [(f"p{i}", "qa", 1) for i in range(20)]
    records = tuple(answered(from_histogram((1 - i % 2, i % 2)), prompt_id=f"p{i}", category="qa") for i in range(20))
    got = document(tmp_path, plan(cell(units)), records)["overall"]
    interval = {
        "value": 0.5,
        "low": pytest.approx(0.259914, abs=1e-6),
        "high": pytest.approx(0.740086, abs=1e-6),
    }
    assert (got["acceptance_rate"], got["positions"], got["positions_request_mean"]) == (0.5, [0.5], [0.5])
    assert got["acceptance_rate_interval"] == interval
    assert got["positions_interval"] == [interval]
    assert got["positions_request_mean_interval"] == [interval]


def test_repeats_macro_mean_and_shorter_drafts_stand_under_names_of_their_own(tmp_path: Path) -> None:
    # Every step accepts its one draft: each repeat, each row and the mean of rows have AL 2.
    of = plan(cell([("a", "one", 1), ("b", "two", 1)], repeats=2))
    records = [
        *(answered(from_histogram((0, 5)), prompt_id="a", category="one", repeat=i) for i in range(2)),
        *(answered(from_histogram((0, 1)), prompt_id="b", category="two", repeat=i) for i in range(2)),
    ]
    got = document(tmp_path, of, tuple(records))
    spread = {"mean": 2.0, "low": 2.0, "high": 2.0}
    assert got["overall"]["mean_of_repeats"]["number"] == 2
    assert got["overall"]["mean_of_repeats"]["acceptance_length"] == spread
    assert got["runs"][0]["macro_mean"] == {"rows": 2, "acceptance_length": 2.0}
    assert got["overall"]["shorter_drafts"] is None  # k is 1
    longer = document(tmp_path / "k2", PLAN, (answered(from_histogram((1, 1, 2)), prompt_id="e1", category="easy"),))
    assert longer["overall"]["shorter_drafts"] == [{"k": 1, "acceptance_length": 1.75, "acceptance_rate": 0.75}]
    assert longer["overall"]["mean_of_repeats"] is None
    assert longer["runs"][0]["macro_mean"] is None  # two of its rows have no figure
