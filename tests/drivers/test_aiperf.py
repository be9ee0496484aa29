import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spec_eval import engines
from spec_eval.drivers import aiperf, stand_in_tokenizer
from spec_eval.drivers.aiperf import Found
from spec_eval.engines.endpoint import Endpoint
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts.conversation import Conversation
from spec_eval.suite import Sampling, Window

SERVER = Endpoint("http://127.0.0.1:1", "sk-hush")


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def run(path: Path, folder: Path, limit: float = 60.0) -> aiperf.Ended:
    return aiperf.run([str(path)], endpoint=SERVER, local_tokenizer=True, output=folder / "out", limit=limit)


def test_an_option_wins_over_the_variable_and_that_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three, four = (program(tmp_path / name / "aiperf", "") for name in ("1", "2", "3", "4"))
    monkeypatch.setenv("PATH", str(four.parent))
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(three.parent))
    monkeypatch.setenv("SPEC_EVAL_AIPERF", str(two))
    assert aiperf.find(one) == Found(one, "--aiperf")
    assert aiperf.find(None) == Found(two, "SPEC_EVAL_AIPERF")
    monkeypatch.setenv("SPEC_EVAL_AIPERF", "")
    assert aiperf.find(None) == Found(three, "in this environment")
    three.unlink()
    three.mkdir()  # a folder of that name is no program
    assert aiperf.find(None) == Found(four, "on PATH")


@pytest.mark.parametrize("kind", ["nothing", "folder", "file"])
def test_what_is_named_and_no_program_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "aiperf"
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("", encoding="utf-8")
        path.chmod(0o644)
    with pytest.raises(EnvironmentFault, match=r"--aiperf .*: no program there; give the path"):
        aiperf.find(path)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("print('0.13.0')", "0.13.0"),
        ("print('aiperf 0.13.2+cu.1')", "0.13.2+cu.1"),
        ("print('a newer one is there\\n0.13.0\\nenjoy')", "0.13.0"),
        ("import sys; sys.stdout.buffer.write(b'\\xff 0.13.0')", "0.13.0"),
    ],
)
def test_the_version_is_what_the_program_says(tmp_path: Path, text: str, version: str) -> None:
    assert aiperf.version(Found(program(tmp_path / "aiperf", text), "x")) == version


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys; print('one\\ntwo', file=sys.stderr); sys.exit(3)", r"--version ends with 3 \(two\)"),
        ("", r"--version ends with 0 \(no version in its output\)"),
        ("print('no idea')", r"--version ends with 0 \(no version in its output\)"),
    ],
)
def test_a_program_without_a_version_is_no_aiperf(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(EnvironmentFault, match=says):
        aiperf.version(Found(program(tmp_path / "aiperf", text), "x"))


def test_a_program_that_does_not_start_says_so(tmp_path: Path) -> None:
    path = tmp_path / "aiperf"
    path.write_text("#!/no/such/python\n", encoding="utf-8")
    path.chmod(0o755)
    with pytest.raises(EnvironmentFault, match="does not start"):
        aiperf.version(Found(path, "x"))


@pytest.mark.parametrize(
    ("told", "known"),
    [("0.13.0", True), ("0.13", True), ("0.13.9.dev1", True), ("0.130.0", False), ("0.14.0", False), ("1.13.0", False)],
)
def test_another_minor_version_is_refused_unless_told(told: str, known: bool) -> None:
    found = Found(Path("/opt/aiperf"), "on PATH")
    aiperf.check_version(found, told, any_version=True)
    if known:
        aiperf.check_version(found, told, any_version=False)
        return
    with pytest.raises(EnvironmentFault, match=rf"AIPerf {told} \(on PATH\).*--any-aiperf"):
        aiperf.check_version(found, told, any_version=False)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import sys; sys.exit(0)", 0),
        ("import sys; sys.exit(1)", 1),
        ("import sys; sys.exit(-1)", 255),  # an exit code, and no signal of number 127
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.kill(os.getpid(), 15)", -15),
    ],
)
def test_how_it_ended_is_known(tmp_path: Path, text: str, code: int) -> None:
    ended = run(program(tmp_path / "aiperf", text), tmp_path)
    assert (ended.code, ended.timed_out) == (code, False)


def test_a_program_that_is_gone_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run(tmp_path / "aiperf", tmp_path)


def lives(pid: int) -> bool:
    """A zombie that nobody has asked for is dead too."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def gone(pid: int) -> bool:
    """Within a long time."""
    for _ in range(600):
        if not lives(pid):
            return True
        time.sleep(0.05)
    return False


def with_child(folder: Path, ending: str) -> tuple[Path, Path]:
    """A program that starts another one, and the file that then names that one's process."""
    note = folder / "pid"
    text = (
        "import os, pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(note)!r} + '.new').write_text(str(child.pid))\n"
        f"os.rename({str(note)!r} + '.new', {str(note)!r})\n{ending}"
    )
    return program(folder / "aiperf", text), note


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
def test_no_process_of_a_program_that_ended_is_left(tmp_path: Path) -> None:
    path, note = with_child(tmp_path, "sys.exit(1)")
    assert run(path, tmp_path) == aiperf.Ended(1, timed_out=False, limit_s=60.0)
    assert gone(int(note.read_text(encoding="utf-8")))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
