"""What git says of a checkout, where there is one."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Checkout:
    """commit: checked out. changed: whether tracked files in the folder differ from it."""

    commit: str
    changed: bool


def checkout(folder: Path, file: str) -> Checkout | None:
    """Of the folder that tracks `file`; null where there is no git, or it does not know that file."""
    if _said(folder, "ls-files", "--error-unmatch", file) is None:
        return None
    commit = _said(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    return Checkout(commit, changed=bool(_said(folder, "status", "--porcelain", "--untracked-files=no", ".")))


def _said(folder: Path, *words: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    said = subprocess.run([git, "-C", str(folder), *words], capture_output=True, text=True, check=False)
    return said.stdout.strip() if said.returncode == 0 else None
