"""One run folder: its files by name, written and read."""

import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from spec_eval import jsontext
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.records import Unit
from spec_eval.store.manifest import SCHEMA_VERSION, Manifest, SessionEnd
from spec_eval.store.parquet import write_parquet
from spec_eval.store.plan import Plan, Stored
from spec_eval.store.requests import Records, RequestLog, read_records

S = TypeVar("S", bound=Stored)
# Characters. Names of 255 bytes are the usual limit, of 143 on some encrypted disks; time and number come on top.
_LONGEST_LABEL = 100


class Folder:
    """What the folders of all kinds of runs have."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def server_log(self) -> Path:
        """Output of a server that we started."""
        return self.path / "server.log"

    @property
    def is_whole(self) -> bool:
        """Whether everything planned was driven to its end: the manifest is written last."""
        return (self.path / "manifest.json").is_file()

    def write_report(self, text: str) -> None:
        """report.md: a convenience, made anew by every run and resume."""
        write_text(self.path / "report.md", text)


class RunFolder(Folder):
    """The folder of one run of requests."""

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run of requests; UsageError where there is none, or one of windows."""
        if kind_of(path) is not None:
            raise UsageError(f"{path}: a throughput run; `report` and `plot` read it, without others of requests")
        return cls(path)

    def write_plan(self, plan: Plan) -> None:
        """Before anything else."""
        write_model(self.path / "plan.json", plan)

    def plan(self) -> Plan:
        """As written."""
        return read_model(self.path / "plan.json", Plan)

    def write_manifest(self, manifest: Manifest) -> None:
        """After everything else: parquet first, so that a whole run has it."""
        write_parquet(self.records().records, self.path / "requests.parquet")
        write_model(self.path / "manifest.json", manifest)

    def manifest(self) -> Manifest | None:
        """Null while the run is not whole."""
        return read_model(self.path / "manifest.json", Manifest) if self.is_whole else None

    def log(self) -> RequestLog:
        """For appending."""
        return RequestLog(self.path / "requests.jsonl")

    def records(self) -> Records:
        """Every unit's record so far."""
        return read_records(self.path / "requests.jsonl")

    def write_scrape(self, session: int, moment: str, text: str) -> None:
        """metrics-before.prom and metrics-after.prom; a later session of the same run carries its number."""
        suffix = "" if session == 1 else f".{session}"
        comment = "# synthetic\n" if self.plan().synthetic else ""
        (self.path / f"metrics-{moment}{suffix}.prom").write_text(comment + text, encoding="utf-8")

    def write_grades(self, lines: Iterable[dict[str, Any]]) -> None:
        """grades.jsonl, derived; no file where nothing is graded."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        if text:
            partial = self.path / "grades.jsonl.partial"
            write_text(partial, text)
            partial.replace(self.path / "grades.jsonl")

    def grades(self) -> dict[Unit, dict[str, Any]]:
        """By unit."""
        path = self.path / "grades.jsonl"
        try:
            rows = [_whole(line) for line in jsontext.read_lines(path)] if path.is_file() else []
            return {(row["cell_id"], row["prompt_id"], row["turn"], row["repeat"]): row for row in rows}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}: {error}; the file is damaged, without it grades are left out") from error

    def discard_unused(self) -> None:
        """Remove the folder of a run that never sent a request; one that holds anything measured stays."""
        if not (self.path / "sessions.jsonl").exists() and not (self.path / "requests.jsonl").exists():
            shutil.rmtree(self.path)

    def settings(self) -> str | None:
        """settings_sha256 that the first session began with, or None before it."""
        found = (line.get("settings_sha256") for line in self._session_lines() if line.get("event") == "start")
        return next(found, None)

    def first_server(self) -> dict[str, Any] | None:
        """What the server said of itself when the first session that kept it began; None before it."""
        found = (line.get("server") for line in self._session_lines() if line.get("event") == "start")
        return next((facts for facts in found if isinstance(facts, dict)), None)

    def start_session(
        self, started: str, server: dict[str, Any] | None = None, server_changes: Sequence[str] = ()
    ) -> int:
        """Number of the session that begins now, from 1.

        server: what it says of itself. server_changes: what of that is other than in the first session, in words.
        """
        # Until this session has ended in order, the run is not whole, whatever an earlier one found.
        for name in ("manifest.json", "requests.parquet"):
            (self.path / name).unlink(missing_ok=True)
        number = 1 + self.sessions_started()
        plan = self.plan()
        synthetic = {"synthetic": True} if plan.synthetic else {}
        start = {"schema_version": SCHEMA_VERSION, "event": "start", "session": number, "started": started}
        start["settings_sha256"] = plan.settings_sha256
        about = {"server": server, "server_changes": list(server_changes)} if server is not None else {}
        append_line(self.path / "sessions.jsonl", start | synthetic | about)
        return number

    def end_session(self, end: SessionEnd) -> None:
        """A session that is killed leaves its start only."""
        append_line(self.path / "sessions.jsonl", {"event": "end", **end.model_dump(mode="json")})

    def session_ends(self) -> tuple[SessionEnd, ...]:
        """Of the sessions that ended in an orderly way."""
        ends = (line for line in self._session_lines() if line.pop("event", None) == "end")
        try:
            return tuple(SessionEnd.model_validate(line) for line in ends)
        except ValidationError as error:
            raise damaged(self.path / "sessions.jsonl", error) from error

    def sessions_started(self) -> int:
        """Including those that were killed."""
        return sum(1 for line in self._session_lines() if line.get("event") == "start")

    def _session_lines(self) -> list[dict[str, Any]]:
        path = self.path / "sessions.jsonl"
        lines = jsontext.read_lines(path) if path.is_file() else ()
        return [line.value for line in lines if isinstance(line, jsontext.Row)]  # else torn by a kill


def _whole(line: jsontext.Row | jsontext.Damaged) -> dict[str, Any]:
    if isinstance(line, jsontext.Damaged):
        raise ValueError(f"line {line.number}: {line.problem}")
    return line.value


def kind_of(path: Path) -> str | None:
    """Of the run in the folder `path`: "throughput", or null for one of requests; UsageError where there is none."""
    try:
        there = (path / "plan.json").is_file()
    except OSError:  # a name that no file can have
        there = False
    if not there:
        raise UsageError(f"{path}: no run folder (no plan.json in it); give the folder that `spec-eval run` printed")
    kind = _content(path / "plan.json").get("kind")
    return None if kind is None else str(kind)


def append_line(path: Path, line: dict[str, Any]) -> None:
    """One line, on the disk before this returns. Half a line that a kill left stays, on a line of its own."""
    torn = path.is_file() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as stream:
        stream.write(("\n" if torn else "") + json.dumps(line, allow_nan=False) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def write_model(path: Path, model: Stored) -> None:
    """Whole or not at all: a reader never sees half a file."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8") as stream:
        json.dump(model.model_dump(mode="json"), stream, indent=2, allow_nan=False)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)


