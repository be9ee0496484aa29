"""Rows from the hub at a pinned revision.

The snapshot is downloaded by revision first and loaded from its folder after: given `revision=` while offline,
`load_dataset` returns whatever its cache holds (datasets 5.2).
"""

from collections.abc import Iterator
from typing import Any

from spec_eval.errors import EnvironmentFault
from spec_eval.prompts.rows import Row
from spec_eval.suite import DataSpec


def read(data: DataSpec, *, trust_remote_code: bool = False) -> Iterator[tuple[str, Row]]:
    """(where, row) of every row of the pinned split."""
    source = f"{data.hub}@{str(data.revision)[:12]}"
    for number, row in enumerate(_split(data, source, trust_remote_code), 1):
        yield f"{source}: row {number}", dict(row)


def _split(data: DataSpec, source: str, trust_remote_code: bool) -> Any:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

    options = {"trust_remote_code": True} if trust_remote_code else {}
    try:
        folder = snapshot_download(str(data.hub), repo_type="dataset", revision=data.revision)
        return load_dataset(folder, data.config, split=data.split, **options)
    except GatedRepoError as error:
        raise EnvironmentFault(f"{source}: gated; accept its terms on the hub and set HF_TOKEN") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, DatasetsError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise EnvironmentFault(
            f"{source}: cannot be loaded from the hub ({reason}); give its rows with --data-dir"
        ) from error
