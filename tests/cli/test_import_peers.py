"""Files of AIPerf and of `vllm bench serve`, from the command line to the report."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_imports import Shown, document
from tests.factories import DATA
from tests.importers.test_vllm_bench import result, written

__all__ = ["document"]


@pytest.fixture
def bench(face: Callable[..., Shown], tmp_path: Path) -> Callable[..., Shown]:
    """Results imported as vLLM's."""

    def call(*results: object, more: tuple[str, ...] = ()) -> Shown:
        path = written(tmp_path, *results)
        return face("import", "vllm-bench", path, "--engine", "vllm", "--out", tmp_path / "results", *more)

    return call


def strict(text: str) -> Any:
    """JSON as the standard has it: without NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_result_of_bench_is_one_labelled_row(
    bench: Callable[..., Shown], face: Callable[..., Shown], document: Callable[..., Any]
) -> None:
    code, out, err = bench(result())
    assert code == 0, err
    assert out.count("\n") == 1
    name = "server-wide, all prompts, incl. other traffic (imported)"
    table = face("report", out.strip())[1]
    # 700 / 1200 = 58.33%
    assert f"| {name} | 2.7500 | — | — | 58.33% | 400 |" in table
    assert f"| {name} | 80.00% | 55.00% | 40.00% |" in table
    assert f"| {name} | 50 | 50 | 0 | 48 | 2 | 0 | 0 | 48 | 0 | 0 |" in table
    assert "50.00 tokens/s/user (1000 / mean TPOT 20.00 ms), mean TTFT 60.00 ms, 120.25 output tokens/s in all" in table
    assert "18.18" not in table  # 1000 / 55, the time between chunks
    assert "(imported) (server-wide)" in table.splitlines()[0]
    assert "vllm bench serve" in table
    got = document(out)
    (row,) = got["rows"]
    assert row == got["overall"]
    assert (row["category"], row["steps"], row["drafted"], row["accepted"], row["k"]) == (
        "server-wide", 400, 1200, 700, 3,
    )  # fmt: skip
    assert row["acceptance_length"] == {"value": 2.75, "low": None, "high": None}
    assert row["positions"] == pytest.approx([0.8, 0.55, 0.4])
    assert (row["coverage"], row["conversations"], row["concurrency"], row["temperature"]) == (None, 0, 4, None)
    (run,) = got["runs"]
    assert (run["model"], run["origin"], run["labels"]) == ("org/target-b", "imported", ["imported", "server-wide"])
    assert run["points"]["c=4"]["load"]["mean_ttft_ms"] == 60.0
    assert run["points"]["c=4"]["tokens_per_second_per_user"] == 50.0
    assert run["settings"]["c=4"]["k"] == 3
    manifest = strict((Path(out.strip()) / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["points"]["c=4"]["load"]["mean_tpot_ms"] == 20.0


def test_appended_results_are_rows_of_one_run(
    bench: Callable[..., Shown], face: Callable[..., Shown], document: Callable[..., Any]
) -> None:
    # S 100, D 300, A 75, so that ten times as many steps do not outweigh it unseen
    second = result(
        max_concurrency=16,
        mean_tpot_ms=40.0,
        spec_decode_num_drafts=100,
        spec_decode_draft_tokens=300,
        spec_decode_accepted_tokens=75,
        spec_decode_acceptance_rate=25.0,
        spec_decode_acceptance_length=1.75,
        spec_decode_per_position_acceptance_rates=[0.5, 0.2, 0.05],
    )
    code, out, err = bench(result(), second)
    assert code == 0, err
    got = document(out)
    assert [(row["concurrency"], row["acceptance_length"]["value"]) for row in got["rows"]] == [(4, 2.75), (16, 1.75)]
    # 1 + (700 + 75) / (400 + 100), and (0.8 x 400 + 0.5 x 100) / 500, …
    assert got["overall"]["acceptance_length"]["value"] == pytest.approx(2.55)
    assert got["overall"]["positions"] == pytest.approx([0.74, 0.48, 0.33])
    assert got["overall"]["requests"]["planned"] == 100
    table = face("report", out.strip())[1]
    for name, al in (("c=4", "2.7500"), ("c=16", "1.7500"), ("overall, pooled", "2.5500")):
        assert f"| server-wide, all prompts, incl. other traffic / {name} (imported) | {al} |" in table
    assert "interactivity, c=16" in table
    assert "25.00 tokens/s/user" in table
    lines = list(csv.DictReader(io.StringIO(face("report", out.strip(), "--format", "csv")[1])))
    assert [(line["row"], line["concurrency"]) for line in lines] == [
        ("server-wide", "4"),
        ("server-wide", "16"),
        ("overall", ""),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({name: "absent" for name in result() if name.startswith("spec_decode_")}, "no speculation metrics"),
        ({"spec_decode_num_drafts": 0, "spec_decode_acceptance_length": 0.0}, "zero drafts"),
        ({"spec_decode_accepted_tokens": 1300}, "accepted \\> drafted"),
    ],
)
def test_no_figure_is_a_dash_with_its_reason_and_no_verdict(
    bench: Callable[..., Shown],
    face: Callable[..., Shown],
    document: Callable[..., Any],
    changes: dict[str, Any],
    words: str,
) -> None:
    code, out, err = bench(result(**changes))
    assert code == 3
    assert "no verification step was measured" in err.splitlines()[-1]
    code, table, _ = face("report", out.strip())
    assert code == 3
    assert "| server-wide, all prompts, incl. other traffic (imported) | — | — | — | — | 0 |" in table
    assert words in table
    assert "1.0000" not in table
    got = document(out, code=3)["overall"]
    assert (got["acceptance_length"], got["acceptance_rate"], got["positions"]) == (None, None, None)
    assert (got["requests"]["ok"], got["requests"]["failed"]) == (48, 2)


def test_nan_is_named_and_our_own_output_has_none(
    bench: Callable[..., Shown], face: Callable[..., Shown], tmp_path: Path
) -> None:
    code, out, err = bench(result(mean_itl_ms=float("nan")))
    assert code == 0
    assert err.splitlines()[0] == "spec-eval: bench.json: c=4: mean_itl_ms is NaN: read as missing"
    got = strict(face("report", out.strip(), "--format", "json")[1])
    assert got["runs"][0]["points"]["c=4"]["load"]["mean_itl_ms"] is None
    assert got["rows"][0]["acceptance_length"]["value"] == 2.75
    for name in ("plan.json", "manifest.json"):
        strict((Path(out.strip()) / name).read_text(encoding="utf-8"))
    assert "mean\\_itl\\_ms is NaN" in (Path(out.strip()) / "report.md").read_text(encoding="utf-8")


def test_failures_of_bench_count_against_the_allowance(bench: Callable[..., Shown]) -> None:
    code, _, err = bench(result(completed=40, failed=10))
    assert code == 5
    assert "10 of 50 requests failed" in err.splitlines()[-1]
    assert "failures: 10 of 50 requests failed: 10 reason not told; see the files that were imported\n" in err
    assert bench(result(completed=40, failed=10), more=("--max-failures", "20%"))[0] == 0


def test_totals_of_vllm_are_no_other_engines(face: Callable[..., Shown], tmp_path: Path) -> None:
    code, out, err = face("import", "vllm-bench", written(tmp_path, result()), "--engine", "sglang")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "give --engine vllm" in err


def test_artifacts_of_aiperf_are_requests_of_a_run(
    face: Callable[..., Shown], document: Callable[..., Any], tmp_path: Path
) -> None:
    folder = DATA / "aiperf" / "vllm"
    code, out, err = face("import", "aiperf", folder, "--engine", "vllm", "--out", tmp_path)
    assert code == 0, err
    assert "imported-vllm-vllm" in out
    got = document(out)
    overall = got["overall"]
    # 17 + 36 + 67 + 70 steps, 51 + 108 + 201 + 210 drafts, 25 + 43 + 88 + 90 accepted
    assert (overall["steps"], overall["drafted"], overall["accepted"]) == (190, 570, 246)
    # none accepted in 3 + 15 + 20 + 20 steps, one in 6 + 7 + 18 + 24, two in 5 + 6 + 17 + 12, three in 37
    assert overall["positions"] == pytest.approx([132 / 190, 77 / 190, 37 / 190])
    assert overall["acceptance_length"]["value"] == pytest.approx(1 + 246 / 190)
    assert (overall["requests"]["planned"], overall["requests"]["measured"], overall["coverage"]) == (4, 4, 1.0)
    (run,) = got["runs"]
    assert (run["model"], run["temperature"], run["concurrency"], run["k"]) == ("mock-model", 1.0, 4, 3)
    table = face("report", out.strip())[1]
    assert "aiperf 0.13.0" in table
    assert "temperature 1, max\\_tokens 32768; what is not named is not known: imported" in table
    assert "asked: on; reasoning seen in answers: yes" in table
    manifest = strict((Path(out.strip()) / "manifest.json").read_text(encoding="utf-8"))
    # 1796068518.438… and 1796068519.9… seconds since the epoch
    assert manifest["started"] == "2026-11-30T19:55:18+00:00"


def test_counters_that_aiperf_did_not_keep_are_told(face: Callable[..., Shown], tmp_path: Path) -> None:
    code, out, err = face("import", "aiperf", DATA / "aiperf" / "vllm", "--engine", "sglang", "--out", tmp_path)
    assert code == 5
    assert out.count("\n") == 1
    assert "raw export alone" in err


def test_folder_without_a_run_is_one_line(face: Callable[..., Shown], tmp_path: Path) -> None:
    code, out, err = face("import", "aiperf", tmp_path, "--engine", "vllm")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "profile_export.jsonl" in err


def test_k_that_no_drafter_has_is_refused_at_once(bench: Callable[..., Shown]) -> None:
    code, _, err = bench(result(), more=("--k", "100000"))
    assert code == 2
    assert "--k" in err
    assert "1024" in err
