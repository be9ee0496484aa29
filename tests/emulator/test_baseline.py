"""The baseline that is committed: a deck played again on any machine is the same, to the last integer."""

import json
from pathlib import Path

import pytest

from spec_eval.cli import main
from tests.emulator.server import EmulatorServer

BASELINE = Path(__file__).parents[2] / "results" / "baselines" / "emulator-smoke.json"


def left(*argv: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(argv))
    return int(ended.value.code or 0)


def rerun(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    settings = ["--max-tokens", "4096", "--concurrency", "1", "--out", str(tmp_path / "results"), *options]
    assert left("run", "smoke", "--engine", "vllm", "--base-url", url, *settings) == 0
    return capsys.readouterr().out.strip()


def test_the_committed_deck_passes_its_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EmulatorServer(hands=24, seed=7) as server:
        run = rerun(server.url, tmp_path, capsys)
        other = rerun(server.url, tmp_path, capsys, "--temperature", "0.5")
    assert left("gate", run, "--baseline", str(BASELINE), "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    rule = document["rules"][0]
    assert (document["verdict"], rule["n"]) == ("pass", 24)
    assert rule["change"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    # The card prints AL 4.8074; a deck holds 10,000 steps.
    assert rule["candidate"] == rule["baseline"] == pytest.approx(4.8074, abs=5e-5)
    assert left("gate", other, "--baseline", str(BASELINE)) == 3
    assert "temperature 0.0 against 0.5" in capsys.readouterr().err
