import json
import math
import stat
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from spec_eval import cli, curves
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.render.figures import curve_sheets, look, throughput
from tests.windows import Curve, folder

DRAFTED: Curve = {
    16: [(40.0, 600.0), (44.0, 640.0)],
    1: [(100.0, 90.0)] * 2,
    4: ["zero completions"] * 2,
    2: [(90.0, 170.0)] * 2,
}
BARE: Curve = {1: [(60.0, 55.0)] * 2, 4: [(50.0, 190.0)] * 2, 128: [(9.0, 1000.0)] * 2}


def drawn(tmp_path: Path, *, spread: bool = False) -> Figure:
    runs = [folder(tmp_path, "r1", "d", DRAFTED), folder(tmp_path, "r2", "none", BARE)]
    [found] = curves.read(runs)
    with look.applied():
        return throughput.curves(found, [], spread=spread)


def test_lines_go_by_concurrency_and_end_at_a_hole(tmp_path: Path) -> None:
    [ax] = drawn(tmp_path).axes
    lines = [
        [tuple(pair) for pair in np.asarray(line.get_data()).T.tolist()]
        for line in ax.get_lines()
        if line.get_linestyle() != "None"
    ]
    assert lines == [[(100.0, 90.0), (90.0, 170.0)], [(42.0, 620.0)], [(60.0, 55.0), (50.0, 190.0), (9.0, 1000.0)]]
    dots = {
        line.get_label(): np.asarray(line.get_xdata()).tolist()
        for line in ax.get_lines()
        if line.get_marker() != "None"
    }
    assert dots == {"d": [100.0, 90.0, 42.0], "none": [60.0, 50.0, 9.0]}


def test_dots_carry_their_concurrency_and_axes_aiperfs_names(tmp_path: Path) -> None:
    figure = drawn(tmp_path)
    [ax] = figure.axes
    assert [(t.get_text(), t.xy) for t in ax.texts] == [  # type: ignore[attr-defined]
        ("1", (100.0, 90.0)),
        ("2", (90.0, 170.0)),
        ("16", (42.0, 620.0)),
        ("1", (60.0, 55.0)),
        ("4", (50.0, 190.0)),
        ("128", (9.0, 1000.0)),
    ]
    assert ax.get_xlabel() == "Output Token Throughput Per User (tokens/sec/user)"
    assert ax.get_ylabel() == "Output Token Throughput (tokens/sec)"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["d", "none (baseline)"]


def test_every_label_lies_on_the_sheet(tmp_path: Path) -> None:
    figure = drawn(tmp_path)
    figure.draw_without_rendering()
    [ax] = figure.axes
    width, height = figure.bbox.width, figure.bbox.height
    boxes = [text.get_window_extent() for text in ax.texts]
    assert all(box.x0 > 0 and box.x1 < width and box.y0 > 0 and box.y1 < height for box in boxes)


def test_spread_shows_the_repeats(tmp_path: Path) -> None:
    [ax] = drawn(tmp_path, spread=True).axes
    ends = {tuple(np.asarray(path.vertices)[:, 0].tolist()) for lines in ax.collections for path in lines.get_paths()}
    assert (40.0, 44.0) in ends


