"""`run --matrix` with throughput suites, over stand-ins for vLLM and AIPerf."""

import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval.drivers import aiperf
from spec_eval.run import serving
from spec_eval.serve import process
from spec_eval.store import RunFolder, kind_of
from spec_eval.store.windows import WindowFolder
from tests import fake_aiperf, fake_vllm
from tests.cli.test_run_matrix import Face
from tests.cli.throughput import suite

SUITES = 'suites = ["suite/pair.toml", "suite/load.toml"]'
FILE = f"""\
schema_version = 1
name = "both"

[[arms]]
recipes = ["ngram", "none"]
engines = ["vllm"]
hardware = ["cpu"]
model = "house/mouse"
{SUITES}
"""


@pytest.fixture
def face(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Face:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)
    monkeypatch.setattr(process, "_BETWEEN_S", 0.05)
    return Face(monkeypatch, capsys, tmp_path / "results")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    suite(tmp_path / "suite")  # pair.toml and load.toml, whose levels are 4 and 1
    path = tmp_path / "both.toml"
    path.write_text(FILE)
    fake_vllm.install(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("SPEC_EVAL_AIPERF", str(fake_aiperf.executable(tmp_path / "tool")))
    monkeypatch.setenv("FAKE_AIPERF_SEEN", str(tmp_path / "seen.jsonl"))
    return path


def calls(tmp_path: Path) -> list[dict[str, Any]]:
    seen = tmp_path / "seen.jsonl"
    return [json.loads(line) for line in seen.read_text(encoding="utf-8").splitlines()] if seen.exists() else []


def test_each_arm_is_driven_as_its_suite_wants_and_left_alone_the_next_time(
    face: Face,
    file: Path,
    tmp_path: Path,
) -> None:
    argv = ("--matrix", str(file), "--duration", "3", "--limit", "2")
    code, out, err = face(*argv)
    assert code == 0, err
    folders = [Path(line) for line in out.splitlines()]
    assert [(folder.parent.name, kind_of(folder)) for folder in folders] == [
        ("ngram-house_mouse-vllm-cpu-k8-pair", None),
        ("ngram-house_mouse-vllm-cpu-k8-load", "throughput"),
        ("none-house_mouse-vllm-cpu-pair", None),
        ("none-house_mouse-vllm-cpu-load", "throughput"),
    ]
    assert [len(RunFolder(folder).records().records) for folder in folders[::2]] == [2, 2]
    for folder in folders[1::2]:
        run = WindowFolder(folder)
        assert (run.plan().window.duration_s, len(run.plan().prompts.units)) == (3.0, 2)
        assert list(run.cells()) == [(4, 1), (1, 1)]
        assert (folder / "report.md").is_file()
    windows = [call["argv"][call["argv"].index("--benchmark-duration") + 1] for call in calls(tmp_path)]
    assert windows == ["3"] * 4
    assert face(*argv)[:2] == (0, out)
    assert len(calls(tmp_path)) == 4


def test_a_hole_is_an_arm_that_is_not_whole_and_the_same_command_tries_it_again(
    face: Face,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_AIPERF", json.dumps({"c4#2": "zero"}))
    code, out, err = face("--matrix", str(file))
    assert (code, len(out.splitlines())) == (5, 4)
    last = err.splitlines()[-1]
    assert last.startswith("spec-eval: 1 of 4 arms are not whole; run the same command to go on (none-")
    assert "c4-r1 zero completions" in last
    assert face("--matrix", str(file))[:2] == (0, out)
    assert [call["level"] for call in calls(tmp_path)] == ["4", "1", "4", "1", "4"]


def test_ctrl_c_in_a_window_ends_the_whole_matrix(
    face: Face,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(aiperf, "run", interrupt)
    code, out, err = face("--matrix", str(file))
    assert (code, len(out.splitlines())) == (5, 2)
    assert "arm 3 of 4" not in err
    assert "interrupted" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("suites", "argv", "words"),
    [
        ('suites = ["suite/pair.toml"]', ["--duration", "3"], "--duration: for throughput suites alone"),
        ('suites = ["suite/load.toml"]', ["--no-cache-salt"], "--no-cache-salt: of no effect on a throughput suite"),
    ],
)
def test_an_option_that_no_arm_takes_is_refused(
    suites: str,
    argv: list[str],
    words: str,
    face: Face,
    file: Path,
) -> None:
    file.write_text(FILE.replace(SUITES, suites))
    code, out, err = face("--matrix", str(file), *argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_aiperf_is_missed_before_the_first_server_starts(
    face: Face,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPEC_EVAL_AIPERF", str(tmp_path / "nowhere"))
    code, out, err = face("--matrix", str(file))
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert "no program there" in err
    assert not (tmp_path / "bin" / "pids").exists()


def test_a_dry_run_shows_arms_of_both_kinds(
    face: Face,
    file: Path,
) -> None:
    code, out, _ = face("--matrix", str(file), "--dry-run", "--no-cache-salt")
    assert code == 0
    assert (out.count("requests in"), out.count("2 cells of AIPerf 0.13.0")) == (2, 2)
