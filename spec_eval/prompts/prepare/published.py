"""One config as published: from a folder, or from the hub at a pinned revision."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spec_eval import suite
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import hub, rows
from spec_eval.prompts.load import is_standin
from spec_eval.prompts.rows import Problem, Row
from spec_eval.prompts.speed_bench import PLACEHOLDERS
from spec_eval.suite import DataSpec

CONFIGS = ("qualitative", "throughput_1k", "throughput_2k", "throughput_8k", "throughput_16k", "throughput_32k")
COLUMNS = ("question_id", "category", "sub_category", "turns", "source", "src_id", "difficulty", "multiturn")
_ON_HUB = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{7,40}")


@dataclass(frozen=True, slots=True)
class Published:
    """The rows in their order; `files` are the local ones by SHA-256, `revision` is the hub's."""

    config: str
    rows: list[Row]
    source: str
    revision: str | None
    files: dict[str, str]
    standin: bool

    @property
    def waiting(self) -> list[int]:
        """Numbers of the rows that still hold a placeholder, from 0."""
        return [number for number, row in enumerate(self.rows) if waits(row["turns"])]


def data_of(config: str) -> DataSpec:
    """What the shipped suite of `config` says about its data."""
    return suite.find(f"speed-bench-{config.replace('_', '-')}").simple.data


def waits(turns: list[str]) -> bool:
    """Whether a placeholder stands at the start of a turn, or anywhere in it."""
    return any(turn.startswith(PLACEHOLDERS) or PLACEHOLDERS[0] in turn for turn in turns)


def read(config: str, where: str | None = None) -> Published:
    """Config `config` out of folder or hub set `where`; null: the hub at the suite's revision.

    EnvironmentFault where it is not to be had, UsageError where it is not in the published shape.
    """
    data = data_of(config)
    if where is not None and Path(where).is_dir():
        return _local(config, Path(where), data)
    if where is not None and where != data.hub:
        if not _ON_HUB.fullmatch(where):
            raise EnvironmentFault(
                f"--published {where}: no such folder; give one, or a hub data set as owner/name@revision"
            )
        name, _, revision = where.partition("@")
        data = data.model_copy(update={"hub": name, "revision": revision})
    try:
        found = _checked(hub.read(data), f"{data.hub} {config}")
    except EnvironmentFault as error:
        raise EnvironmentFault(str(error).replace("--data-dir", "--published")) from error
    return Published(config, found, str(data.hub), data.revision, {}, standin=False)


def _local(config: str, folder: Path, data: DataSpec) -> Published:
    for pattern in data.local:
        if paths := sorted(path for path in folder.glob(pattern) if path.is_file()):
            break
    else:
        raise EnvironmentFault(
            f"--published {folder}: none of {', '.join(data.local)} there; give the folder of the published files"
        )
    files = {path.relative_to(folder).as_posix(): rows.sha256(path) for path in paths}
    found = _checked(rows.read(paths), str(folder))
    return Published(config, found, folder.resolve().name, None, files, is_standin(paths, folder))


def _checked(found: Iterable[tuple[str, Row | Problem]], source: str) -> list[Row]:
    """All rows, each in the published shape and under an id of its own."""
    good: list[Row] = []
    problems: list[str] = []
    seen: dict[str, str] = {}
    for where, row in found:
        if isinstance(row, Problem):
            problems.append(f"{where}: {row.text}")
            continue
        if missing := [name for name in COLUMNS if name not in row]:
            raise UsageError(f"{where}: no column {missing[0]!r}; give SPEED-Bench's rows as published")
        name, turns = row["question_id"], row["turns"]
        if not isinstance(name, str) or not name:
            problems.append(f"{where}: question_id is {name!r}")
        elif name in seen:
            problems.append(f"{where}: question_id {name!r} is taken by {seen[name]}")
        elif not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
            problems.append(f"{where}: turns are not a list of texts")
        else:
            seen[name] = where
            good.append(row)
    rows.refuse(source, problems)
    if not good:
        raise EnvironmentFault(f"{source}: no rows; give SPEED-Bench's rows as published")
    return good
