import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spec_eval.store import RunFolder
from tests.importers.test_captures import body, line, written

Shown = tuple[int, str, str]


@pytest.fixture
def taken(face: Callable[..., Shown], tmp_path: Path) -> Callable[..., Shown]:
    """Lines imported as vLLM's."""

    def call(*lines: dict[str, Any], tail: bytes = b"", more: tuple[str, ...] = ()) -> Shown:
        path = written(tmp_path, list(lines), tail)
        return face("import", "captures", path, "--engine", "vllm", "--out", tmp_path / "results", *more)

    return call


@pytest.fixture
def document(face: Callable[..., Shown]) -> Callable[..., Any]:
    def call(out: str, *more: str, code: int = 0) -> Any:
        got, text, _ = face("report", out.strip(), "--format", "json", *more)
        assert got == code
        return json.loads(text)

    return call


def test_standard_output_is_the_run_folder_and_nothing_else(taken: Callable[..., Shown], tmp_path: Path) -> None:
    code, out, err = taken(line("a", body([1, 2, 1])))
    assert code == 0
    folder = Path(out.removesuffix("\n"))
    assert out.count("\n") == 1
    assert folder.parent == tmp_path / "results"
    assert (folder / "manifest.json").is_file()
    assert "(imported)" in err
    assert "\ntarget: not named\ndrafter: not named\n" in err
    assert "2.0000" in err
    assert "(imported)" in (folder / "report.md").read_text(encoding="utf-8").splitlines()[0]


def test_drafter_is_named_in_the_report_where_the_user_names_it(
    taken: Callable[..., Shown], document: Callable[..., Any]
) -> None:
    code, out, err = taken(line("a", body([1, 2, 1])), more=("--drafter", "org/small-drafter"))
    assert code == 0
    assert "\ndrafter: org/small-drafter\n" in err
    (run,) = document(out)["runs"]
    assert run["drafter"] == "org/small-drafter"


def test_pooled_figures_are_sums_divided_once(taken: Callable[..., Shown], document: Callable[..., Any]) -> None:
    # a short, lucky answer and a long, poor one in each category
    _, out, err = taken(
        line("a1", body([0, 0, 4], tokens=13), category="coding"),  # S 4 A 8
        line("a2", body([90, 6, 0], tokens=103), category="coding"),  # S 96 A 6
        line("b1", body([0, 2, 2], tokens=11), category="writing"),  # S 4 A 6
        line("b2", body([20, 20, 56], tokens=229), category="writing"),  # S 96 A 132
    )
    got = document(out)
    coding, writing = got["rows"]
    overall = got["overall"]
    assert [row["category"] for row in got["rows"]] == ["coding", "writing"]
    assert coding["acceptance_length"]["value"] == pytest.approx(1 + 14 / 100)
    assert coding["acceptance_length_request_mean"]["value"] == pytest.approx((3 + 1 + 6 / 96) / 2)
    assert writing["acceptance_length"]["value"] == pytest.approx(1 + 138 / 100)
    assert (overall["steps"], overall["accepted"], overall["drafted"]) == (200, 152, 400)
    assert overall["acceptance_length"]["value"] == pytest.approx(1.76)
    assert overall["acceptance_rate"] == pytest.approx(0.38)
    # at least one: 4 + 6 + 4 + 76; two: 4 + 0 + 2 + 56
    assert overall["positions"] == pytest.approx([0.45, 0.31])
    assert overall["acceptance_length"]["value"] == pytest.approx(1 + sum(overall["positions"]))
    mean = (3 + 1.0625 + 2.5 + 2.375) / 4
    assert overall["acceptance_length_request_mean"]["value"] == pytest.approx(mean)
    assert "1.7600" in err
    assert f"{mean:.4f}" in err
    assert "pooled over requests" in err


