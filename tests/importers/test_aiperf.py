"""Folders as AIPerf 0.13.0 wrote them, and the same with something amiss; numbers stand in the recorded files."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spec_eval.engines import ENGINES
from spec_eval.errors import UsageError
from spec_eval.importers.aiperf import read
from spec_eval.importers.aiperf_records import RAW, RECORDS
from spec_eval.importers.answers import Imported
from tests.factories import DATA

VLLM, SGLANG = ENGINES["vllm"], ENGINES["sglang"]
RECORDED = DATA / "aiperf"
Row = dict[str, Any]


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def put(path: Path, lines: list[Row], tail: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail, encoding="utf-8")


def profiling(line: Row) -> Row:
    """As if it had not been sent to warm up."""
    return line | {"metadata": line["metadata"] | {"benchmark_phase": "profiling"}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The recorded vLLM run, to be changed."""
    shutil.copytree(RECORDED / "vllm", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def answered(run: Path) -> Path:
    """Its three requests that have raw records too, as if they were of the profiling phase."""
    raw = [profiling(line) for line in rows(run / RAW)]
    ids = {line["metadata"]["x_request_id"] for line in raw}
    put(run / RECORDS, [profiling(line) for line in rows(run / RECORDS) if line["metadata"]["x_request_id"] in ids])
    put(run / RAW, raw)
    return run


def edited(path: Path, change: Callable[[Row], object]) -> None:
    """`change` every line of `path`."""
    lines = rows(path)
    for line in lines:
        change(line)
    put(path, lines)


def test_warm_up_is_left_out() -> None:
    got = read(RECORDED / "vllm", VLLM)
    assert [record.prompt_id for record in got.records] == [f"session_{n:06}" for n in (10, 11, 12, 13)]
    assert len(rows(RECORDED / "vllm" / RECORDS)) == 7


def test_settings_are_those_that_aiperf_was_told(run: Path) -> None:
    (run / RAW).unlink()
    got = read(run, VLLM)
    (cell,) = got.cells
    assert (cell.cell_id, cell.dataset, cell.title, cell.rows) == ("single", "single", "single", "cell")
    assert cell.sampling.model_dump(exclude_none=True) == {"temperature": 1.0, "max_tokens": 32768, "thinking": True}
    assert (cell.concurrency, cell.repeats, cell.repeats_of) == (4, 1, {})
    assert (got.model, got.tool) == ("mock-model", "aiperf 0.13.0")
    assert cell.prompts.notes == ("AIPerf drops what its window cuts off (grace period 0): long answers are missing",)
    digest = hashlib.sha256((run / RECORDS).read_bytes()).hexdigest()
    assert cell.prompts.files[RECORDS] == digest


def test_without_a_summary_nothing_is_known_of_the_settings(run: Path) -> None:
    (run / "profile_export_aiperf.json").unlink()
    (run / RAW).unlink()
    got = read(run, VLLM)
    (cell,) = got.cells
    assert (cell.dataset, cell.concurrency, cell.sampling.model_dump(exclude_none=True)) == ("run", None, {})
    assert (got.model, got.tool, len(got.records)) == (None, "aiperf ?", 4)


def test_settings_of_the_requests_come_before_those_of_the_command(answered: Path) -> None:
    edited(answered / RAW, lambda line: line["payload"].update(temperature=0.0, max_completion_tokens=64, top_p="odd"))
    (cell,) = read(answered, VLLM).cells
    assert cell.sampling.model_dump(exclude_none=True) == {"temperature": 0.0, "max_tokens": 64, "thinking": True}


def test_settings_in_which_requests_differ_are_none(answered: Path) -> None:
    lines = rows(answered / RAW)
    lines[0]["payload"]["max_completion_tokens"] = 7
    put(answered / RAW, lines)
    (cell,) = read(answered, VLLM).cells
    assert (cell.sampling.temperature, cell.sampling.max_tokens) == (1.0, None)


def test_raw_answers_that_disagree_with_the_records_are_told(answered: Path) -> None:
    assert not any("other counters" in note for note in read(answered, VLLM).cells[0].prompts.notes)
    lines = rows(answered / RECORDS)
    lines[1]["spec_decode_acceptance"]["num_draft_tokens"] += 1
    put(answered / RECORDS, lines)
    notes = read(answered, VLLM).cells[0].prompts.notes
    assert "1 records of AIPerf have other counters than their raw answers, which count here" in notes


def test_another_version_is_told(run: Path) -> None:
    summary = run / "profile_export_aiperf.json"
    for version, told in (("0.13.2", False), ("0.14.0", True), ("0.130.0", True)):
        table = json.loads(summary.read_text(encoding="utf-8")) | {"aiperf_version": version}
        summary.write_text(json.dumps(table), encoding="utf-8")
        notes = read(run, VLLM).cells[0].prompts.notes
        assert (f"written by AIPerf {version}, read as 0.13 writes" in notes) is told


def test_conversation_that_comes_again_is_a_repeat(run: Path) -> None:
    (run / RAW).unlink()
    lines = [line for line in rows(run / RECORDS) if line["metadata"]["benchmark_phase"] == "profiling"]
    for line, conversation in zip(lines, ("a", "b", "a", "a"), strict=True):
        line["metadata"]["conversation_id"] = conversation
    put(run / RECORDS, lines)
    got = read(run, VLLM)
    assert sorted((r.prompt_id, r.repeat) for r in got.records) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    (cell,) = got.cells
    assert (cell.repeats, cell.repeats_of, cell.planned()) == (1, {"a": 3}, 4)
    assert sorted(cell.units()) == sorted(record.unit for record in got.records)


def test_equal_numbers_of_repeats_are_the_cells(run: Path) -> None:
    (run / RAW).unlink()
    lines = [line for line in rows(run / RECORDS) if line["metadata"]["benchmark_phase"] == "profiling"]
    for line, conversation in zip(lines, ("a", "b", "a", "b"), strict=True):
        line["metadata"]["conversation_id"] = conversation
    put(run / RECORDS, lines)
    (cell,) = read(run, VLLM).cells
    assert (cell.repeats, cell.repeats_of, cell.planned()) == (2, {}, 4)


def test_turns_of_one_session_are_one_conversation(run: Path) -> None:
    (run / RAW).unlink()
    lines = [line for line in rows(run / RECORDS) if line["metadata"]["benchmark_phase"] == "profiling"]
    for turn, line in enumerate(lines):
        line["metadata"] |= {"conversation_id": "talk", "x_correlation_id": "one", "turn_index": turn}
    put(run / RECORDS, lines)
    got = read(run, VLLM)
    assert sorted((r.prompt_id, r.turn, r.repeat) for r in got.records) == [("talk", turn, 0) for turn in range(4)]
    assert got.cells[0].prompts.units == (("talk", "(none)", 4),)


def test_every_run_of_a_sweep_is_a_cell(run: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    for trial in (1, 2):
        shutil.copytree(run, sweep / "profile_runs" / f"trial_000{trial}" / "concurrency_4")
    (sweep / "aggregate").mkdir()
    got = read(sweep, VLLM)
    assert [(cell.cell_id, cell.title) for cell in got.cells] == [
        (f"profile_runs/trial_000{n}/concurrency_4", f"single, trial_000{n}/concurrency_4") for n in (1, 2)
    ]
    assert {cell.dataset for cell in got.cells} == {"single"}
    assert [sum(r.cell_id == cell.cell_id for r in got.records) for cell in got.cells] == [4, 4]
    assert f"profile_runs/trial_0002/concurrency_4/{RECORDS}" in got.cells[0].prompts.files


def test_torn_last_line_is_set_aside_and_a_broken_one_refused(run: Path) -> None:
    lines = rows(run / RECORDS)
    put(run / RECORDS, lines, tail='{"metadata": {')
    got = read(run, VLLM)
    assert (len(got.records), got.set_aside) == (4, (f"{RECORDS}: torn last line set aside",))
    lines[3] = {"metrics": {}}
    lines[4]["metadata"]["request_start_ns"] = None
    lines[5]["metadata"]["turn_index"] = -1
    put(run / RECORDS, lines)
    with pytest.raises(UsageError) as caught:
        read(run, VLLM)
    for problem in ("line 4: no metadata", "line 5: no request_start_ns", "line 6: no turn_index"):
        assert problem in str(caught.value)


def test_summary_that_is_no_json_is_refused(run: Path) -> None:
    (run / "profile_export_aiperf.json").write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match="remove it to import the records without settings"):
        read(run, VLLM)


def test_folders_without_a_run_say_what_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        read(tmp_path / "none", VLLM)
    with pytest.raises(UsageError, match="no AIPerf run in it"):
        read(tmp_path, VLLM)
    (tmp_path / "profile_export_aiperf.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="run aiperf with --export-level records or raw"):
        read(tmp_path, VLLM)
    with pytest.raises(UsageError, match="not a folder"):
        read(tmp_path / "profile_export_aiperf.json", VLLM)


def test_run_that_only_warmed_up_measured_nothing(run: Path) -> None:
    (run / RECORDS).unlink()
    with pytest.raises(UsageError, match="no request of the profiling phase"):
        read(run, VLLM)


def counters(got: Imported) -> list[tuple[int, int, int | None, tuple[int, ...] | None]]:
    return [(c.steps, c.accepted, c.drafted, c.histogram) for r in got.records if (c := r.counters) is not None]


def test_raw_answers_and_records_give_the_same_counters(answered: Path) -> None:
    expected = [(19, 28, 57, (4, 6, 5, 4)), (30, 37, 90, (7, 11, 10, 2)), (22, 32, 66, (5, 8, 3, 6))]
    assert counters(read(answered, VLLM)) == expected
    (answered / RAW).unlink()
    assert counters(read(answered, VLLM)) == expected


def test_sglang_is_read_out_of_raw_answers() -> None:
    got = read(RECORDED / "sglang", SGLANG)
    assert counters(got) == [(19, 28, 57, (4, 6, 5, 4)), (30, 37, 90, (7, 11, 10, 2))]
    assert [record.completion_tokens for record in got.records] == [46, 65]


def test_emulated_answers_are_known_by_their_raw_records(answered: Path) -> None:
    assert read(answered, VLLM).synthetic is None
    first, *others = rows(answered / RAW)
    value = first["responses"][0]["packets"][0]["value"]
    identity = json.loads(value)["id"]
    first["responses"][0]["packets"][0]["value"] = value.replace(identity, "chatcmpl-emulated00000001")
    put(answered / RAW, [first, *others])
    assert read(answered, VLLM).synthetic == "run: 1 of 3 answers bear an emulator's mark"
    (answered / RAW).unlink()
    assert read(answered, VLLM).synthetic is None
