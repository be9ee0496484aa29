import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spec_eval import __version__
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import load, prepare
from tests.prompts.prepare.made_up import HLE, MASK, MMLU, PLAIN, fault, lines, made, relaxed, sidecar

SCRIPT = """
import argparse, json, pathlib, sys
import pyarrow as pa, pyarrow.parquet as pq
face = argparse.ArgumentParser()
face.add_argument("--dataset", choices=["speed"])
face.add_argument("--config")
face.add_argument("--output_dir", type=pathlib.Path)
told = face.parse_args()
here = pathlib.Path(__file__).parent
assert pathlib.Path.cwd() == here
print("preparing", told.config)
rows = json.loads((here / "rows.json").read_text())
if rows is None:
    print("Traceback: and so on")
    print("DatasetNotFoundError: cais/hle is gated")
    sys.exit(1)
folder = told.output_dir / "speed" / told.config
folder.mkdir(parents=True)
if rows:
    pq.write_table(pa.Table.from_pylist(rows), folder / "test.parquet")
"""
BY_TOOL = [[f"By the tool {n}."] for n in range(3)]


def checkout(folder: Path, rows: list[dict[str, Any]] | None) -> Path:
    script = folder / "examples" / "specdec_bench" / "prepare_data.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(SCRIPT)
    (script.parent / "rows.json").write_text(json.dumps(rows))
    return folder


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


TOOL_ROWS = [HLE, MMLU, PLAIN]
GOOD = [{**r, "turns": t} for r, t in zip(TOOL_ROWS, [BY_TOOL[0], ["Q1", "Q2"], PLAIN["turns"]], strict=True)]


def by_tool(tmp_path: Path, rows: list[dict[str, Any]] | None) -> Path:
    return made(TOOL_ROWS, tmp_path, tool=prepare.Tool.at(checkout(tmp_path / "Model-Optimizer", rows), sys.executable))


def test_tool_prepares_a_whole_config(tmp_path: Path) -> None:
    path = by_tool(tmp_path, GOOD)
    assert [r["turns"] for r in lines(path)] == [BY_TOOL[0], ["Q1", "Q2"], PLAIN["turns"]]
    assert [list(r) for r in lines(path)] == [list(PLAIN)] * 3
    about = sidecar(path)
    assert about["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert about["tool"] == {
        "name": "Model-Optimizer",
        "commit": None,
        "changed": False,
        "run_by": f"spec-eval {__version__}",
    }
    assert [(one["name"], one["rows"], one["from"]) for one in about["sources"]] == [
        ("cais/hle", 1, "tool"),
        ("TIGER-Lab/MMLU-Pro", 1, "tool"),
    ]
    assert "preparing qualitative" in (path.parent / "qualitative.tool.log").read_text()
    assert len(load(relaxed(), data_dir=path.parent).entries) == 3


def test_commit_of_the_tool_is_recorded_and_whether_it_was_changed(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "tool", GOOD)
    git(folder, "init", "-q")
    assert prepare.Tool.at(folder, sys.executable).commit is None
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    head = git(folder, "rev-parse", "HEAD")
    for given in (folder, folder / "examples" / "specdec_bench"):
        tool = prepare.Tool.at(given, sys.executable)
        assert (tool.commit, tool.changed, tool.name) == (head, False, given.name)
    (folder / "examples" / "specdec_bench" / "prepare_data.py").write_text("changed")
    assert prepare.Tool.at(folder, sys.executable).changed


def test_folder_inside_some_other_checkout_has_no_commit(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "other")
    assert prepare.Tool.at(checkout(tmp_path / "tool", GOOD), sys.executable).commit is None


def test_tool_folder_without_the_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no examples/specdec_bench/prepare_data\.py there"):
        prepare.Tool.at(tmp_path, sys.executable)


def test_failing_tool_gives_its_last_line_and_its_log(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        by_tool(tmp_path, None)
    log = tmp_path / "out" / "qualitative.tool.log"
    message = str(caught.value)
    assert f"exit 1 for qualitative: DatasetNotFoundError: cais/hle is gated; see {log}" in message
    assert "cais/hle is gated: accept its terms on the hub and set HF_TOKEN" in message
    assert [path.name for path in log.parent.iterdir()] == [log.name]


def test_python_that_is_not_there(tmp_path: Path) -> None:
    tool = prepare.Tool.at(checkout(tmp_path / "tool", GOOD), str(tmp_path / "no-python"))
    assert "give --tool-python" in fault(TOOL_ROWS, tmp_path, UsageError, tool=tool)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "wrote no speed/qualitative/test.parquet"),
        (GOOD[:2], "2 rows, 3 are published"),
        ([GOOD[1], GOOD[0], GOOD[2]], f"row 1 is '{MMLU['question_id']}', published is '{HLE['question_id']}'"),
        ([{**GOOD[0], "turns": [MASK]}, *GOOD[1:]], "row 1 (cais/hle) is still a placeholder"),
        ([GOOD[0], {**GOOD[1], "turns": ["Q1", f"\n{MASK}"]}, GOOD[2]], "row 2 (TIGER-Lab/MMLU-Pro) is still"),
        ([*GOOD[:2], {**GOOD[2], "turns": ["Why not?"]}], "row 3: its turns are published, and the tool's are others"),
        ([*GOOD[:2], {**GOOD[2], "turns": [" "]}], "row 3: turns are not a list of texts"),
        ([{"question_id": r["question_id"]} for r in GOOD], "row 1: turns are not a list of texts"),
    ],
)
def test_tool_that_wrote_something_else_is_not_believed(rows: list[dict[str, Any]], says: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        by_tool(tmp_path, rows)
    assert says in str(caught.value)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["qualitative.tool.log"]


def test_tool_is_not_run_where_nothing_waits(tmp_path: Path) -> None:
    tool = prepare.Tool.at(checkout(tmp_path / "tool", None), sys.executable)
    assert sidecar(made([PLAIN], tmp_path, tool=tool))["tool"]["name"] == "spec-eval"
