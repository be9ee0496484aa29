import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.store import RunFolder, new_run_folder
from spec_eval.store.folder import write_text
from tests.factories import answered, cell, failed, from_histogram, manifest, plan, run_folder, session_end

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
PLAN = plan(cell([("a", "qa", 1), ("b", "qa", 1)]))
RECORDS = (answered(from_histogram((1, 1)), prompt_id="a"), failed(prompt_id="b"))


def planned(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.write_plan(PLAN)
    return folder


def test_new_folder_is_named_by_time_and_label(tmp_path: Path) -> None:
    folder = new_run_folder(tmp_path / "deep" / "results", "smoke", NOW)
    assert folder.path == tmp_path / "deep" / "results" / "20300102-030405-smoke"
    assert folder.path.is_dir()


def test_label_cannot_leave_the_folder(tmp_path: Path) -> None:
    folder = new_run_folder(tmp_path, "../org/model name:é", NOW)
    assert folder.path.parent == tmp_path
    assert folder.path.name.startswith("20300102-030405-")
    assert "/" not in folder.path.name


def test_a_long_label_is_cut(tmp_path: Path) -> None:
    names = [new_run_folder(tmp_path, f"smoke-{'x' * 93}-{'y' * 500}{end}", NOW).path.name for end in ("1", "2")]
    assert names == [f"20300102-030405-smoke-{'x' * 93}", f"20300102-030405-smoke-{'x' * 93}.2"]


def test_runs_of_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    names = [new_run_folder(tmp_path, "smoke", NOW).path.name for _ in range(3)]
    assert names == ["20300102-030405-smoke", "20300102-030405-smoke.2", "20300102-030405-smoke.3"]


# Tests may run as root, to whom no folder is read-only: a file in place of a folder stands for one.
@pytest.mark.parametrize("below", [".", "results"])
def test_results_that_cannot_be_written_are_an_environment_fault(tmp_path: Path, below: str) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    with pytest.raises(EnvironmentFault, match=r"cannot be written.*--out"):
        new_run_folder(tmp_path / "taken" / below, "smoke", NOW)


def test_run_comes_back_as_written(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, PLAN, RECORDS)
    opened = RunFolder.open(folder.path)
    assert opened.plan() == PLAN
    assert opened.records().records == RECORDS
    assert opened.manifest() == manifest(PLAN)
    assert opened.is_whole
    assert {p.name for p in folder.path.iterdir()} == {
        "plan.json",
        "requests.jsonl",
        "requests.parquet",
        "manifest.json",
    }


def test_run_without_a_manifest_is_not_whole(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, PLAN, RECORDS, whole=False)
    assert not folder.is_whole
    assert folder.manifest() is None
    assert folder.records().lines == 2


def test_run_that_wrote_its_plan_only_has_no_records(tmp_path: Path) -> None:
    folder = planned(tmp_path)
    assert folder.records().records == ()


@pytest.mark.parametrize("name", ["nowhere", "empty", "file"])
def test_what_is_no_run_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match=r"no plan\.json in it"):
        RunFolder.open(tmp_path / name)


@pytest.mark.parametrize("content", ["", "{", '{"schema_version": 1,', "\udcff"])
def test_damaged_plan_says_so(tmp_path: Path, content: str) -> None:
    folder = run_folder(tmp_path, PLAN, RECORDS)
    (folder.path / "plan.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=r"plan\.json: .*damaged"):
        folder.plan()


@pytest.mark.parametrize("name", ["plan.json", "manifest.json"])
@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True, None])
def test_unknown_schema_version_is_refused_with_its_number(tmp_path: Path, name: str, version: object) -> None:
    folder = run_folder(tmp_path, PLAN, RECORDS)
    path = folder.path / name
    path.write_text(
        json.dumps({**json.loads(path.read_text(encoding="utf-8")), "schema_version": version}), encoding="utf-8"
    )
    read = folder.plan if name == "plan.json" else folder.manifest
    with pytest.raises(UsageError, match=f"{name}: schema version {version!r}, this spec-eval reads 1"):
        read()


@pytest.mark.parametrize("content", ["[]", "7", "null"])
def test_plan_that_is_no_object_has_no_known_version(tmp_path: Path, content: str) -> None:
    folder = run_folder(tmp_path, PLAN, RECORDS)
    (folder.path / "plan.json").write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match="schema version None"):
        folder.plan()


def test_plan_with_a_missing_or_wrong_field_names_its_place(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, PLAN, RECORDS)
    path = folder.path / "plan.json"
    good = json.loads(path.read_text(encoding="utf-8"))
    for broken, place in (
        ({key: value for key, value in good.items() if key != "cells"}, "cells"),
        ({**good, "target": {**good["target"], "k": "three"}}, "target.k"),
    ):
        path.write_text(json.dumps(broken), encoding="utf-8")
        with pytest.raises(UsageError, match=rf"plan\.json: {place}: .*damaged"):
            folder.plan()


