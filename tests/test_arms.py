from pathlib import Path

from spec_eval import curves
from spec_eval.arms import Arm, Spread
from spec_eval.curves import Comparison
from spec_eval.store import Target
from spec_eval.store.windows import OK, Dropped, Requests, WindowFolder
from tests.windows import cell, folder

UNSORTED = {16: [(40.0, 600.0)], 1: [(100.0, 90.0)], 4: [(80.0, 300.0)]}


def arm(found: Comparison, label: str) -> Arm:
    [one] = [arm for arm in found.arms if arm.label == label]
    return one


def test_points_stand_in_order_of_concurrency(tmp_path: Path) -> None:
    [found] = curves.read([folder(tmp_path, "r1", "d", UNSORTED)])
    points = found.arms[0].points
    assert [(p.concurrency, p.x and p.x.mean, p.y and p.y.mean) for p in points] == [
        (1, 100.0, 90.0),
        (4, 80.0, 300.0),
        (16, 40.0, 600.0),
    ]


def test_repeats_weigh_the_same_however_many_requests_they_had(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {4: [(80.0, 300.0), (60.0, 330.0)]})
    [found] = curves.read([made])
    [point] = found.arms[0].points
    assert point.x == Spread(70.0, 60.0, 80.0, 2)
    assert point.y == Spread(315.0, 300.0, 330.0, 2)
    assert point.acceptance_length == 1 + 600 / 200
    assert (point.dispatched, point.completed, point.failed) == (20, 16, 0)


def test_a_hole_is_null_and_a_half_hole_rests_on_what_there_is(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: ["zero completions", "timed out"], 4: [(80.0, 300.0), "all failed"]})
    [found] = curves.read([made])
    one, four = found.arms[0].points
    assert (one.x, one.y, one.server, one.dropped, one.completed) == (None, None, None, None, None)
    assert one.holes == ("repeat 1: zero completions", "repeat 2: timed out")
    assert (four.y, four.holes) == (Spread(300.0, 300.0, 300.0, 1), ("repeat 2: all failed",))
    assert "holes" in found.arms[0].marks
    assert list(found.arms[0].by_level) == [4]


def test_shares_of_tokens_and_of_requests_are_not_averaged(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {4: ["timed out", "timed out"]})
    for repeat, basis in ((1, "tokens"), (2, "requests")):
        made.append(cell(4, repeat, (80.0, 300.0), dropped=Dropped(share=0.3, basis=basis)))  # type: ignore[arg-type]
    [found] = curves.read([made])
    assert found.arms[0].points[0].dropped is None
    made.append(cell(4, 1, (1.0, 1.0)))  # the first that is ok counts
    assert made.cells()[4, 1].average("output_token_throughput") == 300.0


def test_arms_of_one_drafter_carry_their_run_ids(tmp_path: Path) -> None:
    [found] = curves.read([folder(tmp_path, "r1", "d", UNSORTED), folder(tmp_path, "r2", "d", UNSORTED)])
    assert [arm.label for arm in found.arms] == ["d (r1)", "d (r2)"]


def test_arms_of_one_drafter_are_told_apart_by_k(tmp_path: Path) -> None:
    runs = [folder(tmp_path, f"r{k}", "d", UNSORTED, server={"model": "m", "k": k}) for k in (3, 7)]
    [found] = curves.read([*runs, folder(tmp_path, "r2", "e", UNSORTED)])
    assert [arm.label for arm in found.arms] == ["d, k 3", "d, k 7", "e"]
    [found] = curves.read([*runs, folder(tmp_path, "r9", "d", UNSORTED, server={"k": 7})])
    assert [arm.label for arm in found.arms] == ["d (r3)", "d (r7)", "d (r9)"]


def test_a_run_without_an_end_knows_its_server_from_its_sessions(tmp_path: Path) -> None:
    one = folder(tmp_path, "r1", "d", UNSORTED, whole=False)
    [found] = curves.read([one, folder(tmp_path, "r2", "e", UNSORTED)])
    assert found.differences == ()
    assert found.arms[0].server == {"model": "m", "k": 8, "engine_version": "0.32.0"}


def test_a_level_beside_the_plan_and_a_cell_without_numbers_are_no_points(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(100.0, 90.0)], 4: ["killed"]})
    made.append(cell(64, 1, (9.0, 900.0)))
    made.append(cell(1, 2, (1.0, 1.0)))
    native = {"output_token_throughput_per_user": {"avg": 80.0}, "output_token_throughput": {"avg": None}}
    made.append(cell(4, 1, (80.0, 300.0), native=native))
    [found] = curves.read([made])
    one, four = found.arms[0].points
    assert (one.concurrency, one.y, four.concurrency) == (1, Spread(90.0, 90.0, 90.0, 1), 4)
    assert (four.x, four.y, four.holes) == (None, None, ("repeat 1: without figures",))
    assert found.arms[0].marks == ["holes"]