def read_model(path: Path, model: type[S]) -> S:
    """UsageError where the file is damaged, or of another schema version."""
    content = _content(path)
    version = content.get("schema_version")
    if not jsontext.is_version(version, 1):
        raise UsageError(f"{path}: schema version {version!r}, this spec-eval reads 1; use the version that wrote it")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise damaged(path, error) from error


def _content(path: Path) -> dict[str, Any]:
    try:
        content = jsontext.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}; the file is damaged") from error
    return content if isinstance(content, dict) else {}


def damaged(where: Path | str, error: ValidationError) -> UsageError:
    """What the file, or one line of it, lacks."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return UsageError(f"{where}: {place}: {first['msg']}; the file is damaged")


def write_text(path: Path, text: str) -> None:
    """A text file; UsageError where it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); give another file") from error


def new_run_folder(results: Path, label: str, now: datetime | None = None) -> RunFolder:
    """A fresh folder under `results`, named by time and label; EnvironmentFault where it cannot be written."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
    name = f"{stamp}-{re.sub(r'[^A-Za-z0-9._-]+', '-', label).strip('-')[:_LONGEST_LABEL].rstrip('-')}"
    try:
        results.mkdir(parents=True, exist_ok=True)
        for attempt in range(100):
            path = results / (name if attempt == 0 else f"{name}.{attempt + 1}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return RunFolder(path)
    except OSError as error:
        raise EnvironmentFault(
            f"{results}: cannot be written ({error.strerror}); give another folder with --out"
        ) from error
    raise EnvironmentFault(f"{results}: a hundred runs of this second; give another folder with --out")
