"""Every row of the published cards, put in and got out: through the wire, the client, the store and the report."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval import run as running
from spec_eval import shipped, tables
from spec_eval.render import json as json_render
from spec_eval.render.progress import Progress
from spec_eval.run import RunOptions, serving
from spec_eval.store import RunFolder
from tests.emulator.server import EmulatorServer
from tests.llamacpp_server import write_suite

PROMPTS = 80


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


def published() -> list[dict[str, str]]:
    with (shipped.folder("profiles") / "published.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_suite(tmp_path_factory.mktemp("suite"), prompts=PROMPTS, concurrency=8)
    path.write_text(path.read_text().replace("max_tokens = 32", "max_tokens = 2048"))
    return path


def overall(suite: Path, out: Path, url: str, **more: Any) -> Any:
    finished = running.start(
        RunOptions(**{"suite": str(suite), "engine": "vllm", "base_url": url, "out": out, **more}), Progress()
    )
    assert finished.shortfall is None
    return report(finished.folder)["overall"]


def report(folder: RunFolder) -> Any:
    return json.loads(json_render.render([tables.build(folder)]))


@pytest.mark.parametrize("row", published(), ids=lambda row: f"{row['table']}-{row['row']}-{row['temperature']}")
def test_row_comes_out_to_its_last_printed_digit(row: dict[str, str], suite: Path, tmp_path: Path) -> None:
    with EmulatorServer(profile=f"{row['card']}:{row['table']}:{row['row']}") as server:
        found = overall(suite, tmp_path, server.url)
    assert found["requests"]["measured"] == PROMPTS
    assert found["steps"] == 10_000
    printed = [row[f"position_{i}_pct"] for i in range(1, 9)]
    assert [f"{share * 100:.2f}" for share in found["positions"]] == printed
    digits = len(row["acceptance_length"].partition(".")[2])
    tolerance = {4: 0.0005, 2: 0.006}[digits]
    assert found["acceptance_length"]["value"] == pytest.approx(float(row["acceptance_length"]), abs=tolerance)
    if row["acceptance_rate_pct"]:
        assert found["acceptance_rate"] * 100 == pytest.approx(float(row["acceptance_rate_pct"]), abs=0.01)
