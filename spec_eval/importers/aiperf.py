"""AIPerf's artifact folders, read as version 0.13 writes them: of one run, or of a sweep with several below it.

Where the raw records were exported, every answer is put together again from its chunks and read like one of our own.
The records alone hold vLLM's counters, and nothing of other engines. Only the profiling phase counts: the warm-up's
records stand in the same files. What the measuring window cut off is in none of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spec_eval import jsontext
from spec_eval.engines import Engine
from spec_eval.errors import UsageError
from spec_eval.importers import aiperf_records, answers
from spec_eval.importers.aiperf_records import RAW, RECORDS, SAMPLING, Reader, table, tables
from spec_eval.importers.answers import Imported
from spec_eval.prompts import rows
from spec_eval.prompts.build import NO_CATEGORY
from spec_eval.records import is_count
from spec_eval.store import Cell
from spec_eval.suite import Sampling

VERSION = "0.13"
SUMMARY = "profile_export_aiperf.json"


def read(path: Path, engine: Engine, *, k: int | None = None, nominal_drafts: bool = False) -> Imported:
    """The run in the folder `path`, or every run below it, each a cell; UsageError where there is none."""
    reader = Reader(engine, k, nominal_drafts)
    folders = _runs(path)
    aside: list[str] = []
    runs = [_Run(folder, path, reader, aside) for folder in folders]
    notes = list(dict.fromkeys(note for run in runs for note in run.notes))
    files = {name: digest for run in runs for name, digest in run.files.items()}
    cells = tuple(run.cell(files, notes, alone=len(runs) == 1) for run in runs)
    records = tuple(replace(r, cell_id=c.cell_id) for c, run in zip(cells, runs, strict=True) for r in run.records)
    if not records:
        raise UsageError(f"{path}: no request of the profiling phase in it; the run measured nothing")
    models, versions = ({getattr(run, name) for run in runs} for name in ("model", "version"))
    return Imported(
        cells=cells,
        records=records,
        set_aside=tuple(aside),
        model=models.pop() if len(models) == 1 else None,
        synthetic=answers.synthetic(path, [one for run in runs for one in run.answered]),
        tool=f"aiperf {'/'.join(sorted(str(v or '?') for v in versions))}",
    )


def _runs(path: Path) -> list[Path]:
    wanted = f"give the artifact folder of an AIPerf run, which holds {RECORDS}"
    if not path.is_dir():
        raise UsageError(f"{path}: {'not a folder' if path.exists() else 'no such folder'}; {wanted}")
    if any((path / name).is_file() for name in (RECORDS, RAW)):
        return [path]
    found = sorted({file.parent for name in (RECORDS, RAW) for file in path.rglob(name)})
    if not found:
        hint = "; only its summary is there: run aiperf with --export-level records or raw"
        raise UsageError(f"{path}: no AIPerf run in it; {wanted}{hint if (path / SUMMARY).is_file() else ''}")
    return found


class _Run:
    """One run: its settings, as far as it tells them, and its records."""

    def __init__(self, folder: Path, root: Path, reader: Reader, aside: list[str]) -> None:
        self.name = folder.relative_to(root).as_posix()
        self.summary = _summary(folder / SUMMARY)
        self.config = table(self.summary.get("input_config"))
        version = self.summary.get("aiperf_version")
        self.version = version if isinstance(version, str) else None
        self.model = _only(_text(item.get("name")) for item in tables(table(self.config.get("models")).get("items")))
        present = [path for path in (folder / RECORDS, folder / RAW, folder / SUMMARY) if path.is_file()]
        self.files = {path.relative_to(root).as_posix(): rows.sha256(path) for path in present}
        named = _text(next(iter(tables(self.config.get("datasets"))), {}).get("path"))
        self.dataset = Path(named).stem if named else folder.resolve().name
        found = aiperf_records.records(aiperf_records.entries(folder, aside), self.dataset, reader)
        self.asked = [one.asked for one in found if one.asked is not None]
        self.answered = [one.answered for one in found]
        self.records = [one.record for one in self.answered]
        self.notes = list(self._notes(sum(one.differs for one in found)))

    def _notes(self, differ: int) -> Iterable[str]:
        if self.version is not None and not f"{self.version}.".startswith(f"{VERSION}."):
            yield f"written by AIPerf {self.version}, read as {VERSION} writes"
        if differ:
            yield f"{differ} records of AIPerf have other counters than their raw answers, which count here"
        if any(phase.get("grace_period") == 0 and phase.get("duration") for phase in self._profiling()):
            yield "AIPerf drops what its window cuts off (grace period 0): long answers are missing"

    def _profiling(self) -> list[dict[str, Any]]:
        return [phase for phase in tables(self.config.get("phases")) if phase.get("kind") == "profiling"]

    def cell(self, files: Mapping[str, str], notes: Sequence[str], *, alone: bool) -> Cell:
        """Each prompt with the number of times that it was asked."""
        asked: dict[str, int] = {}
        turns: dict[str, int] = {}
        for record in self.records:
            asked[record.prompt_id] = max(asked.get(record.prompt_id, 0), record.repeat + 1)
            turns[record.prompt_id] = max(turns.get(record.prompt_id, 0), record.turn + 1)
        repeats = min(asked.values()) if len(set(asked.values())) == 1 else 1
        place = self.name.removeprefix("profile_runs/")
        concurrency = _only(_plain(phase.get("concurrency")) for phase in self._profiling())
        return Cell(
            cell_id=self.dataset if alone else self.name,
            dataset=self.dataset,
            title=self.dataset if alone else f"{self.dataset}, {place}",
            rows="cell",
            sampling=self._sampling(),
            concurrency=concurrency if is_count(concurrency) and concurrency else None,
            repeats=repeats,
            repeats_of={prompt: n for prompt, n in asked.items() if n != repeats},
            prompts=answers.prompt_ref(
                "AIPerf", files, [(prompt, NO_CATEGORY, turns[prompt]) for prompt in asked], notes
            ),
        )

    def _sampling(self) -> Sampling:
        """As every request had it, or as AIPerf was told; null where neither says so."""
        extra = table(table(self.config.get("endpoint")).get("extra"))
        told = self.asked or [extra]
        fields: dict[str, Any] = {name: _only(_plain(one.get(name)) for one in told) for name in SAMPLING}
        limits = (one.get("max_completion_tokens", one.get("max_tokens")) for one in told)
        fields["max_tokens"] = _only(map(_plain, limits))
        fields["thinking"] = _only(
            _plain(table(one.get("chat_template_kwargs")).get("enable_thinking")) for one in told
        )
        return Sampling(**{name: value for name, value in fields.items() if _fits(name, value)})


def _summary(path: Path) -> dict[str, Any]:
    """Empty where there is none: AIPerf writes none where every request failed."""
    if not path.is_file():
        return {}
    try:
        found = jsontext.loads(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error}); remove it to import the records without settings") from error
    return table(found)


def _plain(value: object) -> Any:
    """A scalar, or null."""
    return value if isinstance(value, bool | int | float) else None


def _only(values: Iterable[Any]) -> Any:
    """The value that all share, or null."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _fits(name: str, value: object) -> bool:
    try:
        Sampling(**{name: value})  # type: ignore[arg-type]
    except ValidationError:
        return False
    return True


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
