import json
import sys
from pathlib import Path

import pytest

from spec_eval import engines
from spec_eval.engines import ENGINES, launch
from spec_eval.engines.launch import Command, Launch, local_name, program, rendered

STARTED = sorted(name for name, engine in ENGINES.items() if engine.launcher is not None)


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for name in ("SPEC_EVAL_VLLM_PYTHON", "SPEC_EVAL_SGLANG_PYTHON"):
        monkeypatch.delenv(name, raising=False)


def command(engine: str, algorithm: str = "ngram", **given: object) -> Command:
    launcher = engines.find(engine).launcher
    assert launcher is not None
    settings = {"engine": engine, "model": "house/mouse", "algorithm": algorithm, "k": 5, "port": 8123, **given}
    return launcher.command(Launch(**settings))  # type: ignore[arg-type]


def after(words: tuple[str, ...], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_engines_that_can_be_started() -> None:
    assert STARTED == ["llamacpp", "sglang", "vllm"]


@pytest.mark.parametrize("engine", STARTED)
def test_every_drafter_of_an_engine_makes_a_command_that_names_model_and_port(engine: str) -> None:
    launcher = engines.find(engine).launcher
    assert launcher is not None
    for algorithm in launcher.words:
        k = None if algorithm == "none" else 5
        words = " ".join(command(engine, algorithm, k=k, draft="house/pup").argv)
        assert "house/mouse" in words
        assert "8123" in words
        assert "127.0.0.1" in words


def test_vllm_gets_drafting_in_one_flag_and_its_counters_switched_on() -> None:
    argv = command("vllm", "draft-model", draft="house/pup", speculative={"kv_cache_dtype": "auto"}).argv
    assert argv[:3] == ("vllm", "serve", "house/mouse")
    assert json.loads(after(argv, "--speculative-config")) == {
        "method": "draft_model",
        "model": "house/pup",
        "num_speculative_tokens": 5,
        "kv_cache_dtype": "auto",
    }
    assert after(argv, "--per-request-spec-decode-metrics") == "detailed"
    assert "--trust-remote-code" not in argv


def test_vllm_without_a_drafter_does_not_get_the_counter_switch_with_which_it_would_not_start() -> None:
    argv = command("vllm", "none", k=None).argv
    assert "--speculative-config" not in argv
    assert "--per-request-spec-decode-metrics" not in argv


def test_vllm_is_told_of_adaptive_verification() -> None:
    config = json.loads(after(command("vllm", "dflash2", draft="d", adaptive=True).argv, "--speculative-config"))
    assert config["enable_adaptive_verification"] is True


@pytest.mark.parametrize(
    ("algorithm", "told"),
    [
        # SGLang counts the root among its draft tokens: 5 drafts are 6 there, and a DSpark block is 5.
        ("dflash2", {"--speculative-algorithm": "DFLASH", "--speculative-num-draft-tokens": "6"}),
        (
            "dspark",
            {
                "--speculative-algorithm": "DSPARK",
                "--speculative-num-draft-tokens": "6",
                "--speculative-dspark-block-size": "5",
            },
        ),
        (
            "eagle3",
            {
                "--speculative-algorithm": "EAGLE3",
                "--speculative-num-steps": "5",
                "--speculative-eagle-topk": "1",
                "--speculative-num-draft-tokens": "6",
            },
        ),
        ("ngram", {"--speculative-algorithm": "NGRAM", "--speculative-ngram-max-bfs-breadth": "1"}),
    ],
)
def test_sglang_gets_its_own_numbers_out_of_k(algorithm: str, told: dict[str, str]) -> None:
    argv = command("sglang", algorithm, draft="house/pup").argv
    assert argv[:4] == ("sglang", "serve", "--model-path", "house/mouse")
    assert {flag: after(argv, flag) for flag in told} == told
    assert "--enable-metrics" in argv
    assert ("--speculative-dspark-block-size" in argv) == (algorithm == "dspark")


@pytest.mark.parametrize(
    ("engine", "parallel", "memory"),
    [
        ("vllm", "--tensor-parallel-size", "--gpu-memory-utilization"),
        ("sglang", "--tp-size", "--mem-fraction-static"),
    ],
)
def test_parallelism_memory_name_and_trust_in_the_engines_own_flags(engine: str, parallel: str, memory: str) -> None:
    bare = command(engine).argv
    assert {parallel, memory, "--served-model-name", "--trust-remote-code"}.isdisjoint(bare)
    argv = command(engine, tensor_parallelism=8, memory="0.90", served_name="mouse", trust_remote_code=True).argv
    assert (after(argv, parallel), after(argv, memory)) == ("8", "0.90")
    assert after(argv, "--served-model-name") == "mouse"
    assert "--trust-remote-code" in argv


def test_llamacpp_gets_settings_as_json_and_defaults_for_what_a_recipe_leaves_out() -> None:
    argv = command("llamacpp", "draft-model", draft="pup.gguf", flags={"threads": 1}, slots=4).argv
    assert argv[:3] == (sys.executable, "-m", "spec_eval.engines.llamacpp_child")
    config = json.loads(argv[3])
    assert (config["algorithm"], config["k"], config["draft_path"]) == ("draft-simple", 5, "pup.gguf")
    assert (config["threads"], config["slot_context"], config["match"], config["slots"]) == (1, 2048, 3, 4)


def test_flags_are_rendered_and_false_is_none_given() -> None:
    flags = {"a": True, "b": False, "max-len": 7, "share": "0.90", "rate": 0.5}
    assert list(rendered(flags)) == ["--a", "--max-len", "7", "--share", "0.90", "--rate", "0.5"]


def test_the_shell_can_read_what_is_printed() -> None:
    text = Command(("run", "--json", '{"a": 1}'), {"A": "1", "B": "two words"}, "run").shell()
    assert text == "export A=1\nexport B='two words'\nrun --json '{\"a\": 1}'"


def named(variable: str = "SPEC_EVAL_VLLM_PYTHON", package: str = "no_such_engine") -> launch.Program:
    return program("vllm", variable=variable, package=package, module="engine.server")


def test_a_command_on_the_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "vllm"
    path.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert named() == launch.Program(("vllm", "serve"), is_module=False, found=str(path))


def test_a_python_that_is_named_is_taken_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SPEC_EVAL_VLLM_PYTHON", "/opt/v/bin/python")
    found = named()
    assert found.prefix == ("/opt/v/bin/python", "-m", "engine.server")
    assert found.found == "SPEC_EVAL_VLLM_PYTHON /opt/v/bin/python"
    assert command("vllm").argv[:5] == (
        "/opt/v/bin/python",
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        "house/mouse",
    )


def test_this_interpreter_is_taken_where_it_has_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engine_in_here").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert named(package="engine_in_here").found is None, "a folder of that name is no engine"
    (tmp_path / "engine_in_here" / "__init__.py").touch()
    importlib_caches_are_stale()
    assert named(package="engine_in_here").prefix == (sys.executable, "-m", "engine.server")


def importlib_caches_are_stale() -> None:
    import importlib

    importlib.invalidate_caches()


def test_where_nothing_is_found_the_command_is_the_usual_one() -> None:
    assert named() == launch.Program(("vllm", "serve"), is_module=False, found=None)
    assert command("vllm").program == ""


def test_a_model_that_is_here_is_called_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mouse").mkdir()
    monkeypatch.chdir(tmp_path / "mouse")
    assert (local_name(str(tmp_path / "mouse")), local_name("."), local_name("house/mouse")) == (
        "mouse",
        "mouse",
        "house/mouse",
    )


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "out of memory: torch.OutOfMemoryError",
        ),
        ("ValueError: No available memory for the cache blocks.", "out of memory: ValueError: No available"),
        ("OSError: [Errno 98] Address already in use", "port in use: OSError"),
        ("NotImplementedError: Unsupported speculative method: 'abacus'", "speculative method unknown"),
        (
            "1 validation error for SpeculativeConfig\nmethod\n  Input should be 'ngram' or 'medusa'",
            "method Input should be 'ngram'",
        ),
        ("api_server.py: error: unrecognized arguments: --no-such", "flag unknown to this version: api_server.py"),
        (
            "launch_server.py: error: argument --speculative-algorithm: invalid choice: 'X'",
            "speculative method unknown",
        ),
        (
            "(APIServer pid=7)     raise LocalEntryNotFoundError(\nLocalEntryNotFoundError: no snapshot",
            "dError: no snapshot",
        ),
        ("OSError: house/mouse is not a local folder and is not a valid model identifier", "model not found: OSError"),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_cause_of_a_death_is_read_out_of_the_log(engine: str, log: str, cause: str) -> None:
    launcher = engines.find(engine).launcher
    assert launcher is not None
    found = launcher.cause(f"INFO loading\n{log}\nRuntimeError: Engine core initialization failed\n")
    assert found is not None
    assert cause in found
    assert "\n" not in found
    assert "Engine core" not in found or "SpeculativeConfig" in found


def test_a_long_line_is_cut_to_the_part_that_tells() -> None:
    launcher = engines.find("vllm").launcher
    assert launcher is not None
    found = launcher.cause(f"{'x' * 500} CUDA out of memory {'y' * 500}")
    assert found is not None
    assert found.startswith("out of memory: …")
    assert "CUDA out of memory y" in found
    assert len(found) < 300


def test_a_log_that_tells_nothing_has_no_cause() -> None:
    launcher = engines.find("vllm").launcher
    assert launcher is not None
    assert launcher.cause("INFO loading\nINFO still loading\n") is None
