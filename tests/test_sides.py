import json
from pathlib import Path

import pytest

from spec_eval import sides
from spec_eval.comparability import ANY_CELL
from spec_eval.errors import UsageError
from spec_eval.store import Target
from tests.sides import BEFORE, run


def test_a_run_says_what_may_differ(tmp_path: Path) -> None:
    target = Target(
        engine="llamacpp", model="m", drafter="d2", k=1, recipe={"drafter": {"name": "d2", "revision": "r1"}}
    )
    server = {"model": "served", "models": ["served"], "model_file_sha256": "f" * 64, "speculative": {"method": "x"}}
    path = run(tmp_path, "one", BEFORE, target=target, manifest={"server": server, "packages": {"openai": "3.57"}})
    facts = sides.load(path).facts
    assert facts == {
        "engine": "llamacpp",
        "engine_version": "b1",
        "target": "served",
        "drafter": "d2",
        "drafter_recipe": {"name": "d2", "revision": "r1"},
        "speculative": {"method": "x"},
        "model_file_sha256": "f" * 64,
        "spec_eval_version": "0.1.0",
        "packages": {"openai": "3.57"},
    }


def test_a_run_of_server_totals_cannot_be_paired(tmp_path: Path) -> None:
    target = Target(engine="scrape", model="m", drafter="d", k=1)
    problem = sides.load(run(tmp_path, "totals", [], target=target)).problem
    assert problem == "totals holds a server's own totals, and no conversation that could be paired"


def test_a_description_has_settings_and_no_counters(tmp_path: Path) -> None:
    path = tmp_path / "published.json"
    path.write_text(json.dumps({"k": 5, "temperature": None, "engine": "sglang", "dataset_sha256": "ab"}))
    side = sides.load(path)
    assert side.settings == {ANY_CELL: {"k": 5, "temperature": None, "dataset_sha256": "ab"}}
    assert side.facts == {"engine": "sglang"}
    assert side.problem == "published.json only describes a run: it has no counters"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"k": 4', "not whole JSON"),
        ("[1]", "no JSON object"),
        ('{"engine": "vllm"}', "none of its keys is a setting"),
        ('{"schema_version": 9}', "baseline schema version 9"),
        ('{"schema_version": 1.0}', "baseline schema version 1.0"),
        ('{"schema_version": true}', "baseline schema version True"),
        ("\udcff", "not whole JSON"),
        ('{"k": NaN}', "not whole JSON"),
        ("[" * 300, "not whole JSON"),
    ],
)
def test_what_is_no_side_is_one_line(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "side.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=why) as refused:
        sides.load(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_such_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        sides.load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no run folder"):
        sides.load(tmp_path)
