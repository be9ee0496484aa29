"""A suite's data, from wherever it lies, as a checked PromptSet."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from spec_eval import jsontext
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import build, hub, rows
from spec_eval.prompts.conversation import Conversation, PromptSet, index, index_sha256
from spec_eval.suite import Suite, SuiteFile

STANDIN_WORDS = ("stand-in", "standin")


def load(
    file: SuiteFile, *, data_dir: Path | None = None, trust_remote_code: bool = False, first_turn_only: bool = False
) -> PromptSet:
    """Index a simple suite's conversations: from its own file, from `data_dir`, or from the hub at its revision.

    EnvironmentFault where the rows are not to be had, UsageError where they cannot be used.
    """
    suite = file.simple
    if first_turn_only:
        suite = suite.model_copy(update={"first_turn_only": True})
    build.check_spec(suite.prompt, str(file.path))
    paths = _local_paths(file, data_dir)
    standin = is_standin(paths, data_dir) if data_dir is not None and suite.data.file is None else False
    source = _source(suite, paths, standin)

    def reread() -> Iterator[Conversation]:
        found: Iterable[tuple[str, rows.Row | rows.Problem]] = (
            rows.read(paths) if paths else hub.read(suite.data, trust_remote_code=trust_remote_code)
        )
        return build.conversations(
            found,
            suite.prompt,
            source,
            first_turn_only=suite.first_turn_only,
            subcategory_needed=not file.is_shipped,
        )

    entries = index(reread())
    if not entries:
        raise EnvironmentFault(f"{source}: no rows; give a file that holds some")
    if suite.prompt.category and all(entry.category == build.NO_CATEGORY for entry in entries):
        raise UsageError(f"{source}: no row has a {suite.prompt.category!r}; mend prompt.category in {file.path}")
    sha256 = index_sha256(entries)
    if not standin:
        _check_pins(suite, source, len(entries), sha256, local=bool(paths))
    return PromptSet(
        source=source,
        revision=None if paths else suite.data.revision,
        files={_relative(path, file, data_dir): rows.sha256(path) for path in paths},
        sha256=sha256,
        rows=len(entries),
        standin=standin,
        entries=entries,
        notes=(*build.category_notes(entry.category for entry in entries), *_unpinned(suite, paths, standin)),
        preparation=_preparation(paths),
        graded=suite.prompt.adapter == "mrcr",
        reread=reread,
    )


def _preparation(paths: list[Path]) -> dict[str, Any] | None:
    """What `prepare` wrote beside the rows; UsageError where the rows are not those it speaks of."""
    for path in paths:
        sidecar = path.with_name(f"{path.stem}.prepared.json")
        if not sidecar.is_file():
            continue
        try:
            about: dict[str, Any] = jsontext.loads(sidecar.read_text(encoding="utf-8"))
            promised = about["sha256"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{sidecar}: not readable ({error}); prepare the set again") from error
        if promised != rows.sha256(path):
            raise UsageError(f"{path}: not the rows that {sidecar.name} speaks of; prepare the set again")
        return about
    return None


def _relative(path: Path, file: SuiteFile, data_dir: Path | None) -> str:
    root = data_dir if data_dir is not None and file.simple.data.file is None else file.path.parent
    return path.relative_to(root).as_posix()


def _pinned_sha256(suite: Suite, *, local: bool) -> str | None:
    return (local and suite.data.local_sha256) or suite.data.sha256


def _check_pins(suite: Suite, source: str, count: int, sha256: str, *, local: bool) -> None:
    data, pinned = suite.data, _pinned_sha256(suite, local=local)
    if data.rows is not None and count != data.rows:
        raise UsageError(f"{source}: {count} rows, the suite pins {data.rows}; use the pinned data set")
    if pinned is not None and not suite.first_turn_only and sha256 != pinned:
        raise UsageError(
            f"{source}: prompts hash to {sha256[:12]}, the suite pins {pinned[:12]}; "
            "use the pinned data set, or a suite file of your own for other rows"
        )


def _unpinned(suite: Suite, paths: list[Path], standin: bool) -> list[str]:
    """A note where nothing proves that local rows are those of the hub."""
    if standin:
        return []
    if paths and suite.data.hub and _pinned_sha256(suite, local=True) is None:
        return ["local rows: their content is not pinned by the suite, only recorded"]
    return []


def _local_paths(file: SuiteFile, data_dir: Path | None) -> list[Path]:
    data = file.simple.data
    if data.file is not None:
        path = file.path.parent / data.file
        if not path.is_file():
            raise EnvironmentFault(f"{file.path}: data.file {data.file!r} is not beside it")
        return [path]
    return rows.find(data_dir, data.local) if data_dir is not None else []


def is_standin(paths: list[Path], data_dir: Path) -> bool:
    """Whether a folder between the files and `data_dir` calls itself a stand-in, by name or in its README.

    So does what any of them links to; and of files that links take out of `data_dir`, any folder above, by name.
    """
    for path in paths:
        folders = [folder for folder in path.parents if folder == data_dir or folder.is_relative_to(data_dir)]
        real = path.resolve()
        linked = {real.parent, *(folder.resolve() for folder in folders)}
        beyond = () if real.is_relative_to(data_dir.resolve()) else real.parents
        if any(map(_calls_itself_standin, {*folders, *linked})) or any(map(_is_called_standin, beyond)):
            return True
    return False


def _calls_itself_standin(folder: Path) -> bool:
    readme = folder / "README.md"
    if _is_called_standin(folder):
        return True
    return readme.is_file() and any(w in readme.read_text(errors="replace").lower() for w in STANDIN_WORDS)


def _is_called_standin(folder: Path) -> bool:
    return any(word in folder.name.lower() for word in STANDIN_WORDS)


def _source(suite: Suite, paths: list[Path], standin: bool) -> str:
    """For people; a stand-in's never names the real set."""
    if standin:
        return f"stand-in rows from {_names(paths)}"
    if paths and suite.data.hub:
        return f"{suite.data.hub} from {_names(paths)}"
    return suite.data.file or f"{suite.data.hub}"


def _names(paths: list[Path]) -> str:
    return paths[0].name + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
