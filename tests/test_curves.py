import hashlib
import shutil
from pathlib import Path

import pytest

from spec_eval import curves
from spec_eval.arms import Arm
from spec_eval.curves import Comparison
from spec_eval.errors import UsageError
from spec_eval.store import PromptRef
from spec_eval.store.windows import WindowFolder, WindowSession
from spec_eval.suite import Window
from tests.windows import cell, folder

UNSORTED = {16: [(40.0, 600.0)], 1: [(100.0, 90.0)], 4: [(80.0, 300.0)]}


def arm(found: Comparison, label: str) -> Arm:
    [one] = [arm for arm in found.arms if arm.label == label]
    return one


def test_speed_up_at_equal_concurrency_and_where_it_ends(tmp_path: Path) -> None:
    drafted = folder(tmp_path, "r1", "d", {1: [(200.0, 180.0)], 4: [(100.0, 330.0)], 16: [(30.0, 540.0)]})
    bare = folder(tmp_path, "r2", "none", {16: [(40.0, 600.0)], 1: [(100.0, 90.0)], 8: [(70.0, 500.0)]})
    [found] = curves.read([drafted, bare])
    assert found.baseline is arm(found, "none")
    assert [(g.concurrency, g.y_ratio, g.x_ratio) for g in found.gains] == [(1, 2.0, 2.0), (16, 0.9, 0.75)]
    assert found.stops == {"d": 16}


def test_a_hole_has_no_ratio_and_none_measured_is_none(tmp_path: Path) -> None:
    drafted = folder(tmp_path, "r1", "d", {1: [(200.0, 180.0)], 4: ["zero completions"]})
    bare = folder(tmp_path, "r2", "none", {1: [(100.0, 90.0)], 4: [(70.0, 280.0)]})
    [found] = curves.read([drafted, bare])
    assert [(g.concurrency, g.y_ratio) for g in found.gains] == [(1, 2.0), (4, None)]
    assert found.stops == {"d": None}


def test_baselines_are_known_by_recipe_or_named(tmp_path: Path) -> None:
    one, two = folder(tmp_path, "r1", "d", UNSORTED), folder(tmp_path, "r2", "e", UNSORTED)
    [found] = curves.read([one, two])
    assert (found.baseline, found.gains) == (None, ())
    [found] = curves.read([one, two], two)
    assert found.baseline is arm(found, "e")
    bare = folder(tmp_path, "r3", None, UNSORTED)
    plan = bare.plan()
    target = plan.target.model_copy(update={"recipe": {"drafter": {"algorithm": "none"}}})
    bare.write_plan(plan.model_copy(update={"target": target}))
    [found] = curves.read([one, bare])
    assert found.baseline is arm(found, "no drafter")


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one, bare = folder(tmp_path, "r0", "d", UNSORTED), folder(tmp_path, "r1", "none", UNSORTED)
    with pytest.raises(UsageError, match="given twice"):
        curves.read([one, WindowFolder(one.path)])
    with pytest.raises(UsageError, match="is none of the runs"):
        curves.read([one], bare)
    copy = shutil.copytree(one.path, tmp_path / "copy")
    with pytest.raises(UsageError, match=r"copy: a copy of run r0, which is given too; give each run once"):
        curves.read([one, WindowFolder(copy)])


def test_of_several_runs_without_a_drafter_none_is_the_baseline_until_named(tmp_path: Path) -> None:
    one, bare, other = (folder(tmp_path, f"r{i}", name, UNSORTED) for i, name in enumerate(("d", "none", "none")))
    [found] = curves.read([one, bare, other])
    assert (found.baseline, found.bare, found.gains, found.stops) == (None, ("r1", "r2"), (), {})
    [found] = curves.read([one, bare, other], other)
    assert found.baseline is not None
    assert found.baseline.plan.run_id == "r2"
    assert {gain.arm.plan.run_id for gain in found.gains} == {"r0", "r1"}


