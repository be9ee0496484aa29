"""The sha256 of a drafter's weights: hashed here, the hub's own word, or a recipe's, and it says which."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SUFFIXES = (".safetensors", ".gguf")
# Drafters that look into the text, or are part of the target.
_WITHOUT = ("ngram", "suffix", "mtp", "none")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def told(model: str | None, recipe: Any) -> str:
    """In words. model: a hub name, or an absolute path here. recipe: its drafter table, or null.

    The hub names the files of a revision by their sha256, in its local cache too; nothing is downloaded.
    """
    about = recipe if isinstance(recipe, dict) else {}
    if str(about.get("algorithm", "")).startswith(_WITHOUT):
        return "none: this drafter has no weights of its own"
    if model is not None and Path(model).is_absolute() and (files := _files(Path(model))):
        return f"{_joined((path.name, _hashed(path)) for path in files)} (hashed here, when this report was made)"
    if model is not None and about.get("revision") and (found := _of_hub(model, str(about["revision"]))):
        return f"{_joined(found)} (the hub's, at the recipe's revision)"
    stated = about.get("weights_sha256") or about.get("sha256")
    return f"{stated} (from recipe, unverified)" if stated else "not known"


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(one for one in path.glob("*") if one.suffix in _SUFFIXES and one.is_file())


def _hashed(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _of_hub(model: str, revision: str) -> list[tuple[str, str]]:
    """(file, sha256) of the weights in the hub's cache at exactly that revision; a link there leads to its oid."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE) / f"models--{model.replace('/', '--')}" / "snapshots" / revision
    if not re.fullmatch(r"[0-9a-f]{40}", revision) or not folder.is_dir():
        return []
    found = [(path.name, path.resolve().name) for path in _files(folder)]
    return found if all(_SHA256.fullmatch(oid) for _, oid in found) else []


def _joined(found: Iterable[tuple[str, str]]) -> str:
    named = list(found)
    return named[0][1] if len(named) == 1 else ", ".join(f"{name} {digest}" for name, digest in named)
