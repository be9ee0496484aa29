"""Rows from the hub at a pinned revision.

The snapshot is downloaded by revision first and loaded from its folder after: given `revision=` while offline,
`load_dataset` returns whatever its cache holds (datasets 5.2).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spec_eval.errors import EnvironmentFault
from spec_eval.prompts import rows
from spec_eval.prompts.rows import Problem, Row
from spec_eval.suite import DataSpec


def read(data: DataSpec, *, trust_remote_code: bool = False) -> Iterator[tuple[str, Row | Problem]]:
    """(where, row) of every row of the pinned split; files named in the suite are read as they are."""
    source = f"{data.hub}@{str(data.revision)[:12]}"
    folder = snapshot(data)
    if data.hub_files:
        yield from rows.read([folder / name for name in data.hub_files])
        return
    for number, row in enumerate(_split(data, folder, source, trust_remote_code), 1):
        yield f"{source}: row {number}", dict(row)


def snapshot(data: DataSpec) -> Path:
    """The repository's folder at the pinned revision, downloaded where it is not here yet.

    A revision that is not in the cache is an EnvironmentFault while offline: another one is never taken instead.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError

    _hush()
    source = f"{data.hub}@{str(data.revision)[:12]}"
    patterns = list(data.hub_files) or None
    try:
        return Path(
            snapshot_download(str(data.hub), repo_type="dataset", revision=data.revision, allow_patterns=patterns)
        )
    except GatedRepoError as error:
        raise EnvironmentFault(f"{source}: gated; accept its terms on the hub and set HF_TOKEN") from error
    except Exception as error:  # whatever the HTTP client of its day raises
        raise _unreachable(source, error) from error


def _hush() -> None:
    """Its retries are for its log; a failure is one line of ours."""
    import logging

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)


def is_here(data: DataSpec) -> bool:
    """Whether the pinned revision lies in the hub's local cache, whole enough to be loaded."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_CACHE

    if data.hub_files:
        found = [
            try_to_load_from_cache(str(data.hub), f, revision=data.revision, repo_type="dataset")
            for f in data.hub_files
        ]
        return all(isinstance(path, str) for path in found)
    name = f"datasets--{str(data.hub).replace('/', '--')}"
    return (Path(HF_HUB_CACHE) / name / "snapshots" / str(data.revision)).is_dir()


def _split(data: DataSpec, folder: Path, source: str, trust_remote_code: bool) -> Any:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    options = {"trust_remote_code": True} if trust_remote_code else {}
    try:
        return load_dataset(str(folder), data.config, split=data.split, **options)
    except (DatasetsError, OSError, ValueError) as error:
        raise _unreachable(source, error) from error


def _unreachable(source: str, error: Exception) -> EnvironmentFault:
    reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
    return EnvironmentFault(f"{source}: cannot be loaded from the hub ({reason}); give its rows with --data-dir")