def test_files_numbers_and_provenance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder(tmp_path, "r1", "d", DRAFTED)
    folder(tmp_path, "r2", "none", BARE)
    with pytest.raises(SystemExit) as left:
        cli.main(["plot", "r1", "r2"])
    out, err = capsys.readouterr()
    assert left.value.code == 5
    assert "d: no figures at concurrency 4 (repeat 1: zero completions; repeat 2: zero completions)" in err
    assert "r1: 2 of 8 cells have no figures (c4-r1 zero completions, c4-r2 zero completions)" in err
    names = [*(f"throughput-humaneval.{end}" for end in ("svg", "png", "csv")), "speed-up.md", "speed-up.csv"]
    assert out.splitlines() == [f"plots/{name}" for name in (*names, "provenance.json")]
    rows = (tmp_path / "plots" / "throughput-humaneval.csv").read_text(encoding="utf-8").splitlines()
    assert rows[3].startswith("r1,humaneval,d,4,,,,,,,0,")  # the hole: empty, and no zero
    assert rows[4].startswith("r1,humaneval,d,16,42.0,40.0,44.0,620.0,600.0,640.0,2,")
    speed = (tmp_path / "plots" / "speed-up.md").read_text(encoding="utf-8")
    assert "| d | 1 | 1.636 | 1.667 |" in speed  # 90 / 55, 100 / 60
    assert "| d | 4 | — | — |" in speed
    assert "d: none measured where Y is below the baseline's" in speed
    document = json.loads((tmp_path / "plots" / "provenance.json").read_text(encoding="utf-8"))
    first = document["runs"][0]["cells"][0]
    assert first["command"] == ["aiperf", "profile", "--concurrency", "1"]
    assert first["native"]["output_token_throughput"] == {"unit": "tokens/sec", "avg": 90.0}
    assert document["runs"][0]["window"]["duration_s"] == 180.0
    with pytest.raises(SystemExit) as left:
        cli.main(["plot", "r1", "r2", "--partial"])
    assert left.value.code == 0


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    found = curves.read([folder(tmp_path, "r1", "d", DRAFTED)])
    files = [
        {path.name: path.read_bytes() for path in curve_sheets.write(found, tmp_path / name, spread=False, aiperf=None)}
        for name in ("a", "b")
    ]
    assert files[0] == files[1]


def test_nothing_to_draw_is_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder(tmp_path, "r1", "d", {1: ["all failed"]})
    with pytest.raises(SystemExit) as left:
        cli.main(["plot", str(made.path), "-o", str(tmp_path / "plots")])
    assert (left.value.code, capsys.readouterr().out) == (3, "")
    assert not (tmp_path / "plots").exists()


def test_notes_tell_what_a_point_rests_on(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(9.0, 9.0), "all failed"], 2: [(9.0, 9.0)] * 2, 4: ["killed", "killed"]})
    [found] = curves.read([made])
    assert curve_sheets.gaps(found) == [
        "d: rests on 1 of 2 repeats at concurrency 1 (repeat 2: all failed)",
        "d: no figures at concurrency 4 (repeat 1: killed; repeat 2: killed)",
    ]


def test_differences_stand_below_the_curves(tmp_path: Path) -> None:
    one = folder(tmp_path, "r1", "d", DRAFTED, version="0.31.0")
    [path] = [
        path
        for path in curve_sheets.write(
            curves.read([one, folder(tmp_path, "r2", "none", BARE)]), tmp_path / "plots", spread=False, aiperf=None
        )
        if path.suffix == ".svg"
    ]
    assert "Arms differ in server version (d: 0.31.0; none: 0.32.0)." in path.read_text(encoding="utf-8")


def test_labels_that_would_be_cut_alike_stay_whole(tmp_path: Path) -> None:
    long = "house/a-drafter-with-a-name-that-is-far-too-long-for-a-legend-number-"
    [found] = curves.read([folder(tmp_path, f"r{i}", f"{long}{i}", BARE) for i in (1, 2)])
    with look.applied():
        figure = throughput.curves(found, [], spread=False)
    assert [text.get_text().replace("\n", "") for text in figure.legends[0].get_texts()] == [f"{long}1", f"{long}2"]
    [found] = curves.read([folder(tmp_path, "r3", f"{long}1", BARE)])
    with look.applied():
        figure = throughput.curves(found, [], spread=False)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [f"{long[:59]}…"]


def test_more_arms_than_styles_are_refused(tmp_path: Path) -> None:
    [found] = curves.read([folder(tmp_path, f"r{i}", f"d{i}", {1: [(9.0, 9.0)]}) for i in range(8)])
    with pytest.raises(UsageError, match="8 runs: at most 7 can be told apart in one figure; plot fewer"):
        throughput.curves(found, [], spread=False)


