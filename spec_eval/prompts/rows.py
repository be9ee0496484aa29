"""Rows out of local files: JSON lines (plain or gzip) and parquet, as people really have them.

A byte-order mark, blank lines and any line end are read over. A line that cannot be read comes out as a Problem in
its place: whoever builds prompts refuses the file with all its problems at once, since a data set silently shortened
would change the figure.
"""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_eval import jsontext
from spec_eval.errors import EnvironmentFault, UsageError

Row = dict[str, Any]
SHOWN = 6


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no row here."""

    text: str


def find(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files of the first pattern under `folder` that matches any."""
    if not folder.is_dir():
        holds = patterns[0] if patterns else "the rows"
        raise EnvironmentFault(f"--data-dir {folder}: no such folder; give the folder that holds {holds}")
    if not patterns:
        raise EnvironmentFault(f"--data-dir {folder}: the suite names no local files (data.local); drop --data-dir")
    for pattern in patterns:
        if matches := sorted(path for path in folder.glob(pattern) if path.is_file()):
            return matches
    raise EnvironmentFault(f"--data-dir {folder}: none of {', '.join(patterns)} there; put the rows there or drop it")


def sha256(path: Path) -> str:
    """Of the file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read(paths: list[Path]) -> Iterator[tuple[str, Row | Problem]]:
    """(where, row) of every row of `paths` in order; `where` is what an error message names."""
    for path in paths:
        yield from _parquet(path) if path.suffix == ".parquet" else _json_lines(path)


def refuse(source: str, problems: list[str], remedy: str = "mend or remove these rows") -> None:
    """Raise one line that lists `problems`, if there are any."""
    if problems:
        shown = "; ".join(problems[:SHOWN])
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise UsageError(f"{source}: {shown}{more}; {remedy}")


def _json_lines(path: Path) -> Iterator[tuple[str, Row | Problem]]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for line in jsontext.lines(stream, path.name):
                yield line.where, Problem(line.problem) if isinstance(line, jsontext.Damaged) else line.value
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: {error}; copy the file again") from error


def _parquet(path: Path) -> Iterator[tuple[str, Row | Problem]]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        # A path would have to be UTF-8.
        with path.open("rb") as stream, pyarrow.parquet.ParquetFile(stream) as source:
            # Few rows at a time: one of them may be a million characters long.
            for batch in source.iter_batches(batch_size=8):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path.name}: row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: not readable parquet ({error}); copy the file again") from error