def test_answers_without_counters_are_counted_by_reason_and_end_in_5(
    taken: Callable[..., Shown], document: Callable[..., Any]
) -> None:
    two = [{"index": i, "message": {"content": "x"}, "finish_reason": "stop"} for i in (0, 1)]
    code, out, err = taken(
        line("r1", body([2, 1, 3])),  # S 6 A 7
        line("r2", body(metrics={"speculative_decoding": None}, choices=two)),
        line("r3", body(metrics=None)),
        line("r4", body()),
        line("r5", body(metrics={"generation_time_ms": 9.0})),
    )
    assert code == 5
    assert "coverage 20.0% is below 95%: 1 of 5" in err.splitlines()[-1]
    assert "--per-request-spec-decode-metrics" in err
    overall = document(out, "--partial")["overall"]
    assert overall["acceptance_length"]["value"] == pytest.approx(1 + 7 / 6)
    assert overall["coverage"] == 0.2
    assert overall["requests"]["no_counters_by"] == {
        "null, n=2": 1,
        "metrics null": 1,
        "no metrics object": 1,
        "metrics without speculative_decoding": 1,
    }
    assert document(out, code=5)["overall"]["coverage"] == 0.2


def test_no_step_is_no_figure_and_steps_that_accept_nothing_are_one(
    taken: Callable[..., Shown], document: Callable[..., Any], face: Callable[..., Shown]
) -> None:
    code, out, err = taken(
        line("z1", body([0, 0, 0], tokens=1), category="yesno"),
        line("z2", body([0, 0, 0], tokens=1), category="yesno"),
        line("h1", body([7, 0, 0], tokens=8), category="hard"),
    )
    assert code == 0
    yesno, hard = document(out)["rows"]
    assert (yesno["acceptance_length"], yesno["acceptance_rate"], yesno["positions"]) == (None, None, None)
    assert (yesno["requests"]["ok"], yesno["requests"]["measured"], yesno["requests"]["zero_steps"]) == (2, 2, 2)
    assert (hard["acceptance_length"]["value"], hard["acceptance_rate"], hard["positions"]) == (1.0, 0.0, [0.0, 0.0])
    table = face("report", out.strip())[1]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines() if row.startswith("|")]
    assert ["talk / yesno (imported)", "—", "—", "—", "—", "0"] in rows
    assert ["talk / hard (imported)", "1.0000", "—", "1.0000", "0.00%", "7"] in rows
    assert "nan" not in (table + err).lower()


def test_tokens_verified_past_the_end_are_told_and_al_keeps_them(
    taken: Callable[..., Shown], document: Callable[..., Any]
) -> None:
    # S 4, A 12 each, 12 tokens delivered: 1 + 4 + 12 are 5 more
    lines = [line(f"e{i}", body([0, 0, 2, 0, 2], tokens=12)) for i in range(3)]
    code, out, err = taken(*lines)
    assert code == 0
    overall = document(out)["overall"]
    assert overall["acceptance_length"]["value"] == pytest.approx(4.0)
    assert overall["delivered_tokens_per_verification_step"]["value"] == pytest.approx(11 / 4)
    assert (overall["undelivered_tokens"], overall["unexplained_tokens"]) == (15, 0)
    assert "2.7500 completion tokens after the first / verification steps (not AL)" in err
    assert "15 verified tokens lay past the end" in err


BINS = ["0-8192", "8193-16384", "16385-32768", "32769-65536", "65537-131072"]