def test_a_single_dot_and_a_dot_at_zero_are_drawn(tmp_path: Path) -> None:
    for run, point in (("r1", (9.0, 9.0)), ("r2", (0.0, 0.0))):
        [found] = curves.read([folder(tmp_path, run, "d", {1: [point]})])
        with look.applied():
            [ax] = throughput.curves(found, [], spread=True).axes
        dots = [line for line in ax.get_lines() if line.get_marker() != "None"]
        assert [np.asarray(line.get_data()).T.tolist() for line in dots] == [[[*point]]]


def test_data_sets_whose_names_are_written_alike_have_files_of_their_own(tmp_path: Path) -> None:
    runs = [folder(tmp_path, f"r{i}", "d", BARE, dataset=name) for i, name in enumerate(("a b", "a/b"))]
    paths = curve_sheets.write(curves.read(runs), tmp_path / "plots", spread=False, aiperf=None)
    ends = ("svg", "png", "csv")
    names = [f"throughput-{stem}.{end}" for stem in ("a-b", "a-b-2") for end in ends]
    assert [path.name for path in paths] == [*names, "provenance.json"]
    document = json.loads(paths[-1].read_text(encoding="utf-8"))
    assert [[*one["files"]] for one in document["figures"]] == [names[:3], names[3:]]


def test_provenance_of_an_unfinished_run_knows_its_server(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", DRAFTED, whole=False)
    paths = curve_sheets.write(curves.read([made]), tmp_path / "plots", spread=False, aiperf=None)
    [run] = json.loads(paths[-1].read_text(encoding="utf-8"))["runs"]
    assert (run["whole"], run["server"]["engine_version"]) == (False, "0.32.0")
    assert run["holes"] == {"4": ["repeat 1: zero completions", "repeat 2: zero completions"]}
    first = run["cells"][0]
    assert (first["dropped"], first["requests"]["dropped"]) == ({"share": 0.2, "basis": "requests"}, 2)
    assert first["server_window"]["counter"] == "vllm:generation_tokens"


def test_aiperf_draws_out_of_its_own_environment(tmp_path: Path) -> None:
    tool = tmp_path / "env" / "bin"
    tool.mkdir(parents=True)
    (tool / "aiperf").write_text("", encoding="utf-8")
    python = tool / "python"
    python.write_text(
        '#!/bin/sh\ncat > "$(dirname "$0")/job.json"\n'
        'folder=$(sed \'s/.*"folder": "\\([^"]*\\)".*/\\1/\' "$(dirname "$0")/job.json")\n'
        'printf drawn > "$folder/figure.svg"\n',
        encoding="utf-8",
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    found = curves.read([folder(tmp_path, "r1", "d", DRAFTED)])
    paths = curve_sheets.write(found, tmp_path / "plots", spread=False, aiperf=tool / "aiperf")
    assert [path.name for path in paths] == ["throughput-humaneval.svg", "throughput-humaneval.csv", "provenance.json"]
    assert paths[0].read_bytes() == b"drawn"
    [series] = json.loads((tool / "job.json").read_text(encoding="utf-8"))["series"]
    assert [p and p["label"] for p in series["points"]] == ["1", "2", None, "16"]
    assert math.isclose(series["points"][3]["y"], 620.0)
    hole = "d: no figures at concurrency 4 (repeat 1: zero completions; repeat 2: zero completions)."
    assert json.loads((tool / "job.json").read_text(encoding="utf-8"))["notes"] == [hole]


@pytest.mark.parametrize(
    ("text", "says"),
    [("echo no module >&2; exit 1", r"AIPerf's plot classes do not draw \(no module\); drop"), ("exit 3", "no output")],
)
def test_an_aiperf_that_does_not_draw_is_told(tmp_path: Path, text: str, says: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncat > /dev/null\n{text}\n", encoding="utf-8")
    python.chmod(0o755)
    found = curves.read([folder(tmp_path, "r1", "d", DRAFTED)])
    with pytest.raises(EnvironmentFault, match=says):
        curve_sheets.write(found, tmp_path / "plots", spread=False, aiperf=tmp_path / "aiperf")
    python.unlink()
    with pytest.raises(EnvironmentFault, match="no python beside it"):
        curve_sheets.write(found, tmp_path / "plots", spread=False, aiperf=tmp_path / "aiperf")
    assert not (tmp_path / "plots").exists()
