"""How an engine is started: what is asked for, its command line, and what its log says when it dies."""

import importlib.util
import os
import re
import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from spec_eval.recipe import Flags

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Launch:
    """One server to start.

    served_name: what the model is called in answers, where that is not for the engine to say. draft: of a drafter that
    is a model. k: draft tokens a step, null without a drafter. memory: share of each GPU's memory, as text.
    slots: conversations at a time, for an engine that must know. synthetic_rates: acceptance by position that the
    server is told to play, in place of the real one.
    """

    engine: str
    model: str
    algorithm: str
    k: int | None
    served_name: str | None = None
    draft: str | None = None
    adaptive: bool = False
    tensor_parallelism: int | None = None
    memory: str | None = None
    flags: Flags = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    speculative: dict[str, Any] = field(default_factory=dict)
    trust_remote_code: bool = False
    host: str = LOOPBACK
    port: int = 0
    slots: int = 1
    synthetic_rates: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """argv, and the environment variables to set beside those that are there. program: what was found to run."""

    argv: tuple[str, ...]
    env: dict[str, str]
    program: str

    def shell(self) -> str:
        """One `export` a line, then the command on one line."""
        exports = [f"export {name}={shlex.quote(value)}" for name, value in self.env.items()]
        return "\n".join([*exports, shlex.join(self.argv)])


# Written by us, or given by the user for one start: never by a recipe.
COMMON_OWNED = frozenset({"host", "port", "model", "trust-remote-code", "api-key"})


# A traceback shows the code that raised; the words come a line later.
_CODE = re.compile(r"\braise \w+")


class Launcher(ABC):
    """What engines that serve over HTTP from a command line have in common.

    words: our drafters in the engine's own words; a drafter that is not there is one that the engine lacks.
    counts: settings that state k, and by how much each is more than k. owned: further settings that are written by us.
    known: every flag that there is, where that is a short list.
    causes: pattern in the log, and what it means; the first that matches wins.
    """

    words: ClassVar[Mapping[str, str]]
    counts: ClassVar[Mapping[str, int]] = {}
    owned: ClassVar[frozenset[str]] = frozenset()
    known: ClassVar[frozenset[str] | None] = None
    adaptive: ClassVar[bool] = False
    on_cpu: ClassVar[bool] = False
    health_path: ClassVar[str] = "/health"
    causes: ClassVar[Sequence[tuple[str, str]]] = ()

    @abstractmethod
    def command(self, launch: Launch) -> Command:
        """The command line for `launch`."""

    def cause(self, log: str) -> str | None:
        """Why a server died, out of its log: meaning and the line that tells; None where no pattern is known."""
        for pattern, meaning in self.causes:
            for found in re.finditer(pattern, log):
                start, end = log.rfind("\n", 0, found.start()) + 1, log.find("\n", found.end())
                line = " ".join(log[start : end if end >= 0 else None].split())
                if not _CODE.search(line):
                    return f"{meaning}: {_around(line, found[0])}"
        return None


def _around(line: str, match: str, length: int = 240) -> str:
    """`line`, or the part of it that begins shortly before the match."""
    at = max(0, line.find(" ".join(match.split())) - 40) if len(line) > length else 0
    part = line[at : at + length]
    return f"{'…' if at else ''}{part}{'…' if at + length < len(line) else ''}"


# What servers written in Python say when they cannot start, whichever engine it is.
COMMON_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"(?i)out of memory|OutOfMemoryError|No available memory for the cache|Free memory on device"
        r"|larger than the available KV cache|Not enough memory",
        "out of memory",
    ),
    (r"(?i)address already in use|Errno 98\b|Errno 48\b", "port in use"),
    (
        r"(?i)unsupported speculative|unknown speculative|speculative.algorithm: invalid choice"
        r"|validation error for SpeculativeConfig(\n.*){0,3}",
        "speculative method unknown, or not possible with this model",
    ),
    (r"(?i)unrecognized arguments?|no such option|invalid choice|ambiguous option", "flag unknown to this version"),
    (
        r"(?i)RepositoryNotFound|repository not found|is not a local folder and is not a valid model identifier"
        r"|OfflineModeIsEnabled|LocalEntryNotFound|can't load the configuration|Invalid repository ID"
        r"|does not appear to have a file named|no such file or directory: \S*config\.json|GatedRepo|HFValidationError",
        "model not found",
    ),
)


@dataclass(frozen=True, slots=True)
class Program:
    """An engine's program as it is found on this machine. prefix: up to the model. found: in words; None: nowhere."""

    prefix: tuple[str, ...]
    is_module: bool
    found: str | None


def program(name: str, *, variable: str, package: str, module: str) -> Program:
    """`NAME serve`, or `PYTHON -m MODULE` of the interpreter that `variable` names or that has `package`.

    A variable that is set wins: it was set for this. Where nothing is found the command is `NAME serve` all the same.
    """
    if named := os.environ.get(variable):
        return Program((named, "-m", module), is_module=True, found=f"{variable} {named}")
    if path := shutil.which(name):
        return Program((name, "serve"), is_module=False, found=path)
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.origin is not None:  # a mere folder of that name has no origin
        return Program((sys.executable, "-m", module), is_module=True, found=f"{package} in {sys.executable}")
    return Program((name, "serve"), is_module=False, found=None)


def rendered(flags: Mapping[str, object]) -> Iterator[str]:
    """Words of a command line; `False` is a flag that is not given."""
    for name, value in flags.items():
        if value is True:
            yield f"--{name}"
        elif value is not False:
            yield from (f"--{name}", str(value))


def local_name(model: str) -> str:
    """What to call a model: the folder's or file's own name where it is here, else as given."""
    return Path(model).resolve().name if Path(model).exists() else model
