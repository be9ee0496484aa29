"""AIPerf as a subprocess: found, asked for its version, given a command, and ended.

It lives in an environment of its own where that suits, and spec-eval imports nothing of it. Written for 0.13.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_eval.drivers.chat import sampling_body
from spec_eval.drivers.conversations import request_seed
from spec_eval.engines import Engine
from spec_eval.engines.endpoint import KEY_VARIABLE, Endpoint
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts.conversation import Conversation
from spec_eval.suite import Sampling, Window

VERSION = "0.13"
VARIABLE = "SPEC_EVAL_AIPERF"
# Seconds on top of warm-up, window and grace: eight processes start, and all records are written out at the end.
ALLOWANCE_S = 300.0
_VERSION_S = 120.0
_ENDING_S = 10.0
_NUMBER = re.compile(r"(?<![\w.])\d+\.\d\S*")
# With any value of either, even 0, AIPerf looks for a local folder on the hub.
_OFFLINE = frozenset({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"})
# Ends AIPerf with us, however we end: started by path, since it is a program of its own.
_KEEPER = Path(__file__).parent.parent / "serve" / "keeper.py"


@dataclass(frozen=True, slots=True)
class Found:
    """An executable, and how it was found."""

    path: Path
    how: str


@dataclass(frozen=True, slots=True)
class Ended:
    """code: of the process, negative where a signal ended it. timed_out: our own limit of `limit_s` ended it."""

    code: int
    timed_out: bool
    limit_s: float


def find(option: Path | None) -> Found:
    """By option, by variable, in this environment, then on the path; EnvironmentFault where it is nowhere."""
    for named, how in ((option, "--aiperf"), (os.environ.get(VARIABLE) or None, VARIABLE)):
        if named is not None:
            path = Path(named).expanduser()
            if not (path.is_file() and os.access(path, os.X_OK)):
                raise EnvironmentFault(f"{how} {named}: no program there; give the path of the aiperf executable")
            return Found(path.absolute(), how)
    here = Path(sysconfig.get_path("scripts")) / "aiperf"
    if here.is_file() and os.access(here, os.X_OK):
        return Found(here, "in this environment")
    on_path = shutil.which("aiperf")
    if on_path is None:
        raise EnvironmentFault(
            "AIPerf is missing: `pip install 'spec-eval[aiperf]'`, or install it elsewhere and give its executable "
            f"with --aiperf or {VARIABLE}"
        )
    return Found(Path(on_path).absolute(), "on PATH")


def version(found: Found) -> str:
    """What it says of itself; EnvironmentFault where it says nothing."""
    try:
        said = subprocess.run(
            [str(found.path), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_S,
            check=False,
            env=_environment({}, None),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFault(f"{found.path}: does not start ({error}); mend or install AIPerf again") from error
    numbers = _NUMBER.findall(said.stdout)
    if said.returncode != 0 or not numbers:
        last = (said.stderr.strip().splitlines() or ["no version in its output"])[-1]
        raise EnvironmentFault(f"{found.path}: --version ends with {said.returncode} ({last}); install AIPerf again")
    return str(numbers[-1])


def check_version(found: Found, told: str, *, any_version: bool) -> None:
    """EnvironmentFault for another minor version than the one that this was written for."""
    if not f"{told}.".startswith(f"{VERSION}.") and not any_version:
        raise EnvironmentFault(
            f"{found.path}: AIPerf {told} ({found.how}), and its files are read as {VERSION} writes them; "
            f"install aiperf=={VERSION}.0, or try it with --any-aiperf"
        )


def prompt_lines(conversations: Iterator[Conversation], *, seed: int | None, repeat: int) -> list[dict[str, Any]]:
    """AIPerf's input: one line a prompt, its first turn alone, under its own name and with its own seed.

    repeat: from 1. UsageError for a prompt that is more than one message, which AIPerf cannot take.
    """
    lines = []
    for conversation in conversations:
        messages = conversation.turns[0]
        if len(messages) != 1 or messages[0]["role"] != "user":
            raise UsageError(
                f"prompt {conversation.prompt_id!r} is {len(messages)} messages; "
                "throughput suites send a single message of the user"
            )
        line: dict[str, Any] = {"session_id": conversation.prompt_id, "text": messages[0]["content"]}
        if seed is not None:
            line["extra"] = {"seed": request_seed(seed, conversation.prompt_id, 0, repeat - 1)}
        lines.append(line)
    return lines


def extra_inputs(engine: Engine, sampling: Sampling) -> dict[str, Any]:
    """Fields of every request: sampling, and what makes the engine hand its counters over.

    No `cache_salt`: one for all requests would keep nothing apart. max_tokens goes under the name that AIPerf's
    users and the cards know, for thinking models; every engine here takes both.
    """
    body = sampling_body(sampling, None)
    body["max_completion_tokens"] = body.pop("max_tokens")
    return {**body, **{name: value for name, value in engine.extra_body().items() if name != "cache_salt"}}


def cache_is_off(engine: Engine, told: bool | None) -> bool | None:
    """Whether no answer can come from a warm prefix cache: by the requests, else as the server says; null: unknown."""
    cold, warm = engine.extra_body(cold_cache=True), engine.extra_body(cold_cache=False)
    by_request = {name for name in cold if name not in warm} - {"cache_salt"}
    return True if by_request else None if told is None else not told


def command(
    program: Path,
    *,
    model: str,
    tokenizer: Path | str,
    endpoint: Endpoint,
    engine: Engine,
    sampling: Sampling,
    window: Window,
    concurrency: int,
    prompts: Path,
    folder: Path,
) -> tuple[str, ...]:
    """One cell. The key never stands here: everyone on the machine can read a command line."""
    one_by_one = engine.headers.get("Connection") == "close"
    metrics = ("json", "jsonl")
    return (
        str(program),
        "profile",
        *("-m", model),
        *("--tokenizer", str(tokenizer)),
        *("--url", endpoint.root),
        *("--endpoint-type", "chat"),
        "--streaming",
        *("--input-file", str(prompts)),
        *("--custom-dataset-type", "single_turn"),
        *("--dataset-sampling-strategy", "sequential"),
        *("--random-seed", "1"),
        *("--concurrency", str(concurrency)),
        *(
            ("--warmup-duration", _plain(window.warmup_s), "--warmup-grace-period", _plain(window.grace_s))
            if window.warmup_s
            else ()
        ),
        *("--benchmark-duration", _plain(window.duration_s)),
        *("--benchmark-grace-period", _plain(window.grace_s)),
        "--use-server-token-count",
        "--per-chunk-usage",
        *(("--connection-reuse-strategy", "never") if one_by_one else ()),
        *("--export-level", "raw"),
        *(("--server-metrics", f"{endpoint.root}{engine.metrics_path}") if engine.metrics_path != "/metrics" else ()),
        *("--server-metrics-formats", *metrics),
        *("--extra-inputs", json.dumps(extra_inputs(engine, sampling), sort_keys=True)),
        "--no-gpu-telemetry",
        *("--ui", "none"),
        *("--output-artifact-dir", str(folder)),
    )


def _plain(seconds: float) -> str:
    """To the last digit."""
    return str(int(seconds)) if int(seconds) == seconds else repr(seconds)


def limit_s(window: Window) -> float:
    """When a cell is given up."""
    return window.warmup_s + window.duration_s + 2 * window.grace_s + ALLOWANCE_S


def run(argv: Sequence[str], *, endpoint: Endpoint, local_tokenizer: bool, output: Path, limit: float) -> Ended:
    """Run one cell to its end, its console output into `output`; FileNotFoundError where the program is gone.

    Whatever ends this, no process of AIPerf's is left behind.
    """
    unset = set(_OFFLINE) if local_tokenizer else set()
    environment = _environment({KEY_VARIABLE: endpoint.api_key}, unset)
    if not Path(argv[0]).is_file():
        raise FileNotFoundError(argv[0])
    keeper = [sys.executable, str(_KEEPER), f"{_ENDING_S:g}", *argv]
    with output.open("ab") as stream:
        # A session of its own: Ctrl-C on the terminal is for us, and a group is ended as one.
        process = subprocess.Popen(
            keeper,
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        code, timed_out = process.wait(limit), False
    except subprocess.TimeoutExpired:
        code, timed_out = _end(process), True
    finally:
        _end(process)
    # A shell's and our keeper's way to tell of a signal; 255 is an exit code like any other.
    return Ended(128 - code if code - 128 in signal.valid_signals() else code, timed_out, limit)


def _environment(changes: Mapping[str, str | None], unset: set[str] | None) -> dict[str, str]:
    """Ours, without keys that are not for this server; null unsets."""
    kept = {name: value for name, value in os.environ.items() if name not in (unset or set()) | {KEY_VARIABLE}}
    return kept | {name: value for name, value in changes.items() if value is not None}


def _end(process: subprocess.Popen[bytes]) -> int:
    """Ask the whole group, then insist; it may be gone already."""
    with contextlib.suppress(OSError):
        assert process.stdin is not None
        process.stdin.close()
    deadline = time.monotonic() + _ENDING_S
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - time.monotonic()))
    return process.wait()
