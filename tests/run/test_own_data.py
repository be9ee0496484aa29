"""Rows of the user's own, from a TOML file beside them to a report."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from spec_eval import run as running
from spec_eval import tables
from spec_eval.errors import UsageError
from spec_eval.prompts import mrcr
from spec_eval.render.progress import Progress
from spec_eval.run import Finished, RunOptions, serving
from tests.llamacpp_server import LlamaCppServer, Reply
from tests.prompts.test_mrcr import row

SUITE = """schema_version = 1
name = "mine"
title = "Mine"
[data]
file = "{file}"
licence = "CC0-1.0"
[prompt]
{prompt}
[sampling]
temperature = 0.0
max_tokens = 16
"""
TEMPLATE = 'id = "id"\ncategory = "kind"\ntemplate = "Q: {{q}}"'
ROWS = [{"id": "a", "kind": "one", "q": "Why?"}, {"id": "b", "kind": "two", "q": "How?"}]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)
    monkeypatch.setattr(mrcr, "o200k_counter", lambda: lambda *_: 5000)


def start(folder: Path, file: str, server: LlamaCppServer, prompt: str = TEMPLATE) -> Finished:
    path = folder / "mine.toml"
    path.write_text(SUITE.format(file=file, prompt=prompt.replace("{{", "{").replace("}}", "}")), encoding="utf-8")
    options = RunOptions(suite=str(path), engine="llamacpp", base_url=server.url, out=folder / "results", k=4)
    return running.start(options, Progress())


def put(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    path = folder / name
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_own_rows_are_run_from_either_kind_of_file(tmp_path: Path, name: str) -> None:
    put(tmp_path, name, ROWS)
    with LlamaCppServer() as server:
        finished = start(tmp_path, name, server)
        asked = {ask.prompt for ask in server.asks[1:]}
    assert finished.shortfall is None
    assert asked == {"Q: Why?", "Q: How?"}
    report = tables.build(finished.folder)
    assert [(r.label, r.figures.steps, r.figures.accepted) for r in report.rows] == [("one", 3, 5), ("two", 3, 5)]
    reference = finished.folder.plan().cells[0].prompts
    assert (reference.source, list(reference.files), reference.standin) == (name, [name], False)


def test_bad_rows_are_refused_before_anything_is_sent_or_written(tmp_path: Path) -> None:
    put(tmp_path, "rows.jsonl", [*ROWS, ROWS[0], {"id": "c", "kind": "one", "q": ""}])
    with LlamaCppServer() as server:
        with pytest.raises(UsageError) as caught:
            start(tmp_path, "rows.jsonl", server)
        assert server.asks == []
    assert "line 3: id 'a' is taken by rows.jsonl: line 1" in str(caught.value)
    assert "line 4: column 'q' is empty" in str(caught.value)
    assert not (tmp_path / "results").exists()


NEEDLES = 'adapter = "mrcr"\nid = "id"\ncategory_name = "needles"\nmessages = "prompt"'


def test_answers_are_graded_beside_their_acceptance(tmp_path: Path) -> None:
    put(tmp_path, "rows.parquet", [row(0), row(1)])
    # row 0 is answered right, row 1 without the prefix
    right = Reply(text="XyZ12Tea is warm.")
    wrong = Reply(text="Tea is warm.")
    with LlamaCppServer(lambda ask: right if ask.prompt.endswith("(0)") else wrong) as server:
        finished = start(tmp_path, "rows.parquet", server, NEEDLES)
        roles = [[m["role"] for m in ask.body["messages"]] for ask in server.asks[1:]]
    assert finished.shortfall is None
    assert roles == [["user", "user", "assistant", "user"]] * 2
    grades = sorted(line["grade"] for line in finished.folder.grades().values())
    assert grades == [0.0, 1.0]
    report = tables.build(finished.folder)
    assert report.overall.grade == 0.5
    assert report.overall.figures.steps == 6


def test_graded_runs_can_be_binned_by_their_official_lengths(tmp_path: Path) -> None:
    put(tmp_path, "rows.parquet", [row(0), row(1)])
    with LlamaCppServer() as server:
        finished = start(tmp_path, "rows.parquet", server, NEEDLES)
    rows = tables.build(finished.folder, "official-bin").rows
    found = {one.label: one.outcome.planned for one in rows}
    assert list(found)[:3] == ["o200k 0-4096", "o200k 4097-8192", "o200k 8193-16384"]
    assert {label: n for label, n in found.items() if n} == {"o200k 4097-8192": 2}


def test_run_without_references_leaves_no_grades(tmp_path: Path) -> None:
    put(tmp_path, "rows.jsonl", ROWS)
    with LlamaCppServer() as server:
        finished = start(tmp_path, "rows.jsonl", server)
    assert not (finished.folder.path / "grades.jsonl").exists()
    assert tables.build(finished.folder).overall.grade is None
