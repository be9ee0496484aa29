import subprocess
from pathlib import Path

import pytest

from spec_eval import git


def said(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    said(tmp_path, "init", "-q")
    (tmp_path / "kept.py").write_text("a = 1\n", encoding="utf-8")
    said(tmp_path, "add", ".")
    said(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_checkout_tells_its_commit_and_whether_it_was_changed_since(folder: Path) -> None:
    head = said(folder, "rev-parse", "HEAD")
    assert git.checkout(folder, "kept.py") == git.Checkout(head, changed=False)
    (folder / "kept.py").write_text("a = 2\n", encoding="utf-8")
    assert git.checkout(folder, "kept.py") == git.Checkout(head, changed=True)


def test_file_that_git_does_not_know_belongs_to_no_checkout(folder: Path, tmp_path: Path) -> None:
    (folder / "new.py").write_text("", encoding="utf-8")
    assert git.checkout(folder, "new.py") is None


def test_without_git_there_is_no_checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert git.checkout(folder, "kept.py") is None