def test_shares_of_repeats_that_dropped_nothing_stay_what_they_are(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: ["killed"] * 2, 4: ["killed"] * 2})
    for level, share, basis in ((1, 0.0, "requests"), (4, 0.3, "tokens")):
        made.append(cell(level, 1, (1.0, 1.0), dropped=Dropped(share=0.0, basis="requests")))
        made.append(cell(level, 2, (1.0, 1.0), dropped=Dropped(share=share, basis=basis)))  # type: ignore[arg-type]
    [found] = curves.read([made])
    one, four = found.arms[0].points
    assert (one.dropped and one.dropped.mean, one.dropped_of) == (0.0, "requests")
    assert (four.dropped and four.dropped.mean, four.dropped_of) == (0.15, "tokens")


def test_a_share_that_one_repeat_does_not_know_is_not_known(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0), "killed"]})
    made.append(cell(1, 2, (1.0, 1.0), dropped=None, requests=Requests()))
    [point] = curves.read([made])[0].arms[0].points
    assert (point.dropped, point.dispatched, point.completed) == (None, None, None)


def test_a_run_without_a_finished_cell_is_an_arm_of_holes(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0)]}, whole=False)
    (made.path / "cells.jsonl").unlink()
    (made.path / "sessions.jsonl").unlink()
    [found] = curves.read([made])
    assert found.arms[0].points[0].holes == ("repeat 1: not measured",)
    assert (found.arms[0].server, found.arms[0].by_level) == (None, {})


def test_a_run_without_an_end_is_marked(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0)]}, whole=False)
    [found] = curves.read([made])
    assert found.arms[0].marks == ["incomplete"]
    assert made.cells()[1, 1].outcome == OK


def test_arms_of_one_drafter_and_k_are_told_apart_by_whether_they_adapt(tmp_path: Path) -> None:
    def arm_of(run_id: str, drafter: str, k: int, adaptive: bool | None) -> WindowFolder:
        target = Target(engine="vllm", model="m", drafter=drafter, k=k, base_url="http://127.0.0.1:1/v1")
        target = target.model_copy(update={"adaptive": adaptive})
        server = {"model": "m", "k": k, "engine_version": "0.32.0"}
        return folder(tmp_path, run_id, drafter, {1: [(1.0, 2.0)]}, server=server, target=target)

    off, on = arm_of("r1", "d", 8, False), arm_of("r2", "d", 8, True)
    other, silent = arm_of("r3", "d", 3, False), arm_of("r4", "d", 8, None)
    mtp = arm_of("r5", "mtp", 3, None)

    def labels(*folders: WindowFolder) -> list[str]:
        return [arm.label for arm in curves.read([*folders])[0].arms]

    assert labels(off, on, mtp) == ["d, adaptive off", "d, adaptive on", "mtp"]
    assert labels(off, other) == ["d, k 8", "d, k 3"]
    assert labels(off, on, other) == ["d, k 8, adaptive off", "d, k 8, adaptive on", "d, k 3, adaptive off"]
    assert labels(on, silent) == ["d (r2)", "d (r4)"]


def test_what_the_user_says_of_adapting_stands_above_the_server(tmp_path: Path) -> None:
    target = Target(engine="vllm", model="m", drafter="d", k=8, base_url="http://127.0.0.1:1/v1")
    server = {"model": "m", "k": 8, "engine_version": "0.32.0", "adaptive": False}
    made = [
        folder(
            tmp_path, f"r{n}", "d", {1: [(1.0, 2.0)]}, server=server, target=target.model_copy(update={"adaptive": a})
        )
        for n, a in enumerate((True, None))
    ]
    [found] = curves.read(made)
    assert [arm.label for arm in found.arms] == ["d, adaptive on", "d, adaptive off"]
    assert any("adaptive verification (d, adaptive on: on; d, adaptive off: off)" in one for one in found.differences)


def test_the_time_of_a_run_is_enough_to_tell_it_by(tmp_path: Path) -> None:
    ids = ["20260101-101010-load-vllm-d", "20260101-111111-load-vllm-d"]
    made = [folder(tmp_path, name, "d", {1: [(1.0, 2.0)]}) for name in ids]
    assert [arm.label for arm in curves.read(made)[0].arms] == ["d (20260101-101010)", "d (20260101-111111)"]
    made.append(folder(tmp_path, f"{ids[0]}-2", "d", {1: [(1.0, 2.0)]}))
    first, second, third = (arm.label for arm in curves.read(made)[0].arms)
    assert (first, second, third) == (f"d ({ids[0]})", "d (20260101-111111)", f"d ({ids[0]}-2)")
