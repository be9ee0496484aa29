import json
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from spec_eval.errors import UsageError
from spec_eval.store import RunFolder, kind_of, windows
from spec_eval.store.windows import WindowFolder
from tests.windows import cell, folder


def test_floats_come_back_to_the_last_digit(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {4: [(100.00424488375263, 337.1873469778463)]})
    kept = WindowFolder(made.path).cells()[4, 1]
    assert kept.average("output_token_throughput_per_user") == 100.00424488375263
    assert kept.average("output_token_throughput") == 337.1873469778463


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0.0),
        (7, 7.0),
        (0.5, 0.5),
        *((none, None) for none in (None, True, "7", [7], math.nan, math.inf, -math.inf, -0.1, 10**400)),
    ],
)
def test_a_figure_is_a_finite_number_and_nothing_else(value: object, number: float | None) -> None:
    assert windows.figure(value) == number
    assert cell(1, 1, (1.0, 1.0), native={"m": {"avg": value}}).average("m") == number


def test_a_cell_holds_no_number_that_is_none() -> None:
    for kind, name in ((windows.ServerWindow, "tokens_per_second"), (windows.ServerWindow, "seconds")):
        with pytest.raises(ValidationError, match="finite number"):
            kind.model_validate({name: math.nan})
    with pytest.raises(ValidationError, match="finite number"):
        windows.Dropped.model_validate({"share": -math.inf, "basis": "tokens"})


def test_a_cell_without_figures_has_no_average(tmp_path: Path) -> None:
    assert cell(1, 1, "killed", native={"m": {"avg": 1.0}}).average("m") is None
    assert cell(1, 1, (1.0, 1.0)).average("no such metric") is None


def test_both_kinds_of_folder_lay_the_common_files_alike(tmp_path: Path) -> None:
    for made in (WindowFolder(tmp_path), RunFolder(tmp_path)):
        assert (made.server_log, made.is_whole) == (tmp_path / "server.log", False)
        made.write_report("half \ud83d")
        assert (tmp_path / "report.md").read_text(encoding="utf-8") == "half ?"
    (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")
    assert WindowFolder(tmp_path).is_whole
    assert RunFolder(tmp_path).is_whole


def test_only_a_run_that_began_keeps_its_folder(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0)]})
    made.discard_unused()
    assert made.path.is_dir()
    unused = WindowFolder(tmp_path / "r2")
    unused.path.mkdir()
    unused.write_plan(made.plan())
    (unused.path / "run.lock").write_text("", encoding="utf-8")
    unused.discard_unused()
    assert not unused.path.exists()


def test_lines_of_nul_and_of_no_object_cost_themselves_alone(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0)]})
    path = made.path / "cells.jsonl"
    path.write_bytes(b"\0\0\0\n[]\n" + path.read_bytes() + b"\xff\n")
    assert list(made.cells()) == [(1, 1)]


def test_a_torn_line_costs_its_cell_alone(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0)], 4: [(2.0, 2.0)]})
    path = made.path / "cells.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert list(made.cells()) == [(1, 1)]
    made.append(cell(4, 1, (3.0, 3.0)))
    assert made.cells()[4, 1].average("output_token_throughput") == 3.0
    assert len(path.read_bytes().splitlines()) == 3


def test_the_first_that_is_ok_counts(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: ["killed"]})
    for tried in ("timed out", (5.0, 5.0), "killed", (6.0, 6.0)):
        made.append(cell(1, 1, tried))
    assert made.cells()[1, 1].average("output_token_throughput") == 5.0


def test_other_versions_are_refused_with_their_number(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0)]})
    path = made.path / "cells.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 7}) + "\n")
    with pytest.raises(UsageError, match="line 1 has schema version 7, this spec-eval reads 1"):
        made.cells()
    plan = made.path / "plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"schema_version": 2}))
    with pytest.raises(UsageError, match="schema version 2, this spec-eval reads 1"):
        made.plan()


def test_each_kind_is_known_and_no_other_is_read_as_it(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0)]})
    assert kind_of(made.path) == "throughput"
    with pytest.raises(UsageError, match="a throughput run"):
        RunFolder.open(made.path)
    with pytest.raises(UsageError, match="no run folder"):
        kind_of(tmp_path)


def test_a_new_session_takes_back_that_the_run_is_whole(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0)]})
    assert made.is_whole
    made.start_session(made.sessions()[0])
    assert (made.is_whole, made.manifest(), len(made.sessions())) == (False, None, 2)


def test_an_attempt_before_keeps_its_folder(tmp_path: Path) -> None:
    made = folder(tmp_path, "r1", "d", {1: [(1.0, 1.0)]})
    first = made.fresh(4, 1)
    first.mkdir()
    assert [first.name, made.fresh(4, 1).name] == ["c4-r1", "c4-r1.2"]
