"""A suite's data, from wherever it lies, as a checked PromptSet."""

from collections.abc import Iterable
from pathlib import Path

from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import build, hub, rows
from spec_eval.prompts.conversation import Conversation, PromptSet, index, index_sha256
from spec_eval.suite import SuiteFile


def load(suite: SuiteFile, *, data_dir: Path | None = None, trust_remote_code: bool = False) -> PromptSet:
    """Index the suite's conversations: from its own file, from `data_dir`, or from the hub at the pinned revision.

    EnvironmentFault where the rows are not to be had, UsageError where they cannot be used.
    """
    data, prompt = suite.suite.data, suite.suite.prompt
    build.check_template(prompt, str(suite.path))
    paths = _local_paths(suite, data_dir)
    root = data_dir if data.file is None and data_dir is not None else suite.path.parent
    files = {path.relative_to(root).as_posix(): rows.sha256(path) for path in paths}
    source = f"{data.hub} from {paths[0].name}" if paths and data.hub else (data.file or f"{data.hub}")

    def reread() -> Iterable[Conversation]:
        found = rows.read(paths) if paths else hub.read(data, trust_remote_code=trust_remote_code)
        return build.conversations(found, prompt, source)

    entries = index(reread())
    if not entries:
        raise EnvironmentFault(f"{source}: no rows; give a file that holds some")
    if data.rows is not None and len(entries) != data.rows:
        raise UsageError(f"{source}: {len(entries)} rows, the suite pins {data.rows}; use the pinned data set")
    sha256 = index_sha256(entries)
    if data.sha256 is not None and sha256 != data.sha256:
        raise UsageError(
            f"{source}: prompts hash to {sha256[:12]}, the suite pins {data.sha256[:12]}; "
            "use the pinned data set, or a suite file of your own for other rows"
        )
    return PromptSet(
        source=source,
        revision=None if paths else data.revision,
        files=files,
        sha256=sha256,
        entries=entries,
        notes=tuple(build.check_categories(entry.category for entry in entries)),
        reread=reread,
    )


def _local_paths(suite: SuiteFile, data_dir: Path | None) -> list[Path]:
    data = suite.suite.data
    if data.file is not None:
        path = suite.path.parent / data.file
        if not path.is_file():
            raise EnvironmentFault(f"{suite.path}: data.file {data.file!r} is not beside it")
        return [path]
    return rows.find(data_dir, data.local) if data_dir is not None else []
