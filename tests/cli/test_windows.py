"""report and plot over folders of throughput runs, as a user may come to give them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spec_eval import cli
from tests.windows import Curve, cell, folder

Verb = Callable[..., tuple[int, str, str]]
DRAFTED: Curve = {1: [(200.0, 180.0)], 4: [(90.0, 270.0)]}
BARE: Curve = {1: [(100.0, 90.0)], 4: [(80.0, 300.0)], 16: [(40.0, 600.0)]}


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.chdir(tmp_path)

    def verb(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main([*map(str, argv)])
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return verb


def speed_up(out: str) -> list[list[str]]:
    [path] = [line for line in out.splitlines() if line.endswith("speed-up.csv")]
    return [line.split(",")[1:] for line in Path(path).read_text(encoding="utf-8").splitlines()[1:]]


def test_arms_meet_at_the_levels_that_both_have(call: Verb, tmp_path: Path) -> None:
    folder(tmp_path, "r1", "d", DRAFTED)
    folder(tmp_path, "r2", "none", BARE)
    code, out, err = call("plot", "r1", "r2")
    assert (code, err) == (0, "")
    assert speed_up(out) == [["d", "r1", "r2", "1", "2.0", "2.0", ""], ["d", "r1", "r2", "4", "0.9", "1.125", ""]]
    rows = Path("plots/throughput-humaneval.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[:5] for row in rows[1:]] == [
        ["r1", "humaneval", "d", "1", "200.0"],
        ["r1", "humaneval", "d", "4", "90.0"],
        ["r2", "humaneval", "none", "1", "100.0"],
        ["r2", "humaneval", "none", "4", "80.0"],
        ["r2", "humaneval", "none", "16", "40.0"],
    ]
    assert "d: Y falls below the baseline's from concurrency 4 on" in Path("plots/speed-up.md").read_text()
    [gains] = json.loads(call("report", "r1", "r2", "--format", "json")[1])["speed_up"]
    assert gains["stops_paying_at"] == {"d": 4}


def test_repeats_of_a_level_that_only_one_arm_repeated_are_told(call: Verb, tmp_path: Path) -> None:
    folder(tmp_path, "r1", "d", {1: [(200.0, 180.0), (100.0, 90.0)]})
    folder(tmp_path, "r2", "none", BARE)
    code, out, err = call("plot", "r1", "r2")
    assert (code, speed_up(out)[0][4:6]) == (0, ["1.5", "1.5"])  # (180 + 90) / 2 / 90
    assert "Arms differ in repeats (d: 2; none: 1)." in err


def test_the_same_run_twice_or_copied_is_refused(call: Verb, tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", DRAFTED)
    shutil.copytree(made.path, tmp_path / "copy")
    (tmp_path / "link").symlink_to(made.path)
    for other, says in (("r1", "given twice"), ("./r1/", "given twice"), ("link", "given twice"), ("copy", "a copy")):
        for verb in ("report", "plot"):
            code, out, err = call(verb, "r1", other)
            assert (code, out) == (2, "")
            assert says in err
            assert err.count("\n") == 1


def test_without_a_baseline_there_are_curves_and_no_speed_up(call: Verb, tmp_path: Path) -> None:
    folder(tmp_path, "r1", "d", DRAFTED)
    folder(tmp_path, "r2", "e", BARE)
    code, out, err = call("plot", "r1", "r2")
    assert (code, speed_up(out)) == (0, [])
    assert err == ("spec-eval: humaneval: No arm is known to run without a drafter; name one with --baseline RUN.\n")
    code, out, err = call("plot", "r1", "r2", "--baseline", "r2")
    assert (code, err, len(speed_up(out))) == (0, "", 2)


def test_of_two_runs_without_a_drafter_one_is_to_be_named(call: Verb, tmp_path: Path) -> None:
    folder(tmp_path, "r1", "d", DRAFTED)
    folder(tmp_path, "r2", "none", BARE)
    folder(tmp_path, "r3", "none", {1: [(50.0, 45.0)]})
    says = "Several runs have no drafter (r2, r3); choose one with --baseline RUN."
    code, out, _ = call("report", "r1", "r2", "r3")
    assert (code, says in out) == (0, True)
    code, out, err = call("plot", "r1", "r2", "r3")
    assert (code, says in err, speed_up(out)) == (0, True, [])
    code, out, err = call("plot", "r1", "r2", "r3", "--baseline", "./r3")
    assert (code, says in err) == (0, False)
    assert [row[:5] for row in speed_up(out)] == [["d", "r1", "r3", "1", "4.0"], ["none (r2)", "r2", "r3", "1", "2.0"]]


@pytest.mark.parametrize("baseline", ["r2", "nowhere", "x" * 300])
def test_a_baseline_that_is_none_of_the_runs_is_refused(call: Verb, tmp_path: Path, baseline: str) -> None:
    folder(tmp_path, "r1", "d", DRAFTED)
    folder(tmp_path, "r2", "none", BARE)
    code, out, err = call("plot", "r1", "--baseline", baseline)
    assert (code, out) == (2, "")
    assert f"--baseline {baseline}: is none of the runs; give it among them too" in err


def test_other_prompts_of_a_data_set_are_drawn_and_told(call: Verb, tmp_path: Path) -> None:
    one = folder(tmp_path, "r1", "d", DRAFTED)
    two = folder(tmp_path, "r2", "none", BARE)
    plan = two.plan()
    two.write_plan(plan.model_copy(update={"prompts": plan.prompts.model_copy(update={"sha256": "ef" * 32})}))
    code, _, err = call("plot", one.path, two.path)
    assert (code, err) == (
        0,
        "spec-eval: humaneval: Arms differ in prompts (d: abababababab; none: efefefefefef).\n",
    )
    assert "Arms differ in prompts" in Path("plots/throughput-humaneval.svg").read_text(encoding="utf-8")


def test_each_data_set_has_a_figure_and_its_own_baseline(call: Verb, tmp_path: Path) -> None:
    folder(tmp_path, "r1", "d", DRAFTED)
    folder(tmp_path, "r2", "none", BARE)
    folder(tmp_path, "r3", "d", {1: [(30.0, 20.0)]}, dataset="gsm8k", title="GSM8K")
    folder(tmp_path, "r4", "none", {1: [(10.0, 40.0)]}, dataset="gsm8k", title="GSM8K")
    code, out, _ = call("plot", "r1", "r2", "r3", "r4", "-o", "two")
    assert code == 0
    stems = ("throughput-humaneval", "throughput-gsm8k")
    names = [f"two/{stem}.{end}" for stem in stems for end in ("svg", "png", "csv")]
    assert out.splitlines() == [*names, "two/speed-up.md", "two/speed-up.csv", "two/provenance.json"]
    assert speed_up(out)[-1] == ["d", "r3", "r4", "1", "0.5", "3.0", ""]
    code, out, _ = call("plot", "r3", "r4", "-o", "two")
    assert not Path("two/throughput-humaneval.svg").exists()  # a figure of other runs than provenance.json tells of


def test_a_partial_run_is_drawn_marked_and_no_success(call: Verb, tmp_path: Path) -> None:
    folder(tmp_path, "r1", "d", {1: [(200.0, 180.0)], 4: ["killed"]}, whole=False)
    folder(tmp_path, "r2", "none", BARE)
    for verb in ("report", "plot"):
        code, out, err = call(verb, "r1", "r2")
        assert (code, bool(out)) == (5, True)
        assert err.splitlines()[-1].startswith(
            "spec-eval: r1: not whole: 2 of 2 cells so far; go on with `spec-eval run --resume r1`"
        )
        assert call(verb, "r1", "r2", "--partial")[0] == 0
    svg = Path("plots/throughput-humaneval.svg").read_text(encoding="utf-8")
    assert "(incomplete: d) (holes: d)" in svg
    assert "incomplete; holes" in Path("plots/speed-up.csv").read_text(encoding="utf-8")


def test_an_arm_without_any_figure_leaves_the_other(call: Verb, tmp_path: Path) -> None:
    folder(tmp_path, "r1", "d", {1: ["zero completions"], 4: ["all failed"]})
    folder(tmp_path, "r2", "none", BARE)
    code, out, err = call("plot", "r1", "r2", "--partial")
    assert (code, [row[4:6] for row in speed_up(out)]) == (0, [["", ""], ["", ""]])
    assert "d: no figures at concurrency 1 (repeat 1: zero completions)" in err
    assert "d: no concurrency has figures of both" in Path("plots/speed-up.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_a_number_that_is_none_in_our_own_files_is_damage(call: Verb, tmp_path: Path, text: str) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0)]})
    path = made.path / "cells.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace('"share": 0.2', f'"share": {text}'), encoding="utf-8")
    code, out, err = call("report", "r1")
    assert (code, out) == (2, "")
    assert "cells.jsonl: line 1: dropped.share: Input should be a finite number; the file is damaged" in err


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("cells.jsonl", '{"schema_version": 2}\n', "line 1 has schema version 2"),
        ("cells.jsonl", '{"schema_version": true}\n', "line 1 has schema version True"),
        ("cells.jsonl", '{"schema_version": 1, "concurrency": 1}\n', "the file is damaged"),
        ("sessions.jsonl", '{"started": 7}\n', "sessions.jsonl: line 1: started"),
        ("manifest.json", "{}", "schema version None"),
        ("plan.json", '{"schema_version": 1, "kind": "throughput"}', "plan.json: run_id"),
        ("plan.json", '{"schema_version": 1, "kind": "of tomorrow"}', "the file is damaged"),
    ],
)
def test_a_damaged_folder_is_one_line(call: Verb, tmp_path: Path, name: str, text: str, says: str) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0)]})
    (made.path / name).write_text(text, encoding="utf-8")
    for verb in ("report", "plot"):
        code, out, err = call(verb, "r1")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert says in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--aiperf", "x"), "--aiperf: for --renderer aiperf; give that too, or drop it"),
        (("--spread", "--renderer", "aiperf"), "--spread: --renderer aiperf draws no bars; drop one of them"),
        (("-o", "r1/plan.json"), "cannot be written"),
        (("--renderer", "gnuplot"), "'gnuplot' is not one of"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    call: Verb, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    folder(tmp_path, "r1", "d", DRAFTED)
    code, out, err = call("plot", "r1", *options)
    assert (code, out) == (2, "")
    assert says in err


def test_a_renderer_that_is_not_there_is_the_environment(
    call: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path, "r1", "d", DRAFTED)
    code, _, err = call("plot", "r1", "--renderer", "aiperf", "--aiperf", "nowhere")
    assert (code, "--aiperf nowhere: no program there" in err) == (4, True)
    monkeypatch.setenv("SPEC_EVAL_AIPERF", str(tmp_path / "gone"))
    code, _, err = call("plot", "r1", "--renderer", "aiperf")
    assert (code, f"SPEC_EVAL_AIPERF {tmp_path / 'gone'}: no program there" in err) == (4, True)


def test_a_level_that_was_measured_beside_the_plan_is_no_dot(call: Verb, tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", DRAFTED)
    made.append(cell(64, 1, (9.0, 900.0)))
    code, out, _ = call("report", "r1", "--format", "csv")
    assert (code, [row.split(",")[3] for row in out.splitlines()[1:]]) == (0, ["1", "4"])
