"""requests.jsonl: appended while a run goes, read by everything after it."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from spec_eval import jsontext
from spec_eval.errors import UsageError
from spec_eval.records import SCHEMA_VERSION, RequestRecord, Unit


class RequestLog:
    """Appends records; each line is flushed before `append` returns, so a killed run keeps it."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("ab")
        self.lines = 0
        if _ends_torn(path):
            # A killed writer left half a line. It stays as it is; the next record begins on a line of its own.
            self._stream.write(b"\n")

    def append(self, record: RequestRecord) -> None:
        """One line."""
        self._stream.write(_encode(record) + b"\n")
        self._stream.flush()
        self.lines += 1

    def __enter__(self) -> "RequestLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()


@dataclass(frozen=True, slots=True)
class Records:
    """What a requests.jsonl says: one record a unit, in the order of the file.

    set_aside: notes on lines that could not be read. doubles: units measured more than once; the first success counts.
    lines: whole lines in the file.
    """

    records: tuple[RequestRecord, ...]
    set_aside: tuple[str, ...]
    doubles: tuple[Unit, ...]
    lines: int


def read_records(path: Path) -> Records:
    """Every unit's record. The first success of a unit wins over failures before it and successes after it.

    A torn or broken line is set aside and named, never mended: the file is only read.
    """
    kept: dict[Unit, RequestRecord] = {}
    aside: list[str] = []
    doubles: dict[Unit, None] = {}
    lines = 0
    if not path.is_file():
        return Records((), (), (), 0)
    for line in jsontext.read_lines(path):
        if isinstance(line, jsontext.Damaged):
            torn = f"{path.name}: torn last line set aside"
            aside.append(torn if line.torn else f"{line.where} set aside: {line.problem}")
            continue
        _check_version(line, path)
        try:
            record = RequestRecord.from_json(line.value)
        except ValueError as error:
            aside.append(f"{line.where} set aside: {error}")
            continue
        lines += 1
        held = kept.get(record.unit)
        if held is None or held.status != "ok":
            kept[record.unit] = record
        elif record.status == "ok":
            doubles[record.unit] = None
    return Records(tuple(kept.values()), tuple(aside), tuple(doubles), lines)


def _check_version(line: jsontext.Row, path: Path) -> None:
    version = line.value.get("schema_version")
    if isinstance(version, int | float) and not jsontext.is_version(version, SCHEMA_VERSION):
        # Not damage but another version's file: setting its lines aside one by one would hide a whole run.
        raise UsageError(
            f"{path}: line {line.number} has schema version {version}, this spec-eval reads {SCHEMA_VERSION}; "
            "use the version that wrote it"
        )


def _encode(record: RequestRecord) -> bytes:
    row = record.to_json()
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        # Half a surrogate pair in a text, or NaN in a counter: escaped and as a word they survive, in valid JSON.
        return json.dumps(_finite(row), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _ends_torn(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) != b"\n"
