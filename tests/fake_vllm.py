"""A stand-in for `vllm serve`: it takes the same command line, says that it is healthy, and answers with counters.

Installed as an executable `vllm` in a folder that the test puts on the PATH. FAKE_VLLM chooses what it does:

- "dies: TEXT" prints TEXT and ends; "dies at k 3" is out of memory there, and well elsewhere;
- "never" is never healthy; "faints" dies when it is asked for its model; "ends" dies a moment after;
- "other" serves a model of another name; "stubborn" ignores SIGTERM.

It starts a worker of its own, as the real one does, and writes both process ids to FAKE_VLLM_PIDS.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

# Of each answer: steps that accepted 0, 1, 2, … drafts.
HISTOGRAM = (1, 1, 2)
STEPS, ACCEPTED = 4, 5


def install(folder: Path, monkeypatch: "pytest.MonkeyPatch", behaviour: str = "") -> Path:
    """Put it on the PATH, alone; returns the file with its process ids."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "vllm"
    here = Path(__file__).resolve()
    script.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(here.parents[1])!r})\n")
    with script.open("a") as more:
        more.write("from tests.fake_vllm import main\nmain()\n")
    script.chmod(0o755)
    pids = folder / "pids"
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("FAKE_VLLM", behaviour)
    monkeypatch.setenv("FAKE_VLLM_PIDS", str(pids))
    monkeypatch.delenv("SPEC_EVAL_VLLM_PYTHON", raising=False)
    return pids


def alive(pids: Path) -> list[int]:
    """Of the processes in the file, those that still run; a zombie has ended."""
    return [int(pid) for pid in pids.read_text().split() if _runs(int(pid))]


def gone(pids: Path) -> bool:
    """Whether none of them runs any more; one that was just killed may take a moment, on a busy machine a long one."""
    deadline = time.monotonic() + 30.0
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pids)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> None:
    """Serve."""
    behaviour = os.environ["FAKE_VLLM"]
    words = sys.argv[1:]
    flags = {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("--")}
    config = json.loads(flags.get("--speculative-config", "{}"))
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("INFO loading weights", flush=True)
    if behaviour.startswith("dies: "):
        sys.exit(behaviour.removeprefix("dies: "))
    if behaviour == "dies at k 3" and config["num_speculative_tokens"] == 3:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory.")
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    pids = Path(os.environ["FAKE_VLLM_PIDS"])
    pids.with_suffix(".new").write_text(f"{os.getpid()} {worker.pid}")
    pids.with_suffix(".new").rename(pids)
    if behaviour == "never":
        time.sleep(120)
    served = "somebody-elses" if behaviour == "other" else flags.get("--served-model-name", words[1])
    print(f"INFO environment {os.environ.get('VLLM_CPU_KVCACHE_SPACE')}", flush=True)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        answers = 0
        lock = threading.Lock()

        def do_GET(self) -> None:
            if self.path == "/v1/models" and behaviour == "faints":
                os._exit(3)
            if self.path == "/v1/models":
                self._send(json.dumps({"data": [{"id": served, "max_model_len": 2048}]}))
                if behaviour == "ends":
                    threading.Timer(0.2, os._exit, (3,)).start()
            elif self.path == "/metrics":
                self._send(_metrics(Handler.answers, config.get("num_speculative_tokens", 0)), "text/plain")
            elif self.path == "/version":
                self._send('{"version": "0.0-fake"}')
            else:
                self._send("", status=200 if self.path == "/health" else 404)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != "/v1/chat/completions":
                self._send("", status=404)
                return
            with Handler.lock:
                Handler.answers += 1
            self._send(_answer(config.get("num_speculative_tokens")), "text/event-stream")

        def _send(self, text: str, kind: str = "application/json", status: int = 200) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            """Nothing."""

    ThreadingHTTPServer((flags["--host"], int(flags["--port"])), Handler).serve_forever()


def _answer(k: int | None) -> str:
    """Of a server with k drafts a step, or without a drafter."""
    text = {"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": 7, "completion_tokens": 1 + STEPS + ACCEPTED}
    last: dict[str, Any] = {"choices": [], "usage": usage}
    if k is not None:
        last["metrics"] = {"speculative_decoding": _counters(k)}
    chunks = [json.dumps({"object": "chat.completion.chunk", **chunk}) for chunk in (text, last)]
    return "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"])


def _counters(k: int) -> dict[str, Any]:
    return {
        "acceptance_histogram": [*HISTOGRAM, *[0] * (k + 1 - len(HISTOGRAM))],
        "num_spec_steps": STEPS,
        "num_accepted_draft_tokens": ACCEPTED,
        "num_draft_tokens": k * STEPS,
        "num_spec_tokens": k,
    }


def _metrics(answers: int, k: int) -> str:
    if not k:
        return f"vllm:request_success_total {answers}\n"
    lines = [
        f"vllm:spec_decode_num_drafts_total {answers * STEPS}",
        f"vllm:spec_decode_num_draft_tokens_total {answers * STEPS * k}",
        f"vllm:spec_decode_num_accepted_tokens_total {answers * ACCEPTED}",
    ]
    for place in range(k):
        # steps that accepted at least place + 1 drafts
        reached = sum(HISTOGRAM[place + 1 :])
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        lines.append(f'{name}{{position="{place}"}} {answers * reached}')
    return "\n".join([*lines, ""])