def test_each_data_set_is_compared_by_itself(tmp_path: Path) -> None:
    one = folder(tmp_path, "r1", "d", UNSORTED)
    two = folder(tmp_path, "r2", "none", UNSORTED, dataset="gsm8k", title="GSM8K")
    found = curves.read([one, two])
    assert [(c.dataset, [a.label for a in c.arms], c.baseline is None) for c in found] == [
        ("humaneval", ["d"], True),
        ("gsm8k", ["none"], False),
    ]


def test_differences_beside_the_drafter_are_told(tmp_path: Path) -> None:
    one = folder(tmp_path, "r1", "d", UNSORTED)
    window = Window(concurrency=(1, 4, 16), warmup_s=30, duration_s=600, repeats=1)
    two = folder(tmp_path, "r2", "e", UNSORTED, version="0.31.0", window=window, spec_eval_commit="f" * 40)
    [found] = curves.read([one, two])
    assert found.differences == (
        "Arms differ in server version (d: 0.32.0; e: 0.31.0).",
        "Arms differ in window (d: 180 s; e: 600 s).",
        "Arms differ in spec-eval (d: 0.1.0; e: 0.1.0 ffffffffffff).",
    )
    [alike] = curves.read([one, folder(tmp_path, "r3", "f", UNSORTED)])
    assert alike.differences == ()


def refs(*names: str) -> PromptRef:
    return PromptRef(
        source="rows.jsonl", revision=None, files={}, sha256="ab" * 32, rows=9,
        units=tuple((name, "coding", 1) for name in names),
    )  # fmt: skip


def test_other_prompts_of_the_same_file_and_number_are_a_difference(tmp_path: Path) -> None:
    one = folder(tmp_path, "r1", "d", UNSORTED, prompts=refs("a", "b"))
    two = folder(tmp_path, "r2", "e", UNSORTED, prompts=refs("a", "c"))
    [found] = curves.read([one, two])
    digests = [hashlib.sha256(names).hexdigest()[:8] for names in (b"a\nb", b"a\nc")]
    assert found.differences == (
        f"Arms differ in chosen prompts (d: 2 of them, {digests[0]}; e: 2 of them, {digests[1]}).",
    )


def test_windows_that_differ_in_a_millisecond_differ(tmp_path: Path) -> None:
    windows = [
        Window(concurrency=(1, 4, 16), warmup_s=30, duration_s=seconds, repeats=1) for seconds in (180.0, 180.0001)
    ]
    runs = [folder(tmp_path, f"r{i}", f"d{i}", UNSORTED, window=window) for i, window in enumerate(windows)]
    [found] = curves.read(runs)
    assert found.differences == ("Arms differ in window (d0: 180 s; d1: 180.0001 s).",)


def test_repeats_synthetic_figures_and_aiperf_are_differences(tmp_path: Path) -> None:
    one = folder(tmp_path, "r1", "d", {1: [(100.0, 90.0)] * 2})
    two = folder(tmp_path, "r2", "e", {1: ["timed out"]}, synthetic="played")
    two.append(cell(1, 1, (100.0, 90.0), aiperf_version="0.13.1"))
    [found] = curves.read([one, two])
    assert found.differences == (
        "Arms differ in what makes them synthetic (d: nothing; e: played).",
        "Arms differ in repeats (d: 2; e: 1).",
        "Arms differ in AIPerf (d: 0.13.0; e: 0.13.0, then 0.13.1).",
    )


def test_a_server_that_changed_between_sessions_is_told_of_a_single_arm(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", UNSORTED, whole=False)
    made.start_session(WindowSession(started="later", server={"model": "m", "k": 8, "engine_version": "0.33.0"}))
    [found] = curves.read([made])
    assert found.differences == ("d: server version changed while the run was measured (0.32.0, then 0.33.0).",)
    [found] = curves.read([made, folder(tmp_path, "r2", "e", UNSORTED)])
    assert found.differences[0] == "Arms differ in server version (d: 0.32.0, then 0.33.0; e: 0.32.0)."
