"""An engine with a command line of its own, in a process group of ours: started, watched until healthy, ended."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.launch import LOOPBACK, Launch, Launcher
from spec_eval.errors import EnvironmentFault
from spec_eval.hardware import Hardware

STARTUP_S = 3600.0
_GRACE_S = 30.0
_KEEPER = Path(__file__).with_name("keeper.py")
_HEALTH_TIMEOUT_S = 5.0
_BETWEEN_S = 0.5
_SAY_EVERY_S = 15.0
_LOG_BYTES = 400_000
_LINE = 160
_EVERY_ADDRESS = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104 # compared with, not bound


@dataclass(frozen=True)
class EngineServer:
    """A running server. program: what was found to run."""

    root: str
    program: str
    process: "subprocess.Popen[bytes]"
    log: Path
    log_start: int
    launcher: Launcher

    def last_words(self) -> str:
        """The likely cause of its end, else the last line of its log."""
        return _last_words(self.launcher, self.log, self.log_start)


@contextlib.contextmanager
def serve_process(
    launch: Launch,
    launcher: Launcher,
    hardware: Hardware,
    *,
    log: Path,
    startup_s: float = STARTUP_S,
    say: Callable[[str], None],
) -> Iterator[EngineServer]:
    """The engine at the launch's address, ended with its whole process group when the block is left.

    Its output goes to `log`. `say` gets lines for a person while it starts. EnvironmentFault where it cannot be
    started, is not healthy after `startup_s` seconds, or is another server than ours.
    """
    command = launcher.command(launch)
    if not command.program:
        name = launch.engine
        raise EnvironmentFault(
            f"{name} is not here: install it, put `{name}` on the PATH, or name its Python in "
            f"SPEC_EVAL_{name.upper()}_PYTHON"
        )
    _require_gpus(hardware)
    root = root_of(launch.host, launch.port)
    require_free(launch.host, launch.port)
    if shutil.which(command.argv[0]) is None:
        raise EnvironmentFault(f"{command.argv[0]}: no such program; mend the path to {launch.engine}")
    start = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output:
        # A session of its own: Ctrl-C on the terminal is for us, and the engine's workers can be ended with it.
        process = subprocess.Popen(
            [sys.executable, "-P", str(_KEEPER), str(_GRACE_S), *command.argv],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | command.env,
            start_new_session=True,
        )
    server = EngineServer(root, command.program, process, log, start, launcher)
    try:
        say(f"{launch.engine}: starting ({command.program}); its log is {log}")
        _wait_until_healthy(server, launch, startup_s, say)
        _require_ours(server, launch)
        yield server
    finally:
        _end(process)


def root_of(host: str, port: int) -> str:
    """Where a client on this machine finds the server."""
    near = _EVERY_ADDRESS.get(host, host)
    return f"http://{f'[{near}]' if ':' in near else near}:{port}"


def free_port(host: str = LOOPBACK) -> int:
    """One that nobody uses just now."""
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


def require_free(host: str, port: int) -> None:
    """EnvironmentFault where nothing can listen there; it names the server that does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise EnvironmentFault(
            f"port {port} on {host} cannot be used ({error.strerror}){_who(root_of(host, port))}; "
            "give another --port, or stop it"
        ) from error


def _who(root: str) -> str:
    """What answers there, if it is a server like ours."""
    with contextlib.suppress(EnvironmentFault):
        served = ", ".join(entry["id"] for entry in Endpoint.at(root).models())
        return f": a server there serves {served}"
    return ""


def _require_gpus(hardware: Hardware) -> None:
    """Where nvidia-smi is there, the GPUs that it shows must be enough."""
    if hardware.gpus == 0:
        return
    seen = gpus()
    if seen is not None and seen < hardware.gpus:
        raise EnvironmentFault(
            f"{hardware.name} means {hardware.gpus} GPUs, and nvidia-smi shows {seen}; take other --hardware"
        )


def gpus() -> int | None:
    """GPUs that may be used, as nvidia-smi counts, within CUDA_VISIBLE_DEVICES; None where there is no nvidia-smi."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S607
    except (OSError, subprocess.TimeoutExpired):
        return None
    there = sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return there if visible is None else min(there, len([part for part in visible.split(",") if part.strip()]))


def _wait_until_healthy(server: EngineServer, launch: Launch, startup_s: float, say: Callable[[str], None]) -> None:
    endpoint = Endpoint.at(server.root)
    began = time.monotonic()
    said = began
    while True:
        if server.process.poll() is not None:
            raise _ended(server, launch)
        with contextlib.suppress(EnvironmentFault):
            if endpoint.get(server.launcher.health_path, _HEALTH_TIMEOUT_S).status == 200:
                return
        now = time.monotonic()
        if now - began > startup_s:
            raise EnvironmentFault(
                f"{launch.engine} was not healthy after {startup_s:g} s: {server.last_words()}; its log is {server.log}"
            )
        if now - said >= _SAY_EVERY_S:
            said = now
            say(f"{launch.engine}: starting for {now - began:.0f} s; last in its log: {last_line(_text(server))}")
        time.sleep(_BETWEEN_S)


def _ended(server: EngineServer, launch: Launch) -> EnvironmentFault:
    code = server.process.poll()
    return EnvironmentFault(
        f"{launch.engine} ended while starting, exit code {code}: {server.last_words()}; its log is {server.log}"
    )


def _require_ours(server: EngineServer, launch: Launch) -> None:
    """Health alone could be that of another server, which took the port between our look and the engine's."""
    name = str(launch.served_name or launch.flags.get("served-model-name") or launch.model)
    try:
        served = [entry["id"] for entry in Endpoint.at(server.root).models()]
    except EnvironmentFault:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(_HEALTH_TIMEOUT_S)
            raise _ended(server, launch) from None
        raise
    if name not in served:
        raise EnvironmentFault(
            f"another model is behind {server.root}: it serves {', '.join(served)}, not {name}; give another --port"
        )


def _text(server: EngineServer) -> str:
    return _read(server.log, server.log_start)


def _read(log: Path, start: int) -> str:
    """The log from `start` on, or its last part; without colours."""
    with log.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(start, size - _LOG_BYTES))
        text = stream.read().decode(errors="replace")
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)


def _last_words(launcher: Launcher, log: Path, start: int) -> str:
    text = _read(log, start)
    return launcher.cause(text) or last_line(text)


def last_line(text: str) -> str:
    """The last line with words in it; a progress bar redraws its own line."""
    lines = [line for line in re.split(r"[\r\n]", text) if line.strip()]
    return " ".join(lines[-1].split())[:_LINE] if lines else "nothing yet"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask the whole group to end, wait for its leader, then kill whatever is left of it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    finally:
        # Also after a leader that went quietly: a worker of its may have stayed behind, with a GPU's memory.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:  # only now: its end is the keeper's word to end the group
            process.stdin.close()
