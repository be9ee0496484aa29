"""A published row put into a real server must come out of the report again."""

import json
from pathlib import Path

import pytest

from tests.live import run, spec_eval

ROW = "glm-5.3-dflash2-preview:basic-t0:HumanEval"
# As the card prints it.
ACCEPTANCE_LENGTH = 4.8074
POSITIONS = (83.49, 68.30, 56.05, 46.44, 39.08, 33.36, 28.84, 25.18)


def test_a_published_row_comes_out_again(
    pytestconfig: pytest.Config, humaneval: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = pytestconfig.getoption("--long")
    prompts, least_steps, within, points = (70, 1500, 0.25, 4) if long else (14, 300, 0.6, 10)
    options = ["--known-answer", ROW, "--limit", str(prompts), "--max-tokens", "256", *humaneval]
    done = run("humaneval", "--engine", "embedded", *options, cwd=tmp_path, timeout=1800)
    report = json.loads(spec_eval("report", str(done.path), "--format", "json", cwd=tmp_path).stdout)
    full = report["overall"]["full_draft_steps"]
    everything = report["overall"]["acceptance_length"]["value"]
    with capsys.disabled():
        print(
            f"\nknown answer {ACCEPTANCE_LENGTH}: AL {full['acceptance_length']:.4f} over {full['steps']} steps that "
            f"drafted exactly k, {everything:.4f} over all {report['overall']['steps']} steps"
        )
    assert full["steps"] >= least_steps
    assert full["acceptance_length"] == pytest.approx(ACCEPTANCE_LENGTH, abs=within)
    assert [100 * share for share in full["positions"]] == pytest.approx(POSITIONS, abs=points)
    assert done.sums() == done.prometheus("llamacpp:")
    assert len({record["seed_sent"] for record in done.records}) == prompts
    assert [path.name for path in done.path.iterdir() if b"synthetic" not in path.read_bytes()] == []
    assert "synthetic" in done.path.name
    for form in ("md", "json", "csv"):
        assert "synthetic" in spec_eval("report", str(done.path), "--format", form, cwd=tmp_path).stdout
