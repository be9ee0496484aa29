from typing import Any

import datasets
import huggingface_hub
import pytest
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, OfflineModeIsEnabled, RevisionNotFoundError

from spec_eval.errors import EnvironmentFault
from spec_eval.prompts import hub
from spec_eval.suite import DataSpec

REVISION = "deadbeef" * 5
DATA = DataSpec(hub="teas/tea", config="green", split="test", revision=REVISION, licence="MIT")


class Hub:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.download_error: Exception | None = None
        self.load_error: Exception | None = None
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.download)
        monkeypatch.setattr(datasets, "load_dataset", self.load)

    def download(self, *args: Any, **options: Any) -> str:
        self.calls.append(("download", args, options))
        if self.download_error is not None:
            raise self.download_error
        return "/snapshots/tea"

    def load(self, *args: Any, **options: Any) -> list[dict[str, Any]]:
        self.calls.append(("load", args, options))
        if self.load_error is not None:
            raise self.load_error
        return [{"id": "a", "question": "Why?"}, {"id": "b", "question": "How?"}]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Hub:
    return Hub(monkeypatch)


def built(kind: type[Exception], message: str) -> Exception:
    error = kind.__new__(kind, message)
    error.args = (message,)
    return error


def fault() -> str:
    with pytest.raises(EnvironmentFault) as caught:
        list(hub.read(DATA))
    message = str(caught.value)
    assert message.startswith("teas/tea@deadbeefdead: ")
    assert "\n" not in message
    return message


def test_snapshot_is_taken_at_the_pinned_revision_and_loaded_from_its_folder(fake: Hub) -> None:
    found = list(hub.read(DATA))
    assert fake.calls == [
        ("download", ("teas/tea",), {"repo_type": "dataset", "revision": REVISION, "allow_patterns": None}),
        ("load", ("/snapshots/tea", "green"), {"split": "test"}),
    ]
    assert [row for _, row in found] == [{"id": "a", "question": "Why?"}, {"id": "b", "question": "How?"}]
    assert [where for where, _ in found] == ["teas/tea@deadbeefdead: row 1", "teas/tea@deadbeefdead: row 2"]


def test_remote_code_is_trusted_only_when_told(fake: Hub) -> None:
    list(hub.read(DATA, trust_remote_code=True))
    assert fake.calls[1][2] == {"split": "test", "trust_remote_code": True}


@pytest.mark.parametrize("kind", [LocalEntryNotFoundError, OfflineModeIsEnabled, RevisionNotFoundError, TimeoutError])
def test_no_way_to_the_hub_names_the_local_remedy(fake: Hub, kind: type[Exception]) -> None:
    fake.download_error = built(kind, "Cannot find the snapshot\nand much more text")
    message = fault()
    assert "(Cannot find the snapshot)" in message
    assert message.endswith("give its rows with --data-dir")
    assert [name for name, _, _ in fake.calls] == ["download"]


def test_gated_set_names_its_own_remedy(fake: Hub) -> None:
    fake.download_error = built(GatedRepoError, "403 Client Error")
    message = fault()
    assert "gated" in message
    assert "HF_TOKEN" in message


@pytest.mark.parametrize("kind", [DatasetNotFoundError, DatasetGenerationError, ValueError, OSError])
def test_snapshot_that_cannot_be_loaded_is_an_environment_fault(fake: Hub, kind: type[Exception]) -> None:
    fake.load_error = built(kind, "An error occurred while generating the dataset")
    assert "An error occurred while generating the dataset" in fault()


def test_error_without_words_is_named_by_its_kind(fake: Hub) -> None:
    fake.download_error = OSError()
    assert "(OSError)" in fault()
