from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from spec_eval import suite
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import prepare
from tests.prompts.prepare.made_up import OURS, PLAIN, REVISION, json_lines, publish


def test_published_file_missing(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"none of .*throughput_8k\.jsonl there"):
        prepare.read("throughput_8k", str(publish(tmp_path, OURS)))
    with pytest.raises(EnvironmentFault, match="no such folder"):
        prepare.read("qualitative", str(tmp_path / "nowhere"))


def test_published_folder_is_asked_of_the_hub_by_its_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, str | None, str | None]] = []

    def read(data: suite.DataSpec) -> Any:
        asked.append((data.hub, data.config, data.revision))
        return iter([("row 1", PLAIN)])

    monkeypatch.setattr("spec_eval.prompts.hub.read", read)
    got = prepare.read("throughput_2k")
    assert prepare.read("qualitative", f"me/copy@{REVISION}").source == "me/copy"
    pin = suite.find("speed-bench-throughput-2k").simple.data.revision
    assert asked == [("nvidia/SPEED-Bench", "throughput_2k", pin), ("me/copy", "qualitative", REVISION)]
    assert (got.revision, got.files, got.waiting) == (pin, {}, [])


def test_no_way_to_the_published_rows_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: Any, **__: Any) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(EnvironmentFault, match=r"SPEED-Bench@454f88454792: .*give its rows with --published"):
        prepare.read("qualitative")


@pytest.mark.parametrize("column", ["question_id", "turns", "src_id", "multiturn"])
def test_other_schema_names_the_column(column: str, tmp_path: Path) -> None:
    rows = [{name: value for name, value in PLAIN.items() if name != column}]
    json_lines(tmp_path / "qualitative.jsonl", rows)
    with pytest.raises(UsageError, match=f"no column '{column}'"):
        prepare.read("qualitative", str(tmp_path))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([PLAIN, PLAIN], "is taken by"),
        ([{**PLAIN, "question_id": ""}], "question_id is ''"),
        ([{**PLAIN, "turns": []}], "turns are not a list of texts"),
        ([{**PLAIN, "turns": [None]}], "turns are not a list of texts"),
    ],
)
def test_published_rows_that_cannot_be_used_are_named(rows: list[dict[str, Any]], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        prepare.read("qualitative", str(publish(tmp_path, rows)))


def test_published_file_without_rows(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no rows"):
        prepare.read("qualitative", str(publish(tmp_path, [])))
