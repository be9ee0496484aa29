"""Where the files shipped with spec-eval lie, installed or in a checkout."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """Folder `name` ("suites", "recipes", …): beside the package in a checkout, inside it in a wheel."""
    installed = _PACKAGE / "shipped" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