def test_lengths_are_binned_with_their_edges_and_failures_stay_in_their_bin(
    taken: Callable[..., Shown], document: Callable[..., Any], face: Callable[..., Shown]
) -> None:
    context = "maximum context length is 65536 tokens"
    lines = [
        line("m0", body([1, 1, 8], prompt=8192)),  # S 10 A 17
        line("m1", body([5, 3, 2], prompt=8193)),  # S 10 A 7
        line("m2", body([6, 3, 1], prompt=16384), prompt_tokens_local=99),  # S 10 A 5
        line("m3", body([4, 4, 2], prompt=None), prompt_tokens_local=32769),  # S 10 A 8
        line("m4", None, http_status=400, error=context, prompt_tokens_local=65537),
        line("m5", None, http_status=400, error=context, prompt_tokens_local=131072),
        line("m6", None, http_status=503, error="overloaded", prompt_tokens_local=65536),
        line("m7", None, http_status=0, error="timeout after 600 s", prompt_tokens_local=60000),
        line("m8", None, http_status=503, error="overloaded", prompt_tokens_local=131073),
        line("m9", None, http_status=503, error="overloaded"),
    ]
    code, out, err = taken(*lines)
    assert code == 5
    assert "6 of 10 requests failed, more than --max-failures 5% allows; the report is written" in err.splitlines()[-1]
    got = document(out, "--by", "bin", "--partial")
    rows = {row["category"]: row for row in got["rows"]}
    assert list(rows) == [*BINS, ">131072", "length not known"]
    counts = {
        name: tuple(row["requests"][key] for key in ("planned", "sent", "measured", "failed"))
        for name, row in rows.items()
    }
    assert counts == {
        "0-8192": (1, 1, 1, 0),
        "8193-16384": (2, 2, 2, 0),
        "16385-32768": (0, 0, 0, 0),
        "32769-65536": (3, 3, 1, 2),
        "65537-131072": (2, 2, 0, 2),
        ">131072": (1, 1, 0, 1),
        "length not known": (1, 1, 0, 1),
    }
    lengths = {name: row["acceptance_length"] and row["acceptance_length"]["value"] for name, row in rows.items()}
    assert lengths == {
        "0-8192": pytest.approx(2.7),
        "8193-16384": pytest.approx(1.6),
        "16385-32768": None,
        "32769-65536": pytest.approx(1.8),
        "65537-131072": None,
        ">131072": None,
        "length not known": None,
    }
    assert rows["32769-65536"]["requests"]["failed_by"] == {"http 503": 1, "timeout": 1}
    assert got["overall"]["requests"]["failed_by"] == {"context limit": 2, "http 503": 3, "timeout": 1}
    table = face("report", out.strip(), "--by", "bin", "--partial")[1]
    assert "| talk / 65537-131072 (imported) | — | — | — | — | 0 |" in table
    assert "| talk / 16385-32768 (imported) | — | — | — | — | 0 |" in table
    assert "1.0000" not in table


def test_nothing_measured_is_no_row_and_no_success(
    taken: Callable[..., Shown], document: Callable[..., Any], face: Callable[..., Shown]
) -> None:
    code, out, err = taken(line("a", None, http_status=503, error="busy"), line("b", body()))
    assert code == 5
    assert "1 of 2 requests failed" in err
    code, table, err = face("report", out.strip(), "--partial")
    assert code == 3
    assert "| overall, pooled (imported) | — | — | — | — | 0 |" in table
    assert "no verification step was measured" in err
    assert document(out, "--partial", code=3)["overall"]["acceptance_length"] is None


def test_answers_of_which_none_took_a_step_are_no_figure(
    taken: Callable[..., Shown], face: Callable[..., Shown]
) -> None:
    code, out, err = taken(*(line(f"z{i}", body([0, 0, 0], tokens=1)) for i in range(3)))
    assert code == 3
    assert err.splitlines()[-1] == (
        f"spec-eval: {out.strip()}: no verification step was measured, so there is no figure; "
        "the report is written; the requests table says why"
    )
    assert face("report", out.strip())[0] == 3


@pytest.mark.parametrize(("more", "expected"), [((), 5), (("--max-failures", "100%"), 3)])
def test_only_failures_are_no_success_either(
    more: tuple[str, ...], expected: int, taken: Callable[..., Shown], face: Callable[..., Shown]
) -> None:
    code, out, err = taken(*(line(f"f{i}", None, http_status=503, error="busy") for i in range(3)), more=more)
    assert (code, out.count("\n")) == (expected, 1)
    assert "—" in err
    assert "Traceback" not in err
    assert face("report", out.strip(), "--partial")[0] == 3


