"""Rows out of local files: JSON lines (plain or gzip) and parquet, as people really have them.

A byte-order mark, blank lines and any line end are read over. What cannot be read is refused with file and line,
all of it at once: a data set silently shortened would change the figure.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spec_eval.errors import EnvironmentFault, UsageError

Row = dict[str, Any]
SHOWN = 5


def find(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files of the first pattern under `folder` that matches any."""
    if not patterns:
        raise EnvironmentFault(f"--data-dir {folder}: the suite names no local files (data.local); drop it")
    if not folder.is_dir():
        raise EnvironmentFault(f"--data-dir {folder}: no such folder; give the folder that holds {patterns[0]}")
    for pattern in patterns:
        if matches := sorted(path for path in folder.glob(pattern) if path.is_file()):
            return matches
    raise EnvironmentFault(f"--data-dir {folder}: none of {', '.join(patterns)} there; put the rows there or drop it")


def sha256(path: Path) -> str:
    """Of the file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read(paths: list[Path]) -> Iterator[tuple[str, Row]]:
    """(where, row) of every row of `paths` in order; `where` is what an error message names."""
    for path in paths:
        yield from _parquet(path) if path.suffix == ".parquet" else _json_lines(path)


def refuse(path_or_source: str, problems: list[str]) -> None:
    """Raise one line that lists `problems`, if there are any."""
    if problems:
        shown = "; ".join(problems[:SHOWN])
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise UsageError(f"{path_or_source}: {shown}{more}; mend or remove these rows")


def _json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    problems: list[str] = []
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                text = line.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else line.strip()
                if not text:
                    continue
                row, problem = _parse(text)
                if problem is None:
                    yield f"{path.name}: line {number}", row
                else:
                    problems.append(f"line {number}: {problem}")
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: {error}; copy the file again") from error
    refuse(str(path), problems)


def _parse(line: bytes) -> tuple[Row, str | None]:
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return {}, f"not UTF-8 at byte {error.start + 1}"
    except json.JSONDecodeError as error:
        return {}, f"not JSON ({error.msg} at column {error.colno})"
    return (row, None) if isinstance(row, dict) else ({}, "not a JSON object")


def _parquet(path: Path) -> Iterator[tuple[str, Row]]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as source:
            for batch in source.iter_batches(batch_size=16):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path.name}: row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: not readable parquet ({error}); copy the file again") from error
