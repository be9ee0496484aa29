import json
from pathlib import Path

import pytest

from spec_eval import baseline, sides
from spec_eval.errors import NoVerdict, UsageError
from spec_eval.pairs import Conversation, Side, Tally
from spec_eval.store import RunFolder
from tests.factories import CELL, answered, failed
from tests.sides import BEFORE, run


def kept(run_folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "base.json"
    path.write_text(baseline.text(sides.of_run(RunFolder.open(run_folder))), encoding="utf-8")
    return path


def test_a_baseline_is_the_run_again(tmp_path: Path) -> None:
    folder = run(tmp_path, "one", [[2, 1, 3], [0, 0, 0], [4, 1, 0]], categories=("coding", 'wri"ting\u2028'))
    side, again = sides.of_run(RunFolder.open(folder)), sides.load(kept(folder, tmp_path))
    assert again == side
    # S 6 A 7 D 12, at least one 4, two 3
    assert again.conversations[0] == Conversation(CELL, "chat", "p0", "coding", Tally(6, 7, 12, (4, 3)), full=True)
    assert (again.measured, again.ok) == (3, 3)


def test_every_conversation_is_a_line_of_integers(tmp_path: Path) -> None:
    folder = run(tmp_path, "one", [[2, 1, 3], [4, 1, 0]])
    lines = kept(folder, tmp_path).read_text(encoding="utf-8").splitlines()
    assert '     "p0": [6, 7, 12, 4, 3],' in lines
    assert '     "p1": [5, 1, 10, 1, 0]' in lines
    document = json.loads("\n".join(lines))
    assert document["schema_version"] == 1
    assert document["settings"][CELL]["k"] == 3


def test_a_conversation_not_measured_whole_is_null(tmp_path: Path) -> None:
    folder = run(tmp_path, "one", BEFORE, records=[failed(prompt_id="p99")])
    path = kept(folder, tmp_path)
    assert '     "p99": null' in path.read_text(encoding="utf-8").splitlines()
    last = sides.load(path).conversations[-1]
    assert (last.prompt_id, last.full) == ("p99", False)


def test_it_is_small_enough_for_git() -> None:
    tally = Tally(1234, 4321, 9872, (1199, 1000, 800, 600, 400, 200, 80, 42))
    talks = tuple(Conversation("cell", "speed-bench", f"question-{i:05d}", "coding", tally, True) for i in range(880))
    side = Side("run", {"cell": {"k": 8}}, {}, talks, 880, 880)
    assert len(baseline.text(side).encode()) < 200_000


def test_only_a_whole_run_with_counters_is_one(tmp_path: Path) -> None:
    unfinished = run(tmp_path, "unfinished", BEFORE, whole=False)
    with pytest.raises(NoVerdict, match="unfinished is not whole"):
        baseline.text(sides.load(unfinished))
    # 20 of 22 answers have counters: 90.9%
    poor = run(tmp_path, "poor", BEFORE, records=[answered(None, prompt_id=f"n{i}") for i in range(2)])
    with pytest.raises(NoVerdict, match="poor: 20 of 22 answers have usable counters, a baseline needs 95%"):
        baseline.text(sides.load(poor))
    nothing = run(tmp_path, "nothing", [], records=[failed(prompt_id="p0")])
    with pytest.raises(NoVerdict, match="nothing holds no conversation"):
        baseline.text(sides.load(nothing))


def test_another_version_is_refused_with_its_number(tmp_path: Path) -> None:
    path = kept(run(tmp_path, "one", BEFORE), tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(UsageError, match="baseline schema version 2, this spec-eval reads 1"):
        sides.load(path)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("[6, 7, 12, 4]", "positions that do not add up"),
        ("[6, 7, 12, 3, 4]", "positions that do not add up"),
        ("[6, 7, 5, 4, 3]", "fewer drafted"),
        ("[6, 7.0, 12, 4, 3]", "not counts"),
        ("[6, -7, 12, 4, 3]", "not counts"),
        ("[6]", "expected at least 3"),
        ("7", "not a baseline"),
    ],
)
def test_counters_that_cannot_be_are_refused(row: str, why: str, tmp_path: Path) -> None:
    path = kept(run(tmp_path, "one", [[2, 1, 3], [4, 1, 0]]), tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("[6, 7, 12, 4, 3]", row))
    with pytest.raises(UsageError, match=why) as refused:
        sides.load(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", ["kind", "run_id", "settings", "facts", "cells", "measured", "ok"])
def test_a_baseline_without_a_part_of_it_is_refused(key: str, tmp_path: Path) -> None:
    path = kept(run(tmp_path, "one", BEFORE), tmp_path)
    content = json.loads(path.read_text(encoding="utf-8"))
    del content[key]
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=f"not a baseline .*{key}"):
        sides.load(path)
