"""Every row of the published cards, put in and got out: through the wire, the client, the store and the report.

One run of 47 cells, each of 80 short prompts, that is one deck for each row.
"""

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
from tests.emulator.server import EmulatorServer
from tests.llamacpp_server import write_suite

PROMPTS = 80


def published() -> list[dict[str, str]]:
    with (shipped.folder("profiles") / "published.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def full_name(row: dict[str, str]) -> str:
    return f"{row['card']}:{row['table']}:{row['row']}"


def compound(home: Path) -> Path:
    """A cell for each row, at the row's temperature, with prompts of its own."""
    cells = []
    for number, row in enumerate(published()):
        simple = write_suite(home / f"row{number}", prompts=PROMPTS, concurrency=8)
        text = simple.read_text().replace('name = "pair"', f'name = "row{number}"')
        simple.write_text(text.replace('template = "Answer: ', f'template = "Row {number}: '))
        cells.append(
            f'[[cells]]\nid = "cell{number}"\nsuite = "row{number}/pair.toml"\ntable = "rows"\n'
            f'title = "{full_name(row)}"\nsampling = {{ temperature = {float(row["temperature"])} }}\n'
        )
    path = home / "rows.toml"
    head = 'schema_version = 1\nname = "rows"\ntitle = "Rows"\nload = { concurrency = 8 }\n'
    path.write_text(head + "sampling = { temperature = 0.0, max_tokens = 2048 }\n" + "".join(cells))
    return path


def played(home: Path) -> dict[str, Any]:
    """Rows of the report by the published row's name."""
    suite = compound(home)
    links = {f"cell{number}": full_name(row) for number, row in enumerate(published())}
    with EmulatorServer(profile="both cards", suite_name=str(suite), links=links) as server:
        options = RunOptions(suite=str(suite), engine="vllm", base_url=server.url, out=home / "results")
        finished = running.start(options, Progress())
    assert finished.shortfall is None
    rows = json.loads(json_render.render([tables.build(finished.folder)]))["rows"]
    return {row["title"]: row for row in rows}


def test_every_row_comes_out_to_its_last_printed_digit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)
    found = played(tmp_path)
    printed = {full_name(row): row for row in published()}
    assert len(printed) == 47
    assert {name: [f"{share * 100:.2f}" for share in row["positions"]] for name, row in found.items()} == {
        name: [row[f"position_{i}_pct"] for i in range(1, 9)] for name, row in printed.items()
    }
    assert {(row["requests"]["measured"], row["steps"]) for row in found.values()} == {(PROMPTS, 10_000)}
    for name, row in printed.items():
        digits = len(row["acceptance_length"].partition(".")[2])
        length = pytest.approx(float(row["acceptance_length"]), abs={4: 0.0005, 2: 0.006}[digits])
        assert found[name]["acceptance_length"]["value"] == length, name
        if row["acceptance_rate_pct"]:
            rate = pytest.approx(float(row["acceptance_rate_pct"]), abs=0.01)
            assert found[name]["acceptance_rate"] * 100 == rate, name
