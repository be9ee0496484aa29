from collections.abc import Callable
from pathlib import Path

import pytest

from spec_eval import cli
from spec_eval.store import Reconciliation
from tests.factories import answered, from_histogram, session_end
from tests.render.figures.samples import RECORDS, easy, folder

Shown = tuple[int, str, str]
STEMS = ("positions", "acceptance-by-category", "acceptance-by-length")


@pytest.fixture
def plot(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Shown]:
    monkeypatch.chdir(tmp_path)

    def call(*argv: object) -> Shown:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main(["plot", *map(str, argv)])
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return int(left.value.code), captured.out, captured.err

    return call


def names(*stems: str) -> list[str]:
    return [*(f"{stem}.{end}" for stem in stems for end in ("svg", "png", "csv")), "provenance.json"]


def test_files_are_printed_one_a_line_and_go_into_plots(tmp_path: Path, plot: Callable[..., Shown]) -> None:
    code, out, err = plot(folder(tmp_path).path)
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"plots/{name}" for name in names(*STEMS)]
    assert all((tmp_path / line).is_file() for line in out.splitlines())


def test_several_runs_go_into_one_figure_in_the_folder_asked_for(tmp_path: Path, plot: Callable[..., Shown]) -> None:
    code, out, err = plot(folder(tmp_path).path, folder(tmp_path, "two").path, "-o", tmp_path / "a" / "b")
    assert (code, err) == (0, "")
    assert out.splitlines() == [str(tmp_path / "a" / "b" / name) for name in names(*STEMS)]
    svg = (tmp_path / "a" / "b" / "positions.svg").read_text(encoding="utf-8")
    assert "eagle (one)" in svg
    assert "eagle (two)" in svg


def test_an_unfinished_run_is_drawn_and_marked_and_ends_in_5(tmp_path: Path, plot: Callable[..., Shown]) -> None:
    run = folder(tmp_path, records=RECORDS[:12], whole=False)
    code, out, err = plot(run.path)
    assert (code, err.count("\n")) == (5, 1)
    assert "--partial" in err
    assert out.splitlines()[-1] == "plots/provenance.json"
    assert "by category (incomplete)" in (tmp_path / "plots" / "acceptance-by-category.svg").read_text("utf-8")
    assert plot(run.path, "--partial") == (0, out, "")


def test_low_coverage_is_drawn_and_marked_and_ends_in_5(tmp_path: Path, plot: Callable[..., Shown]) -> None:
    lost = [answered(None, prompt_id=f"e{i}", category="easy") for i in range(10, 20)]
    run = folder(tmp_path, records=[*easy()[:10], *lost])
    code, _, err = plot(run.path)
    assert (code, err.count("\n")) == (5, 1)
    assert "coverage 50.0%" in err
    assert "by category (partial)" in (tmp_path / "plots" / "acceptance-by-category.svg").read_text("utf-8")


def test_nothing_to_draw_ends_in_3_and_writes_nothing(tmp_path: Path, plot: Callable[..., Shown]) -> None:
    idle = folder(tmp_path, records=[answered(from_histogram((0, 0)), prompt_id="h1", category="hard")])
    code, out, err = plot(idle.path)
    assert (code, out) == (3, "")
    assert "no verification step was measured" in err
    assert not (tmp_path / "plots").exists()


@pytest.mark.parametrize(("positions", "drawn"), [([8, 4], STEMS[:2]), ([8, 3], STEMS[1:2])])
def test_totals_of_a_server_have_one_line_and_no_length(
    positions: list[int], drawn: tuple[str, ...], tmp_path: Path, plot: Callable[..., Shown]
) -> None:
    # S 10, A 12; 8 + 4 positions add up to A, 8 + 3 do not and are then not used
    run = folder(tmp_path, engine="scrape", k=2, records=[])
    server = {"steps": 10, "drafted": 20, "accepted": 12, "positions": positions}
    read = Reconciliation(status="not available", reason="no counters by request", server=server)
    run.end_session(session_end(reconciliation=read))
    code, out, err = plot(run.path)
    assert code == 0
    assert [line.removeprefix("plots/") for line in out.splitlines()] == names(*drawn)
    lines = ["spec-eval: one: prompt lengths are not known; not in acceptance-by-length"]
    if "positions" not in drawn:
        lines.insert(0, "spec-eval: one: positions are not known; not in positions")
    assert err.splitlines() == lines
    svg = (tmp_path / "plots" / "acceptance-by-category.svg").read_text(encoding="utf-8")
    assert "by category (server-wide)" in svg
    assert "the server's own totals" in svg
    assert ",2.2,,," in (tmp_path / "plots" / "acceptance-by-category.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["nowhere"], "no run folder"),
        (["one", "one"], "given twice"),
        (["one", "--renderer", "aiperf"], "throughput figures only"),
        (["one", "--renderer", "paint"], "paint"),
        (["one", "-o", "one/plan.json"], "cannot be written"),
        ([], "RUN"),
    ],
)
def test_wrong_input_is_one_line_with_exit_2(
    argv: list[str], told: str, tmp_path: Path, plot: Callable[..., Shown]
) -> None:
    folder(tmp_path)
    code, out, err = plot(*argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert not (tmp_path / "plots").exists()
