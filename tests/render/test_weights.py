import hashlib
from pathlib import Path

import pytest

from spec_eval.render import weights

REVISION = "a" * 40
OID = "b" * 64


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache as it lies on disk: a blob named by its sha256, and a link to it in the revision's folder."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    home = tmp_path / "models--org--draft"
    (home / "blobs").mkdir(parents=True)
    (home / "blobs" / OID).write_bytes(b"weights")
    folder = home / "snapshots" / REVISION
    folder.mkdir(parents=True)
    (folder / "model.safetensors").symlink_to(home / "blobs" / OID)
    return home


def test_local_file_is_hashed(tmp_path: Path) -> None:
    path = tmp_path / "draft.gguf"
    path.write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    assert weights.told(str(path), None) == f"{digest} (hashed here, when this report was made)"


def test_each_file_of_a_local_folder_is_hashed(tmp_path: Path) -> None:
    for name in ("b.safetensors", "a.safetensors", "config.json"):
        (tmp_path / name).write_bytes(name.encode())
    a, b = (hashlib.sha256(f"{name}.safetensors".encode()).hexdigest() for name in "ab")
    assert weights.told(str(tmp_path), None).startswith(f"a.safetensors {a}, b.safetensors {b} (hashed")


def test_hub_names_its_files_by_their_hash_at_the_pinned_revision(cache: Path) -> None:
    assert weights.told("org/draft", {"revision": REVISION}) == f"{OID} (the hub's, at the recipe's revision)"


def test_other_revision_in_the_cache_is_not_taken(cache: Path) -> None:
    assert weights.told("org/draft", {"revision": "c" * 40}) == "not known"
    assert weights.told("org/draft", {"revision": "main"}) == "not known"
    assert weights.told("org/draft", None) == "not known"


def test_word_of_a_recipe_is_marked_as_such(cache: Path) -> None:
    assert weights.told("org/other", {"weights_sha256": "d" * 64}) == f"{'d' * 64} (from recipe, unverified)"


def test_drafter_without_weights_has_none() -> None:
    assert weights.told("ngram-simple", {"algorithm": "ngram-simple"}).startswith("none: ")
