"""`run --matrix`: a server and a run for each arm, over a stand-in for vLLM."""

import sys
from pathlib import Path

import pytest

from spec_eval import cli
from spec_eval.run import serving
from spec_eval.serve import process
from spec_eval.store import RunFolder
from tests import fake_vllm
from tests.llamacpp_server import write_suite

FILE = """\
schema_version = 1
name = "mice"

[[arms]]
recipes = ["ngram"]
engines = ["vllm"]
hardware = ["cpu"]
k = [3, 5]
model = "house/mouse"
suites = ["suite/pair.toml"]
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)
    monkeypatch.setattr(process, "_BETWEEN_S", 0.05)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_suite(tmp_path / "suite", prompts=4)  # pair.toml
    path = tmp_path / "mice.toml"
    path.write_text(FILE)
    return path


class Face:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], out: Path) -> None:
        self._monkeypatch, self._capsys, self._out = monkeypatch, capsys, out

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["spec-eval", "run", *argv, "--out", str(self._out)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = self._capsys.readouterr()
        assert isinstance(left.value.code, int)
        return int(left.value.code), captured.out, captured.err


@pytest.fixture
def face(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Face:
    return Face(monkeypatch, capsys, tmp_path / "results")


def starts(out: Path) -> dict[str, int]:
    """How often each arm's server was started."""
    logs = out.glob("matrix-mice/*/*/server.log")
    return {log.parents[1].name: log.read_text().count("INFO loading weights") for log in logs}


def test_every_arm_is_started_measured_and_stopped_and_left_alone_the_next_time(
    face: Face, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch)
    code, out, err = face("--matrix", str(file))
    assert code == 0, err
    assert fake_vllm.gone(pids)
    runs = [RunFolder(Path(line)) for line in out.splitlines()]
    assert [run.path.parent.name for run in runs] == [
        "ngram-house_mouse-vllm-cpu-k3-pair",
        "ngram-house_mouse-vllm-cpu-k5-pair",
    ]
    assert [run.plan().target.k for run in runs] == [3, 5]
    assert all(run.is_whole for run in runs)
    assert "arm 2 of 2" in err
    assert (runs[0].path / "report.md").is_file()
    code, again, err = face("--matrix", str(file))
    assert (code, again) == (0, out)
    assert err.count("whole already") == 2
    assert set(starts(tmp_path / "results").values()) == {1}


def test_a_server_that_dies_loses_its_arm_alone_and_the_same_command_makes_up_for_it(
    face: Face, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch, "dies at k 3")
    code, out, err = face("--matrix", str(file))
    assert code == 5
    assert len(out.splitlines()) == 1
    assert "k5" in out
    last = err.splitlines()[-1]
    assert last.startswith("spec-eval: 1 of 2 arms are not whole; run the same command to go on (ngram-")
    assert "out of memory" in last
    fake_vllm.install(tmp_path / "bin", monkeypatch)
    code, out, err = face("--matrix", str(file))
    assert code == 0, err
    assert len(out.splitlines()) == 2
    # the arm that was whole is not served again; the other's log holds both of its starts
    assert sorted(starts(tmp_path / "results").values()) == [1, 2]


def test_a_dry_run_shows_every_arm_and_starts_none(
    face: Face, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch)
    code, out, _ = face("--matrix", str(file), "--dry-run", "--limit", "2")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("arm ")] == [
        "arm ngram-house_mouse-vllm-cpu-k3-pair",
        "arm ngram-house_mouse-vllm-cpu-k5-pair",
    ]
    assert out.count("2 requests in 2 conversations") == 2
    assert not pids.exists()
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("k = [3, 5]", "k = [3, 3]", "k3-pair stands there twice"),
        ("k = [3, 5]", "ks = [3]", "unknown key 'arms.0.ks'"),
        ('recipes = ["ngram"]', 'recipes = ["ngrm"]', "no recipe 'ngrm', did you mean 'ngram'"),
        ('hardware = ["cpu"]', 'hardware = ["gpu"]', "no hardware 'gpu'"),
        ('engines = ["vllm"]', 'engines = ["trtllm"]', "cannot start trtllm"),
        ("suite/pair.toml", "suite/other.toml", "no suite 'suite/other.toml'"),
        ('name = "mice"', 'name = "../mice"', "name: "),
        ('recipes = ["ngram"]', "recipes = []", "arms.0.recipes: "),
    ],
)
def test_a_wrong_arm_is_told_before_any_starts(
    old: str, new: str, words: str, face: Face, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = fake_vllm.install(tmp_path / "bin", monkeypatch)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    code, out, err = face("--matrix", str(file))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert not pids.exists()


def test_what_stands_in_the_file_is_refused_beside_it(face: Face, file: Path) -> None:
    for argv, words in (
        (["smoke"], "drop the suite"),
        (["--serve", "ngram"], "--serve: not beside --matrix"),
        (["--k", "3"], "--k: not beside --matrix"),
    ):
        code, _, err = face("--matrix", str(file), *argv)
        assert code == 2
        assert words in err


def test_another_matrix_of_that_name_is_refused_where_one_was_begun(
    face: Face, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch)
    assert face("--matrix", str(file), "--limit", "2")[0] == 0
    code, out, err = face("--matrix", str(file), "--limit", "3")
    assert (code, out) == (2, "")
    assert "begun with another file or other options" in err


def test_ctrl_c_ends_the_whole_matrix(face: Face, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm.install(tmp_path / "bin", monkeypatch, "never")

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("spec_eval.serve.process.time.sleep", interrupt)
    code, out, err = face("--matrix", str(file))
    assert code == 5
    assert len(out.splitlines()) == 1
    assert "arm 2 of 2" not in err
    assert "interrupted" in err.splitlines()[-1]
