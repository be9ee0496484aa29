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


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Rows of the report by the published row's name."""
    home = tmp_path_factory.mktemp("rows")
    suite = compound(home)
    links = {f"cell{number}": full_name(row) for number, row in enumerate(published())}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(serving, "SETTLE_S", 0.0)
        patched.setattr(
            "spec_eval.drivers.conversations.gc.collect", lambda: 0
        )  # of the whole test process, for each cell
        with EmulatorServer(profile="both cards", suite_name=str(suite), links=links) as server:
            options = RunOptions(suite=str(suite), engine="vllm", base_url=server.url, out=home / "results")
            finished = running.start(options, Progress())
    assert finished.shortfall is None
    rows = json.loads(json_render.render([tables.build(finished.folder)]))["rows"]
    return {row["title"]: row for row in rows}


def test_all_rows_are_there(report: Any) -> None:
    assert len(report) == 47
    assert list(report) == [full_name(row) for row in published()]


@pytest.mark.parametrize("row", published(), ids=lambda row: f"{row['table']}-{row['row']}-{row['temperature']}")
def test_row_comes_out_to_its_last_printed_digit(row: dict[str, str], report: Any) -> None:
    found = report[full_name(row)]
    assert found["requests"]["measured"] == PROMPTS
    assert found["steps"] == 10_000
    printed = [row[f"position_{i}_pct"] for i in range(1, 9)]
    assert [f"{share * 100:.2f}" for share in found["positions"]] == printed
    digits = len(row["acceptance_length"].partition(".")[2])
    tolerance = {4: 0.0005, 2: 0.006}[digits]
    assert found["acceptance_length"]["value"] == pytest.approx(float(row["acceptance_length"]), abs=tolerance)
    if row["acceptance_rate_pct"]:
        assert found["acceptance_rate"] * 100 == pytest.approx(float(row["acceptance_rate_pct"]), abs=0.01)
