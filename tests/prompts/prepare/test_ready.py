import os
from pathlib import Path

import pytest

from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import load, prepare
from spec_eval.prompts import rows as reading
from tests.prompts.prepare.made_up import HLE, MMLU, OURS, PLAIN, fault, lines, made, publish, relaxed, sidecar


def test_prepared_file_is_only_replaced_when_told(tmp_path: Path, made_up: Path) -> None:
    path = made([HLE], tmp_path, sources_dir=made_up)
    with pytest.raises(UsageError, match="prepared already; give --force"):
        prepare.check_target(path.parent, "qualitative", force=False)
    prepare.check_target(path.parent, "qualitative", force=True)
    prepare.check_target(path.parent, "throughput_1k", force=False)
    prepare.prepare(prepare.read("qualitative", str(publish(tmp_path / "new", [PLAIN]))), path.parent)
    assert [r["question_id"] for r in lines(path)] == [PLAIN["question_id"]]
    assert sidecar(path)["sha256"] == reading.sha256(path)


def test_folder_with_other_rows_of_the_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a run would read it before"):
        prepare.check_target(publish(tmp_path, OURS), "qualitative", force=False)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        prepare.check_target(tmp_path, "qualitative", force=False)


def test_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(EnvironmentFault, match="out: cannot be written"):
        prepare.check_target(tmp_path / "out", "qualitative", force=False)


def test_disk_that_fills_up_leaves_nothing_that_looks_ready(
    tmp_path: Path, made_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spec_eval.prompts.prepare.ready.os.fsync", full)
    assert "No space left" in fault([HLE], tmp_path, EnvironmentFault, sources_dir=made_up)


def test_stand_in_keeps_its_name(tmp_path: Path) -> None:
    folder = publish(tmp_path / "published", [PLAIN])
    (folder / "README.md").write_text("A stand-in, never the real set.")
    published = prepare.read("qualitative", str(folder))
    with pytest.raises(UsageError, match="are a stand-in; give an -o whose name says standin"):
        prepare.prepare(published, tmp_path)
    out = tmp_path / "out-standin"
    prepare.check_target(out, "qualitative", force=False)
    prepare.prepare(published, out)
    assert load(relaxed(), data_dir=out).standin


def test_another_number_of_rows_than_the_suite_pins_is_noted(tmp_path: Path) -> None:
    published = prepare.read("qualitative", str(publish(tmp_path, [PLAIN])))
    (note,) = prepare.prepare(published, tmp_path).notes
    assert "1 rows, the suite pins 880" in note


def test_outlook_counts_by_source_and_fetches_nothing(tmp_path: Path) -> None:
    twin = {**HLE, "question_id": "e" * 32}
    published = prepare.read("qualitative", str(publish(tmp_path, [*OURS, twin, MMLU])))
    assert [(left.name, left.rows, left.why) for left in prepare.outlook(published)][:2] == [
        ("cais/hle", 2, "ours"),
        ("abisee/cnn_dailymail", 1, "ours"),
    ]
    assert {left.name for left in prepare.outlook(published) if left.why == "tool"} == {"TIGER-Lab/MMLU-Pro"}


# The other way: NVIDIA's preparer, here a script of the same face.
