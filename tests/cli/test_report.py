import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spec_eval import cli
from spec_eval import run as running
from spec_eval.render.progress import Progress
from spec_eval.run import RunOptions, serving
from tests.llamacpp_server import Ask, LlamaCppServer, Reply, write_suite

Shown = tuple[int, str, str]


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


def measured(tmp_path: Path, behaviour: Callable[[Ask], Reply] = lambda _: Reply(), name: str = "results") -> Path:
    suite = write_suite(tmp_path / "suite", prompts=4)
    with LlamaCppServer(behaviour) as server:
        options = RunOptions(
            suite=str(suite), engine="llamacpp", base_url=server.url, out=tmp_path / name, k=4, drafter="eagle"
        )
        return running.start(options, Progress()).folder.path


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[..., Shown]:
    def show(*argv: object) -> Shown:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main(["report", *map(str, argv)])
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return int(left.value.code), captured.out, captured.err

    return show


def test_markdown_is_what_a_file_gets(tmp_path: Path, report: Callable[..., Shown]) -> None:
    run = measured(tmp_path)
    code, out, err = report(run)
    assert (code, err) == (0, "")
    assert out == report(run, "--format", "md")[1]
    assert out.startswith("## pair: eagle\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line.startswith("|")]
    # two requests a category, S 3 D 11 A 5 each: AL 1 + 5/3, rate 5/11
    assert ["Pair / even", "2.6667", "—", "2.6667", "45.45%", "6"] in rows
    assert ["overall, pooled", "2.6667", "—", "2.6667", "45.45%", "12"] in rows
    assert ["overall, pooled", "66.67%", "66.67%", "33.33%", "0.00%"] in rows


def test_json_has_fractions_and_nulls(tmp_path: Path, report: Callable[..., Shown]) -> None:
    run = measured(tmp_path)
    code, out, _ = report(run, "--format", "json")
    document = json.loads(out)
    assert (code, document["schema_version"]) == (0, 1)
    (told,) = document["runs"]
    assert (told["run_id"], told["engine"], told["drafter"], told["k"], told["whole"]) == (
        run.name,
        "llamacpp",
        "eagle",
        4,
        True,
    )
    assert told["reconciliation"]["status"] == "exact"
    overall = document["overall"]
    assert (overall["steps"], overall["drafted"], overall["accepted"]) == (12, 44, 20)
    assert overall["acceptance_length"]["value"] == pytest.approx(1 + 20 / 12)
    assert (overall["acceptance_length"]["low"], overall["acceptance_length"]["high"]) == (None, None)
    assert overall["acceptance_rate"] == pytest.approx(20 / 44)
    assert overall["positions"] == pytest.approx([2 / 3, 2 / 3, 1 / 3, 0.0])
    requests = overall["requests"]
    assert {name: requests[name] for name in ("planned", "sent", "not_sent", "ok", "failed", "measured")} == {
        "planned": 4,
        "sent": 4,
        "not_sent": 0,
        "ok": 4,
        "failed": 0,
        "measured": 4,
    }
    assert [row["category"] for row in document["rows"]] == ["even", "odd"]


def test_csv_has_a_line_a_row_at_full_precision(tmp_path: Path, report: Callable[..., Shown]) -> None:
    code, out, _ = report(measured(tmp_path), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [(r["row"], r["dataset"], r["category"]) for r in rows] == [
        ("row", "pair", "even"),
        ("row", "pair", "odd"),
        ("overall", "", ""),
    ]
    assert float(rows[2]["acceptance_length"]) == pytest.approx(1 + 20 / 12, abs=1e-12)
    assert rows[2]["acceptance_length_low"] == ""
    assert rows[2]["steps"] == "12"


@pytest.mark.parametrize(("by", "labels"), [("category", ["even", "odd"]), ("dataset", [None]), ("turn", ["turn 1"])])
def test_rows_stand_for_what_was_asked(
    by: str, labels: list[str | None], tmp_path: Path, report: Callable[..., Shown]
) -> None:
    _, out, _ = report(measured(tmp_path), "--format", "json", "--by", by)
    assert [row["category"] for row in json.loads(out)["rows"]] == labels


def test_several_runs_stand_side_by_side(tmp_path: Path, report: Callable[..., Shown]) -> None:
    first = measured(tmp_path)
    second = measured(tmp_path, lambda _: Reply(steps=((4, 4),)), "others")
    code, out, _ = report(first, second, "--format", "json")
    document = json.loads(out)
    assert code == 0
    assert document["overall"] is None
    assert [run["overall"]["acceptance_length"]["value"] for run in document["runs"]] == pytest.approx([8 / 3, 5.0])
    assert report(first, second)[1].count("## pair: eagle") == 2


def test_a_report_goes_into_a_file_where_one_is_named(tmp_path: Path, report: Callable[..., Shown]) -> None:
    run = measured(tmp_path)
    target = tmp_path / "report.csv"
    assert report(run, "--format", "csv", "-o", target) == (0, "", "")
    assert target.read_text(encoding="utf-8").startswith("run_id,")


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, report: Callable[..., Shown]) -> None:
    run = measured(tmp_path)
    code, out, err = report(run, "-o", tmp_path / "nowhere" / "report.md")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cannot be written" in err


def test_an_unfinished_run_is_shown_and_ends_in_5_unless_that_is_accepted(
    tmp_path: Path, report: Callable[..., Shown]
) -> None:
    run = measured(tmp_path)
    (run / "manifest.json").unlink()
    log = run / "requests.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]) + b'{"schema_version":1,"cel')
    code, out, err = report(run)
    assert code == 5
    assert "(incomplete)" in out.splitlines()[0]
    assert "3 of 4 requests" in out
    assert "torn last line" in out
    assert err == (
        f"spec-eval: {run}: not whole: 3 of 4 requests so far; "
        f"go on with `spec-eval run --resume {run}`, or accept it with --partial\n"
    )
    code, out, err = report(run, "--partial", "--format", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["runs"][0]["whole"] is False
    assert document["overall"]["requests"]["not_sent_by"] == {"stopped": 1}
    assert {"incomplete", "lines_set_aside"} <= {warning["code"] for warning in document["warnings"]}
    assert log.read_bytes().endswith(b'"cel')


def test_a_run_without_a_step_has_no_figure_and_ends_in_3(tmp_path: Path, report: Callable[..., Shown]) -> None:
    run = measured(tmp_path, lambda ask: Reply() if ask.number == 0 else Reply(steps=((0, 0),) * 4))
    code, out, err = report(run, "--format", "json")
    assert code == 3
    assert err.count("\n") == 1
    overall = json.loads(out)["overall"]
    assert (overall["acceptance_length"], overall["acceptance_rate"], overall["positions"]) == (None, None, None)
    assert (overall["requests"]["measured"], overall["requests"]["zero_steps"]) == (4, 4)
    assert "1.0000" not in report(run)[1]


def test_a_figure_is_missed_only_where_no_run_has_one(tmp_path: Path, report: Callable[..., Shown]) -> None:
    idle = measured(tmp_path, lambda ask: Reply() if ask.number == 0 else Reply(steps=((0, 0),) * 4), name="idle")
    busy = measured(tmp_path, name="busy")
    assert (report(idle, busy)[0], report(busy, idle)[0]) == (0, 0)
    code, _, err = report(idle)
    told = "no verification step was measured, so there is no figure; the requests table says why"
    assert (code, err) == (3, f"spec-eval: {idle}: {told}\n")


def test_records_that_are_gone_since_are_a_run_that_is_not_whole(tmp_path: Path, report: Callable[..., Shown]) -> None:
    run = measured(tmp_path)
    log = run / "requests.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))
    code, out, err = report(run)
    assert (code, err) == (
        5,
        f"spec-eval: {run}: not whole: 1 records are missing from requests.jsonl; "
        f"go on with `spec-eval run --resume {run}`, or accept it with --partial\n",
    )
    assert "1 records are missing from requests.jsonl" in out
    assert report(run, "--partial")[0] == 0


def test_streams_that_end_badly_give_no_row_and_no_made_up_figure(tmp_path: Path, report: Callable[..., Shown]) -> None:
    head = b'data: {"choices":[{"index":0,"delta":{"content":"partial"}}]}\n\n'
    bad = {
        "0": Reply(stream=head + b'data: {"choices":[{"ind'),
        "1": Reply(stream=head + b"data: [DONE]\n\n"),
        "2": Reply(stream=head + b'data: {"error":{"message":"engine process died"}}\n\ndata: [DONE]\n\n'),
        "3": Reply(stream=b""),
    }
    run = measured(tmp_path, lambda ask: bad.get(ask.prompt.removesuffix("?")[-1], Reply()))
    assert report(run)[0] == 5
    code, out, _ = report(run, "--format", "json", "--partial")
    overall = json.loads(out)["overall"]
    assert code == 3
    assert overall["acceptance_length"] is None
    assert overall["requests"]["failed_by"] == {
        "empty body": 1,
        "server error": 1,
        "stream ended before [DONE]": 1,
    }
    assert overall["requests"]["no_counters_by"] == {"no timings in the answer": 1}
    assert (overall["requests"]["sent"], overall["requests"]["measured"], overall["coverage"]) == (4, 0, 0.0)


def test_answers_without_counters_below_the_floor_end_in_5_and_name_the_reason(
    tmp_path: Path, report: Callable[..., Shown]
) -> None:
    run = measured(tmp_path, lambda ask: Reply(timings=ask.number in (0, 2)))
    code, out, err = report(run, "--format", "json")
    overall = json.loads(out)["overall"]
    assert (code, err.count("\n")) == (5, 1)
    assert "coverage 25.0% is below 95%" in err
    assert (overall["coverage"], overall["requests"]["no_counters_by"]) == (0.25, {"no timings in the answer": 3})
    # the one that has counters: S 3 A 5
    assert overall["acceptance_length"]["value"] == pytest.approx(1 + 5 / 3)
    assert report(run, "--partial")[0] == 0


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_what_is_no_run_folder_is_one_line(name: str, tmp_path: Path, report: Callable[..., Shown]) -> None:
    code, out, err = report(tmp_path / name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no run folder" in err


def test_a_terminal_gets_a_table(tmp_path: Path, report: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch) -> None:
    run = measured(tmp_path)
    monkeypatch.setattr("spec_eval.cli.report.on_terminal", lambda: True)
    code, out, _ = report(run)
    assert code == 0
    assert "| --:" not in out
    assert "2.6667" in out


@pytest.mark.parametrize("style", ["full", "dflash2", "speculators"])
@pytest.mark.parametrize("form", ["json", "csv"])
def test_style_of_what_is_no_markdown_is_one_line(
    style: str, form: str, tmp_path: Path, report: Callable[..., Shown]
) -> None:
    code, out, err = report(measured(tmp_path), "--style", style, "--format", form)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"--style {style}" in err


def test_styles_are_markdown_on_a_terminal_too(
    tmp_path: Path, report: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = measured(tmp_path)
    monkeypatch.setattr("spec_eval.cli.report.on_terminal", lambda: True)
    # S 3, A 5 an answer, all alike: both estimators give 1 + 5/3
    for style, row in (
        ("full", "| Pair / even | 2.6667 |"),
        ("dflash2", "| even | 2.67 | 66.67 |"),
        ("speculators", "| even | 2.6667 | 45.45% |"),
    ):
        assert row in report(run, "--style", style)[1]


def test_card_styles_lay_rows_out_themselves_and_know_lengths(tmp_path: Path, report: Callable[..., Shown]) -> None:
    run = measured(tmp_path)
    code, out, err = report(run, "--style", "dflash2", "--by", "turn")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--by bin" in err
    for style in ("dflash2", "speculators"):
        code, out, _ = report(run, "--style", style, "--by", "bin")
        assert code == 0
        assert out.index("| even |") < out.index("| 0-8192 |") < out.index("| all lengths, pooled |")


def test_same_run_twice_in_a_card_is_one_line(tmp_path: Path, report: Callable[..., Shown]) -> None:
    run = measured(tmp_path)
    code, out, err = report(run, run, "--style", "speculators")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.count(run.name) == 2


def test_hardware_is_the_users_word(tmp_path: Path, report: Callable[..., Shown]) -> None:
    run = measured(tmp_path)
    assert "| Hardware | four of them |" in report(run, "--style", "speculators", "--hardware", "four of them")[1]
    assert "**hardware**: four of them" in report(run, "--hardware", "four of them")[1]
    code, out, err = report(run, "--hardware", "four of them", "--format", "json")
    assert (code, out, err.count("\n")) == (2, "", 1)
