import hashlib
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError

from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import prepare
from tests.prompts.prepare.made_up import (
    ARTICLE,
    HLE,
    HUB,
    MASK,
    MT101,
    OPUS,
    PLAIN,
    RESOLVED,
    REVISION,
    at,
    fault,
    json_lines,
    lines,
    made,
    parquet,
    sidecar,
)


class Hub:
    """Hands out folders of made-up sources as if they were snapshots."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, str, list[str]]] = []
        self.error: Exception | None = None

    def download(self, name: str, *, repo_type: str, revision: str, allow_patterns: list[str]) -> str:
        assert repo_type == "dataset"
        self.asked.append((name, revision, allow_patterns))
        if self.error is not None:
            raise self.error
        return str(self.folder / name.replace("/", "__"))


@pytest.fixture
def fake_hub(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(made_up)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.download)
    return hub


def test_hub_is_asked_for_few_files_at_the_revision_of_the_address(tmp_path: Path, fake_hub: Hub) -> None:
    unpinned = {**OPUS, "source": f"{HUB}/Helsinki-NLP/opus-100"}
    path = made([ARTICLE, unpinned], tmp_path)
    assert [r["turns"] for r in lines(path)] == [RESOLVED[1], RESOLVED[6]]
    assert fake_hub.asked == [
        ("abisee/cnn_dailymail", REVISION, ["3.0.0/test-*.parquet"]),
        ("Helsinki-NLP/opus-100", "805090dc28bf78897da9641cdf08b61287580df9", ["de-en/test-*.parquet"]),
    ]
    assert [(one["from"], one["revision"][:6]) for one in sidecar(path)["sources"]] == [
        ("hub", "ababab"),
        ("hub", "805090"),
    ]


def test_address_without_a_revision_is_never_taken_from_the_newest(tmp_path: Path, fake_hub: Hub) -> None:
    message = fault([{**ARTICLE, "source": at("abisee/cnn_dailymail", "main")}], tmp_path, prepare.StillMasked)
    assert "its address names no revision" in message
    assert fake_hub.asked == []


def test_hub_out_of_reach_is_a_count_and_no_traceback(tmp_path: Path, fake_hub: Hub) -> None:
    fake_hub.error = LocalEntryNotFoundError("Cannot find the files\nand more")
    message = fault([ARTICLE, PLAIN], tmp_path, prepare.StillMasked)
    assert "1 of 2 rows wait for their texts: 1 of abisee/cnn_dailymail (not to be had: Cannot find" in message
    assert "--sources" in message


def test_closed_gate_of_the_hub_is_told_from_no_way_to_it(tmp_path: Path, fake_hub: Hub) -> None:
    gate = GatedRepoError.__new__(GatedRepoError, "403")
    gate.args = ("403 Client Error",)
    fake_hub.error = gate
    message = fault([ARTICLE], tmp_path, prepare.StillMasked)
    assert "1 of abisee/cnn_dailymail (gated: accept its terms on the hub and set HF_TOKEN)" in message


class Reply:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def __enter__(self) -> "Reply":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def read(self) -> bytes:
        return self.body


def test_mt_bench_101_comes_from_the_commit_of_its_address(
    tmp_path: Path, made_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    body = (made_up / "mtbench101__mt-bench-101" / "data" / "subjective" / "mtbench101.jsonl").read_bytes()

    def urlopen(address: str, *, timeout: float) -> Reply:
        assert timeout > 0
        asked.append(address)
        return Reply(body)

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    path = made([MT101], tmp_path)
    assert lines(path)[0]["turns"] == RESOLVED[5]
    assert asked == [MT101["source"]]
    (one,) = sidecar(path)["sources"]
    assert (one["from"], one["revision"]) == ("github", REVISION)
    assert one["files"] == {"data/subjective/mtbench101.jsonl": hashlib.sha256(body).hexdigest()}


@pytest.mark.parametrize("offline", [True, False])
def test_github_out_of_reach_is_a_count_too(tmp_path: Path, offline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def urlopen(_address: str, **_: Any) -> Reply:
        raise OSError("no route")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    message = fault([MT101], tmp_path, prepare.StillMasked)
    assert f"1 of mtbench101/mt-bench-101 (not to be had: {'offline' if offline else 'no route'}" in message


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({**HLE, "src_id": "2" * 24}, "no record '222222222222222222222222' in test-00000"),
        ({**MT101, "src_id": "mtbench_101_2"}, "no record 2 in mtbench101.jsonl"),
        ({**OPUS, "src_id": "opus-100_1"}, "src_id 'opus-100_1' names no record"),
        ({**OPUS, "src_id": "opus-100_../../x_1"}, "names no record"),
        ({**MT101, "src_id": None}, "src_id None names no record"),
        ({**ARTICLE, "turns": [MASK]}, "no single template"),
        ({**ARTICLE, "turns": [*ARTICLE["turns"], "More?"]}, "no single template"),
        ({**ARTICLE, "turns": [f"{MASK}\n\n{{article.__class__}}"]}, "nothing of its record fills {article.__class__}"),
        ({**ARTICLE, "turns": [f"{MASK}\n\n{{article!r}}"]}, "fills {article}"),
        ({**ARTICLE, "turns": [f"{MASK}\n\n{{story}}"]}, "fills {story}"),
        ({**ARTICLE, "turns": [f"{MASK}\n\n{{article"]}, "its template cannot be read"),
    ],
)
def test_row_that_does_not_fit_its_source_is_named(
    bad: dict[str, Any], says: str, tmp_path: Path, made_up: Path
) -> None:
    message = fault([PLAIN, bad], tmp_path, UsageError, sources_dir=made_up)
    assert message.startswith(f"qualitative: row 2 ({bad['question_id']}, ")
    assert says in message


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"history": []}, "holds no turns"),
        ({"history": [{"user": " "}]}, "a turn without text"),
        ({"history": [{"bot": "Hi"}]}, "of another shape"),
        ({"history": None}, "of another shape"),
        ({"history": [{"user": "\ud83d"}]}, "cannot be written as UTF-8"),
        ({"story": []}, "no column 'history'"),
        ({"history": [{"user": f"So: {MASK}"}]}, "a placeholder is left"),
    ],
)
def test_record_of_another_shape_is_refused(record: dict[str, Any], says: str, tmp_path: Path, made_up: Path) -> None:
    json_lines(made_up / "mtbench101__mt-bench-101" / "data" / "subjective" / "mtbench101.jsonl", [record])
    with pytest.raises((UsageError, EnvironmentFault), match=says):
        made([{**MT101, "src_id": "x_0"}], tmp_path, sources_dir=made_up)
    assert list((tmp_path / "out").iterdir()) == []


def test_damaged_source_is_named(tmp_path: Path, made_up: Path) -> None:
    path = made_up / "cais__hle" / "data" / "test-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:100])
    assert "not readable parquet" in fault([HLE], tmp_path, UsageError, sources_dir=made_up)


def test_source_of_another_schema_is_named(tmp_path: Path, made_up: Path) -> None:
    parquet(made_up / "cais__hle" / "data" / "test-00000-of-00001.parquet", [{"id": "0" * 24, "text": "?"}])
    assert "no column 'question'" in fault([HLE], tmp_path, UsageError, sources_dir=made_up)


def test_first_of_two_records_of_one_id_is_taken(tmp_path: Path, made_up: Path) -> None:
    parquet(
        made_up / "cais__hle" / "data" / "test-00000-of-00001.parquet",
        [{"id": "0" * 24, "question": "First?"}, {"id": "0" * 24, "question": "Second?"}],
    )
    assert lines(made([HLE], tmp_path, sources_dir=made_up))[0]["turns"] == ["First?"]
