"""A real cache of the hub, made by hand, read by a fresh interpreter that may not go online."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

PINNED = "1" * 40
OTHER = "2" * 40
ABSENT = "3" * 40

SUITE = """schema_version = 1
name = "tea"
title = "Tea"
[data]
hub = "teas/green"
split = "test"
revision = "{revision}"
{extra}
licence = "CC0-1.0"
[prompt]
id = "id"
category_name = "tea"
template = "{{question}}"
[sampling]
temperature = 0.0
max_tokens = 8
"""


@dataclass
class Cache:
    """home: as HF_HOME names it."""

    home: Path

    def put(self, revision: str, name: str, content: bytes) -> None:
        """A file as a download at `revision` leaves it."""
        repository = self.home / "hub" / "datasets--teas--green"
        blob = repository / "blobs" / f"{revision[:1]}-{name.replace('/', '-')}"
        path = repository / "snapshots" / revision / name
        for folder in (blob.parent, path.parent, repository / "refs"):
            folder.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        path.symlink_to(os.path.relpath(blob, path.parent))
        (repository / "refs" / "main").write_text(revision, encoding="utf-8")

    def run(self, suite: Path) -> "subprocess.CompletedProcess[str]":
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        environment |= {"HF_HOME": str(self.home), "HF_HUB_OFFLINE": "1"}
        argv = [sys.executable, "-m", "spec_eval", "run", str(suite), "--dry-run"]
        argv += ["--engine", "llamacpp", "--base-url", "http://127.0.0.1:1"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment, check=False)


def suite(folder: Path, revision: str, extra: str = "") -> Path:
    path = folder / "tea.toml"
    path.write_text(SUITE.format(revision=revision, extra=extra), encoding="utf-8")
    return path


def jsonl(word: str) -> bytes:
    return b"".join(json.dumps({"id": f"t{i}", "question": f"{word} {i}?"}).encode() + b"\n" for i in range(3))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """The pinned revision, and a newer one that refs/main names: what a load by name alone would return."""
    made = Cache(tmp_path / "home")
    card = b"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: test.jsonl\n---\n"
    made.put(PINNED, "README.md", card)
    made.put(PINNED, "test.jsonl", jsonl("Green"))
    table = pyarrow.table({"id": ["n0", "n1"], "question": ["New 0?", "New 1?"]})
    pyarrow.parquet.write_table(table, tmp_path / "part.parquet")
    made.put(OTHER, "deep/part.parquet", (tmp_path / "part.parquet").read_bytes())
    return made


def test_pinned_revision_is_loaded_from_the_cache(cache: Cache, tmp_path: Path) -> None:
    done = cache.run(suite(tmp_path, PINNED))
    assert done.returncode == 0
    assert done.stdout.startswith("3 requests in 3 conversations")
    assert "first: t0: 'Green 0?'" in done.stdout


def test_named_files_are_read_as_they_are(cache: Cache, tmp_path: Path) -> None:
    done = cache.run(suite(tmp_path, OTHER, 'hub_files = ["deep/part.parquet"]'))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 requests in 2 conversations")
    assert "first: n0: 'New 0?'" in done.stdout


def test_revision_that_is_not_there_is_never_replaced_by_one_that_is(cache: Cache, tmp_path: Path) -> None:
    done = cache.run(suite(tmp_path, ABSENT))
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("spec-eval: teas/green@333333333333: cannot be loaded from the hub")
    assert "--data-dir" in done.stderr
    assert done.stderr.count("\n") == 1
