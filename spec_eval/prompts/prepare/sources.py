"""Where a source's files come from: a folder of the user's, the hub, or GitHub for the one that lies there."""

import http.client
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spec_eval.errors import EnvironmentFault
from spec_eval.prompts import hub
from spec_eval.prompts.prepare.recipes import Group
from spec_eval.suite import DataSpec

Origin = Literal["local", "hub", "github"]
_TIMEOUT = 60.0  # seconds


class OutOfReach(Exception):  # counted with the rows that wait for it
    """The source's files are not to be had."""

    def __init__(self, reason: str, *, gated: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.gated = gated


@dataclass(frozen=True, slots=True)
class Files:
    """In reading order, named as in their repository. `revision` is null for local files: nothing proves theirs."""

    origin: Origin
    revision: str | None
    folder: Path
    paths: list[Path]


def find(group: Group, sources: Path | None, scratch: Path) -> Files:
    """The group's files. With `sources` nothing is fetched: they lie under owner__name there, or nowhere."""
    if sources is not None:
        folder = sources / group.name.replace("/", "__")
        if not folder.is_dir():
            raise OutOfReach(f"no folder {folder.name} in --sources")
        return Files("local", None, folder, _matches(folder, group))
    if group.revision is None:
        raise OutOfReach("its address names no revision")
    if not group.recipe.on_hub:
        folder = scratch / group.name / group.revision
        return Files("github", group.revision, folder, _from_github(group, folder))
    folder = _from_hub(group)
    return Files("hub", group.revision, folder, _matches(folder, group))


def _matches(folder: Path, group: Group) -> list[Path]:
    paths = []
    for pattern in group.files:
        matches = sorted(path for path in folder.glob(pattern) if path.is_file())
        if not matches:
            raise OutOfReach(f"no {pattern} in {folder.name}")
        paths += matches
    return paths


def _from_hub(group: Group) -> Path:
    from huggingface_hub.errors import GatedRepoError

    data = DataSpec(hub=group.name, split="test", revision=group.revision, hub_files=group.files, licence="")
    try:
        return hub.snapshot(data)
    except EnvironmentFault as error:
        cause = error.__cause__
        lines = str(cause).strip().splitlines()
        raise OutOfReach(
            lines[0][:160] if lines else type(cause).__name__, gated=isinstance(cause, GatedRepoError)
        ) from error


def _from_github(group: Group, folder: Path) -> list[Path]:
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        raise OutOfReach("offline: HF_HUB_OFFLINE is set")
    paths = []
    for name in group.files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        address = f"https://raw.githubusercontent.com/{group.name}/{group.revision}/{name}"
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT) as reply:  # the scheme is ours
                path.write_bytes(reply.read())
        except (OSError, http.client.HTTPException) as error:
            raise OutOfReach(str(error) or type(error).__name__) from error
        paths.append(path)
    return paths