@pytest.mark.parametrize("ends", [subprocess.TimeoutExpired("aiperf", 9), KeyboardInterrupt()])
def test_no_process_is_left_of_one_that_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: BaseException
) -> None:
    path, note = with_child(tmp_path, "time.sleep(600)")
    real, asked = subprocess.Popen.wait, []

    def wait(process: "subprocess.Popen[bytes]", timeout: float | None = None) -> int:
        asked.append(timeout)
        if len(asked) > 1:
            return real(process, timeout)
        while not note.exists():
            time.sleep(0.01)
        raise ends

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    if isinstance(ends, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            run(path, tmp_path, limit=9.0)
    else:
        ended = run(path, tmp_path, limit=9.0)
        assert (ended.timed_out, ended.limit_s) == (True, 9.0)
    assert asked[0] == 9.0
    assert gone(int(note.read_text(encoding="utf-8")))


def test_the_environment_has_the_key_of_this_server_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    path = program(
        tmp_path / "aiperf",
        "import os; print(os.environ.get('OPENAI_API_KEY'), os.environ.get('HF_HUB_OFFLINE'))",
    )
    for endpoint, local in ((SERVER, True), (Endpoint("http://127.0.0.1:1"), False)):
        aiperf.run([str(path)], endpoint=endpoint, local_tokenizer=local, output=tmp_path / "out", limit=60.0)
    assert (tmp_path / "out").read_text(encoding="utf-8") == "sk-hush None\nNone 0\n"
    assert os.environ["OPENAI_API_KEY"] == "sk-of-somebody-else"


def conversations(*turns: list[dict[str, str]]) -> Iterator[Conversation]:
    yield Conversation(prompt_id="a%2Fb", category="c", subcategory=None, turns=tuple(map(tuple, turns)))


def test_only_the_first_turn_is_sent_under_the_prompts_own_name() -> None:
    first, second = [{"role": "user", "content": "One?"}], [{"role": "user", "content": "Two?"}]
    lines = aiperf.prompt_lines(conversations(first, second), seed=None, repeat=1)
    assert lines == [{"session_id": "a%2Fb", "text": "One?"}]


def test_repeats_have_seeds_of_their_own() -> None:
    prompt = [{"role": "user", "content": "One?"}]
    seeds = [aiperf.prompt_lines(conversations(prompt), seed=7, repeat=n)[0]["extra"]["seed"] for n in (1, 2, 1)]
    assert seeds[0] == seeds[2] != seeds[1]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "One?"}],
        [{"role": "assistant", "content": "One."}],
    ],
)
def test_a_prompt_of_anything_but_one_message_of_the_user_is_refused(messages: list[dict[str, str]]) -> None:
    with pytest.raises(UsageError, match=r"prompt 'a%2Fb' is .*; throughput suites send a single message of the user"):
        aiperf.prompt_lines(conversations(messages), seed=0, repeat=1)


def argv(engine: str, **window: object) -> list[str]:
    return [
        *aiperf.command(
            Path("/opt/aiperf"),
            model="m",
            tokenizer="someone/model",
            endpoint=SERVER,
            engine=engines.find(engine),
            sampling=Sampling(temperature=0.5, max_tokens=9),
            window=Window.model_validate({"concurrency": (2,), "warmup_s": 0, "duration_s": 2.5} | window),
            concurrency=2,
            prompts=Path("/tmp/p.jsonl"),
            folder=Path("/tmp/c2-r1"),
        )
    ]


def test_no_warm_up_is_none_for_aiperf_and_grace_is_never_left_to_it() -> None:
    words = argv("vllm", grace_s=1.5)
    assert "--warmup-duration" not in words
    assert words[words.index("--benchmark-duration") + 1] == "2.5"
    assert words[words.index("--benchmark-grace-period") + 1] == "1.5"
    words = argv("vllm", warmup_s=3)
    assert words[words.index("--warmup-grace-period") + 1] == "0"


@pytest.mark.parametrize(
    ("seconds", "text"), [(180, "180"), (12345.678, "12345.678"), (1234567, "1234567"), (0.1, "0.1")]
)
def test_times_reach_aiperf_to_the_last_digit(seconds: float, text: str) -> None:
    words = argv("vllm", duration_s=seconds)
    assert words[words.index("--benchmark-duration") + 1] == text


def test_one_salt_for_all_requests_is_not_sent_and_no_key_is_named() -> None:
    words = argv("vllm")
    extra = json.loads(words[words.index("--extra-inputs") + 1])
    assert extra == {"max_completion_tokens": 9, "temperature": 0.5}
    assert not any("sk-hush" in word for word in words)


def test_a_cell_is_given_up_five_minutes_after_it_should_have_ended() -> None:
    window = Window(concurrency=(1,), warmup_s=30, duration_s=180, grace_s=10)
    assert aiperf.limit_s(window) == 30 + 180 + 2 * 10 + 300


def test_the_stand_in_is_a_tokenizer_of_one_word(tmp_path: Path) -> None:
    folder = stand_in_tokenizer.write(tmp_path / "tokenizer")
    assert stand_in_tokenizer.write(tmp_path / "tokenizer") == folder  # every cell writes it
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    assert model["vocab"] == {"[UNK]": 0}