@pytest.mark.parametrize(("allowed", "expected"), [("25%", 0), ("24%", 5)])
def test_share_of_failures_that_is_allowed(allowed: str, expected: int, taken: Callable[..., Shown]) -> None:
    lines = [line(f"a{i}", body([1, 1])) for i in range(3)]
    code, out, _ = taken(*lines, line("f", None, http_status=503, error="busy"), more=("--max-failures", allowed))
    assert code == expected
    assert RunFolder(Path(out.strip())).plan().max_failures == float(allowed.removesuffix("%")) / 100


def test_first_success_wins_and_doubles_are_told(taken: Callable[..., Shown], document: Callable[..., Any]) -> None:
    torn = json.dumps(line("s9", body([1, 1, 1]))).encode()[:50]
    code, out, err = taken(
        line("s0", body([3, 3, 4])),  # S 10 A 11
        line("s1", None, http_status=0, error="connection reset"),
        line("s2", body([2, 2, 6])),  # S 10 A 14
        line("s1", body([1, 1, 8])),  # S 10 A 17, after its failure
        line("s2", body([9, 1, 0])),  # measured again: left out
        line("s0", None, http_status=503, error="busy"),  # fails after its success: no matter
        tail=torn,
    )
    assert code == 0
    assert err.splitlines()[0] == "spec-eval: captures.jsonl: torn last line set aside"
    got = document(out)
    assert "talk: captures.jsonl: torn last line set aside" in [
        w["message"] for w in got["warnings"] if w["code"] == "data_note"
    ]
    overall = got["overall"]
    assert (overall["steps"], overall["accepted"]) == (30, 42)
    assert overall["acceptance_length"]["value"] == pytest.approx(2.4)
    requests = overall["requests"]
    assert {name: requests[name] for name in ("planned", "sent", "ok", "failed", "measured")} == {
        "planned": 3,
        "sent": 3,
        "ok": 3,
        "failed": 0,
        "measured": 3,
    }
    (double,) = (w for w in got["warnings"] if w["code"] == "measured_twice")
    assert double["message"].startswith("1 requests were measured twice (s2)")


def test_options_reach_the_reader_and_the_plan(taken: Callable[..., Shown], document: Callable[..., Any]) -> None:
    answer = body([1, 2, 1])
    del answer["metrics"]["speculative_decoding"]["num_spec_tokens"]
    code, out, _ = taken(line("a", answer), more=("--k", "4", "--adaptive"))
    assert code == 0
    assert RunFolder(Path(out.strip())).plan().target.k == 4
    overall = document(out)["overall"]
    assert (overall["k"], overall["drafted"], overall["acceptance_rate"]) == (4, None, None)
    assert overall["positions"] == pytest.approx([0.75, 0.25, 0.0, 0.0])
    (run,) = document(out)["runs"]
    assert "adaptive" in run["labels"]
    assert [settings["adaptive"] for settings in run["settings"].values()] == [True]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("import", "captures", "nowhere.jsonl", "--engine", "vllm"), "nowhere.jsonl: no such file"),
        (("import", "captures", "nowhere.jsonl", "--engine", "vlm"), "no engine 'vlm'"),
        (("import", "captures", "nowhere.jsonl"), "--engine"),
        (("import", "captures", "nowhere.jsonl", "--engine", "vllm", "--max-failures", "many"), "--max-failures many"),
        (("import", "pictures", "nowhere.jsonl", "--engine", "vllm"), "pictures"),
    ],
)
def test_what_cannot_be_imported_is_one_line(
    argv: tuple[str, ...],
    words: str,
    face: Callable[..., Shown],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = face(*argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert list(tmp_path.iterdir()) == []
