"""A stand-in for the `aiperf` executable: it leaves recorded files, and fails in every way on request.

FAKE_AIPERF          JSON: cell "c4" or "c4#2" (its second call) → mode; "*" for all others; "ok" where absent
FAKE_AIPERF_FIGURES  JSON: concurrency → [X, Y] in place of the recorded ones
FAKE_AIPERF_SEEN     file that gets a line for each call: argv, process, and a digest of the key in the environment
FAKE_AIPERF_FILES    JSON: concurrency → file name → text in place of the recorded one; {0} is the first prompt's name
FAKE_AIPERF_VERSION  what --version says, 0.13.0 if not set
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

DATA = Path(__file__).parent / "data"
LOGS = {
    "ok": ("91", 87, 4, 0),
    "zero": ("4", 0, 4, 0),
    "failed": ("1,398", "1,398", 0, "1,398"),
    "broken": None,
}


def executable(folder: Path) -> Path:
    """A program called aiperf in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "aiperf"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def main() -> None:
    argv = sys.argv[1:]
    version = os.environ.get("FAKE_AIPERF_VERSION", "0.13.0")
    if argv == ["--version"]:
        print(version)
        return
    folder = Path(argv[argv.index("--output-artifact-dir") + 1])
    level = argv[argv.index("--concurrency") + 1]
    call = _note(argv, level)
    plan = json.loads(os.environ.get("FAKE_AIPERF", "{}"))
    mode = plan.get(f"c{level}#{call}", plan.get(f"c{level}", plan.get("*", "ok")))
    print("a line on the console")
    (folder / "logs").mkdir(parents=True)
    if mode == "hang":
        time.sleep(60)
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    _log(folder, mode)
    if mode not in ("ok", "killed late"):
        sys.exit(1)
    _files(folder, argv, level, version)
    if mode == "killed late":
        os.kill(os.getpid(), signal.SIGKILL)


def _note(argv: list[str], level: str) -> int:
    path = os.environ.get("FAKE_AIPERF_SEEN")
    if path is None:
        return 1
    key = os.environ.get("OPENAI_API_KEY")
    digest = None if key is None else hashlib.sha256(key.encode()).hexdigest()
    about = {"argv": argv, "level": level, "pid": os.getpid()}
    line = {
        **about,
        "key": digest,
        "offline": [os.environ.get(name) for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")],
    }
    with Path(path).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")
    return sum(json.loads(one)["level"] == level for one in Path(path).read_text(encoding="utf-8").splitlines())


def _log(folder: Path, mode: str) -> None:
    counts, notice = LOGS.get(mode, LOGS["ok"]), "2026-12-01 01:16:11.371 - PhaseRunner - NOTICE - Phase"
    lines = [f"{notice} warmup (warmup) complete | completed=7, cancelled=3, errors=0"]
    if counts is None:
        lines.append("2026-12-01 01:16:12.000 - system_controller - ERROR - no tokenizer of that name")
    else:
        sent, completed, cancelled, errors = counts
        ended = f"completed={completed}, cancelled={cancelled}, errors={errors}"
        lines += [
            f"{notice} profiling (profiling) sending complete | sent={sent}, completed=0",
            f"{notice} profiling (profiling) complete | {ended} | sessions: completed=0",
        ]
    (folder / "logs" / "aiperf.log").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _files(folder: Path, argv: list[str], level: str, version: str) -> None:
    for path in (DATA / "aiperf-cells" / "ok").iterdir():
        shutil.copy(path, folder / path.name)
    prompts = Path(argv[argv.index("--input-file") + 1]).read_text(encoding="utf-8").splitlines()
    names = [json.loads(line)["session_id"] for line in prompts]
    for name in ("profile_export.jsonl", "profile_export_raw.jsonl"):
        text = (DATA / "aiperf" / "vllm" / name).read_text(encoding="utf-8")
        for number in range(15):
            text = text.replace(f"session_{number:06d}", names[number % len(names)])
        (folder / name).write_text(text, encoding="utf-8")
    path = folder / "profile_export_aiperf.json"
    summary = json.loads(path.read_text(encoding="utf-8"))
    summary["aiperf_version"] = version
    if level in (figures := json.loads(os.environ.get("FAKE_AIPERF_FIGURES", "{}"))):
        x, y = figures[level]
        summary["output_token_throughput_per_user"]["avg"] = x
        summary["output_token_throughput"]["avg"] = y
    path.write_text(json.dumps(summary), encoding="utf-8")
    for other, text in json.loads(os.environ.get("FAKE_AIPERF_FILES", "{}")).get(level, {}).items():
        (folder / other).write_text(text.replace("{0}", names[0]), encoding="utf-8")


if __name__ == "__main__":
    main()