def test_plan_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = planned(tmp_path)
    before = (tmp_path / "plan.json").read_bytes()

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        folder.write_plan(plan(cell([("a", "qa", 1)])))
    assert (tmp_path / "plan.json").read_bytes() == before


def test_folder_of_a_run_that_sent_nothing_is_removed(tmp_path: Path) -> None:
    folder = new_run_folder(tmp_path, "smoke", NOW)
    folder.write_plan(PLAN)
    folder.discard_unused()
    assert not folder.path.exists()


@pytest.mark.parametrize("begun", ["log", "session"])
def test_folder_of_a_run_that_began_stays(tmp_path: Path, begun: str) -> None:
    folder = new_run_folder(tmp_path, "smoke", NOW)
    folder.write_plan(PLAN)
    if begun == "log":
        with folder.log() as log:
            log.append(RECORDS[0])
    else:
        folder.start_session("2030-01-02T03:04:05+00:00")
    folder.discard_unused()
    assert (folder.path / "plan.json").is_file()


def test_sessions_are_numbered_and_a_killed_one_leaves_its_start(tmp_path: Path) -> None:
    folder = planned(tmp_path)
    assert (folder.sessions_started(), folder.session_ends()) == (0, ())
    assert folder.start_session("first") == 1
    assert folder.start_session("second") == 2
    end = session_end(session=2, started="second")
    folder.end_session(end)
    assert folder.sessions_started() == 2
    assert folder.session_ends() == (end,)
    assert folder.start_session("third") == 3


def test_session_line_torn_by_a_kill_is_read_over(tmp_path: Path) -> None:
    folder = planned(tmp_path)
    folder.start_session("first")
    with (tmp_path / "sessions.jsonl").open("ab") as stream:
        stream.write(b'{"event": "end", "sess')
    assert folder.sessions_started() == 1
    assert folder.session_ends() == ()
    assert folder.start_session("second") == 2
    assert folder.sessions_started() == 2


def test_scrapes_of_later_sessions_carry_their_number(tmp_path: Path) -> None:
    folder = planned(tmp_path)
    for session, moment in ((1, "before"), (1, "after"), (2, "before")):
        folder.write_scrape(session, moment, f"{session} {moment}")
    assert (tmp_path / "metrics-before.prom").read_text(encoding="utf-8") == "1 before"
    assert (tmp_path / "metrics-after.prom").read_text(encoding="utf-8") == "1 after"
    assert (tmp_path / "metrics-before.2.prom").read_text(encoding="utf-8") == "2 before"


def test_report_with_half_a_surrogate_pair_is_still_written(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_report("half \ud83d")
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == "half ?"


def test_text_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_text(tmp_path, "text")
    with pytest.raises(UsageError, match="cannot be written"):
        write_text(tmp_path / "nowhere" / "report.md", "text")


def test_a_file_nested_too_deeply_is_damaged(tmp_path: Path) -> None:
    folder = planned(tmp_path)
    for name, read in (("plan.json", folder.plan), ("manifest.json", folder.manifest)):
        (tmp_path / name).write_text(
            '{"schema_version": 1, "x": ' + "[" * 100_000 + "]" * 100_000 + "}", encoding="utf-8"
        )
        with pytest.raises(UsageError, match=f"{name}: nested too deeply.*; the file is damaged"):
            read()


@pytest.mark.parametrize("text", ["{", "[1]", '{"cell_id": "c"}', "[" * 5000])
def test_broken_grades_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "grades.jsonl").write_text(text + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"grades\.jsonl: .*the file is damaged"):
        RunFolder(tmp_path).grades()


def damaged(folder: RunFolder, name: str, **changes: object) -> RunFolder:
    path = folder.path / name
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"settings": {"qa": 1}}, "settings.qa"),
        ({"server": {"model": ["m"]}}, "server: .*model and k_flag are texts"),
        ({"reconciliation": {"status": "exact", "reason": None, "server": {"steps": "x"}}}, "no totals"),
        ({"outcome": {"sent": "x"}}, "outcome: .*sent is a count"),
    ],
)
def test_a_manifest_of_another_shape_is_damaged(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    folder = damaged(run_folder(tmp_path, PLAN, RECORDS), "manifest.json", **changes)
    with pytest.raises(UsageError, match=rf"manifest\.json: .*{says}.*; the file is damaged"):
        folder.manifest()


def test_a_plan_without_cells_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"plan\.json: cells: .*; the file is damaged"):
        damaged(planned(tmp_path), "plan.json", cells=[]).plan()


def test_a_session_end_of_another_shape_is_damage(tmp_path: Path) -> None:
    (tmp_path / "sessions.jsonl").write_text('{"event": "end", "session": "x"}\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"sessions\.jsonl: session: .*; the file is damaged"):
        RunFolder(tmp_path).session_ends()


def test_a_path_that_no_file_can_have_is_no_run_folder() -> None:
    with pytest.raises(UsageError, match="no run folder"):
        RunFolder.open(Path("x" * 5000))
