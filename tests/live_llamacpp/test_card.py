"""A card's tables on the embedded engine: every row in the card's order, measured where the server has room."""

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import pyarrow
import pyarrow.parquet
import pytest

from spec_eval.recipe import find as find_recipe
from spec_eval.serve.embedded import find_model
from tests.live import run, spec_eval

CATEGORIES = ["coding", "stem", "humanities", "math", "multilingual", "qa", "rag", "roleplay"]
CATEGORIES += ["reasoning", "summarization", "writing"]
LENGTHS = (1, 2, 8, 16, 32)


def test_every_row_stands_in_the_cards_order(tmp_path: Path) -> None:
    data = _standin(tmp_path / "rows-standin")
    options = ["--data-dir", str(data), "--limit", "2", "--max-tokens", "16", "--repeats", "1"]
    done = run("card-dflash2", "--engine", "embedded", *options, cwd=tmp_path)
    report = json.loads(spec_eval("report", str(done.path), "--format", "json", cwd=tmp_path).stdout)
    assert [row["title"] for row in report["rows"][:5]] == [f"{n}k" for n in LENGTHS]
    assert [row["category"] for row in report["rows"][5:]] == CATEGORIES
    sent = [row["requests"]["sent"] for row in report["rows"][:5]]
    assert sent == [2, 0, 0, 0, 0]
    assert [row["requests"]["not_sent_by"] for row in report["rows"][1:5]] == [{"oversized": 2}] * 4
    assert [row["acceptance_length"] for row in report["rows"][1:5]] == [None] * 4
    text = (done.path / "report.md").read_text()
    assert "stand-in" in text
    assert "SPEED-Bench" not in text
    assert "| 2k (stand-in) | — |" in text
    assert done.manifest["reconciliation"]["status"] == "exact"


def test_one_slot_and_a_larger_context_measure_the_longer_rows(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    lengths = (1, 2, 8) if pytestconfig.getoption("--long") else (1, 2)
    recipe, model = _stretched(tmp_path)
    data = _standin(tmp_path / "rows-standin")
    options = ["--data-dir", str(data), "--limit", "1", "--max-tokens", "16", "--repeats", "1", "--concurrency", "1"]
    suite = _first_cells(tmp_path, lengths)
    done = run(str(suite), "--serve", str(recipe), "--model", str(model), *options, cwd=tmp_path)
    report = json.loads(spec_eval("report", str(done.path), "--format", "json", cwd=tmp_path).stdout)
    assert [(row["title"], row["requests"]["measured"]) for row in report["rows"]] == [(f"{n}k", 1) for n in lengths]


def _standin(folder: Path) -> Path:
    """Rows of our own in the published shape, about as long as their names say."""
    sentence = "The ferry to the island leaves the old pier at noon and comes back at dusk. "
    for n in LENGTHS:
        rows = [_row(f"{n}k-{i}", "low_entropy", f"Repeat this text. {sentence * (75 * n)}") for i in range(2)]
        _write(folder / f"throughput_{n}k" / "test.parquet", rows)
    _write(
        folder / "qualitative" / "test.parquet",
        [_row(c, c, f"Say one sentence about {c}, then say it again.") for c in CATEGORIES],
    )
    return folder


def _row(name: str, category: str, text: str) -> dict[str, Any]:
    return {"question_id": name, "category": category, "sub_category": None, "turns": [text], "source": "stand-in"}


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def _first_cells(folder: Path, lengths: tuple[int, ...]) -> Path:
    """The card's first table, as far as `lengths` go: longer prompts take minutes to read on two cores."""
    text = (Path(__file__).parents[2] / "suites" / "card-dflash2.toml").read_text()
    head, *cells = text.split("[[cells]]")
    path = folder / "card-part.toml"
    path.write_text("[[cells]]".join([head, *cells[: len(lengths)]]))
    return path


def _stretched(folder: Path) -> tuple[Path, Path]:
    """A recipe with one large slot, and the model with a context to match: llama.cpp caps a slot at the trained one."""
    recipe = find_recipe("smollm2-ngram")
    assert recipe.target is not None
    model = folder / "stretched.gguf"
    shutil.copyfile(find_model(recipe.target.file, None).path, model)
    field = gguf.GGUFReader(model, "r+").get_field("llama.context_length")
    assert field is not None
    field.parts[field.data[0]][0] = 32768
    text = (Path(__file__).parents[2] / "recipes" / "smollm2-ngram.toml").read_text()
    path = folder / "long.toml"
    path.write_text(text.replace("slot-context = 2048", "slot-context = 16384"))
    return path, model
