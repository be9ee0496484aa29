import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.sides import AFTER, BEFORE, Histograms, run

Shown = tuple[int, str, str]
UNSURE: Histograms = [[0, 1], [1, 0]] * 10  # against BEFORE: no change, and far from sure


@pytest.fixture(autouse=True)
def _no_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


@pytest.mark.parametrize(
    ("candidate", "code", "word"), [(BEFORE, 0, "pass"), (AFTER, 0, "pass"), (UNSURE, 3, "inconclusive")]
)
def test_exit_codes(candidate: Histograms, code: int, word: str, tmp_path: Path, face: Callable[..., Shown]) -> None:
    base, new = run(tmp_path, "base", BEFORE), run(tmp_path, "new", candidate)
    got, out, err = face("gate", new, "--baseline", base)
    assert (got, err.count("\n")) == (code, 1 if code else 0)
    assert out.splitlines()[-1].startswith(f"{word}: acceptance_length:-2%: ")


def test_a_loss_ends_in_1(tmp_path: Path, face: Callable[..., Shown]) -> None:
    base, new = run(tmp_path, "base", AFTER), run(tmp_path, "new", BEFORE)
    file = tmp_path / "base.json"
    assert face("baseline", base, "-o", file)[0] == 0
    code, out, err = face("gate", new, "--baseline", file)
    assert code == 1
    assert err == f"spec-eval: {out.splitlines()[-1]}\n"
    assert out == face("gate", new, "--baseline", base)[1]
    assert face("gate", new, "--baseline", base, "--rule", "acceptance_length:-80%")[0] == 0


@pytest.mark.parametrize(("option", "expected"), [("exit3", 3), ("pass", 0), ("fail", 1)])
def test_what_becomes_of_data_that_cannot_tell(
    option: str, expected: int, tmp_path: Path, face: Callable[..., Shown]
) -> None:
    base, new = run(tmp_path, "base", BEFORE), run(tmp_path, "new", UNSURE)
    code, out, _ = face("gate", new, "--baseline", base, "--on-inconclusive", option)
    assert code == expected
    assert out.splitlines()[-1].endswith(f"(taken as {option}, as --on-inconclusive says)") is (option != "exit3")


def test_nothing_makes_runs_pass_that_may_not_be_compared(tmp_path: Path, face: Callable[..., Shown]) -> None:
    base = run(tmp_path, "base", BEFORE)
    other = run(tmp_path, "other", BEFORE, settings={"temperature": 1.0, "max_tokens": None})
    half = run(tmp_path, "half", BEFORE, whole=False)
    for option in ("pass", "fail", "exit3"):
        code, _, err = face("gate", other, "--baseline", base, "--on-inconclusive", option)
        assert (code, err.count("\n")) == (3, 1)
        assert "temperature 0.0 against 1.0 (chat.t0.c1); max_tokens 64 against unknown (chat.t0.c1)" in err
        assert face("gate", half, "--baseline", base, "--on-inconclusive", option)[0] == 3
    allowed = ("--allow", "temperature", "--allow", "max_tokens")
    code, out, _ = face("gate", other, "--baseline", base, *allowed)
    assert code == 0
    assert "allowed to differ: temperature 0.0 against 1.0 (chat.t0.c1)" in out.splitlines()
    document = json.loads(face("gate", other, "--baseline", base, *allowed, "--format", "json")[1])
    assert document["comparison"]["allowed"] == ["temperature", "max_tokens"]


SUITE = 'schema_version = 1\ngate = ["acceptance_length:-90%", "position[1]>=10%"]\n'


def test_rules_come_from_the_command_line_else_from_the_suite(tmp_path: Path, face: Callable[..., Shown]) -> None:
    base, new = run(tmp_path, "base", AFTER), run(tmp_path, "new", BEFORE, suite_text=SUITE)

    def rules(*more: str) -> list[str]:
        document: dict[str, Any] = json.loads(face("gate", new, "--baseline", base, "--format", "json", *more)[1])
        return [one["rule"] for one in document["rules"]][:-2]

    assert rules() == ["acceptance_length:-90%", "position[1]>=10%", "coverage>=95%"]
    assert face("gate", new, "--baseline", base)[0] == 0
    assert rules("--rule", "acceptance_length:-2%") == ["acceptance_length:-2%", "coverage>=95%"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--rule", "acceptance_length:2%"), "--rule: rule 'acceptance_length:2%': an allowed loss is more than 0"),
        (
            ("--rule", "acceptance_length[codng]:-2%"),
            "rule 'acceptance_length[codng]:-2%': no category and no cell of either run is called 'codng'; "
            "name one of the categories 'coding', or cells 'chat.t0.c1'",
        ),
        (("--allow", "temprature"), "did you mean 'temperature'"),
        (("--on-inconclusive", "maybe"), "maybe"),
        (("--baseline", "nowhere.json"), "nowhere.json: No such file"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    argv: tuple[str, ...], words: str, tmp_path: Path, face: Callable[..., Shown]
) -> None:
    new = run(tmp_path, "new", BEFORE)
    code, out, err = face("gate", new, "--baseline", new, *argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_a_torn_baseline_is_one_line(tmp_path: Path, face: Callable[..., Shown]) -> None:
    new = run(tmp_path, "new", BEFORE)
    file = tmp_path / "base.json"
    face("baseline", new, "-o", file)
    file.write_bytes(file.read_bytes()[:-200])
    code, out, err = face("gate", new, "--baseline", file)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "not whole JSON" in err


def test_another_suite_is_named(tmp_path: Path, face: Callable[..., Shown]) -> None:
    base, new = run(tmp_path, "base", BEFORE), run(tmp_path, "new", BEFORE, suite_sha256="9" * 64)
    code, _, err = face("gate", new, "--baseline", base)
    assert (code, err.count("\n")) == (3, 1)
    assert f"suite_sha256 {'2' * 64} against {'9' * 64}" in err


def test_a_job_summary_gets_the_same_in_markdown(
    tmp_path: Path, face: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    new = run(tmp_path, "new", BEFORE)
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert face("gate", new, "--baseline", new)[0] == 0
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert summary.read_text() == "before\n" + face("gate", new, "--baseline", new, "--format", "md")[1]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "nowhere" / "x"))
    code, _, err = face("gate", new, "--baseline", new)
    assert (code, err.count("\n")) == (2, 1)


def test_a_file_gets_the_report_and_the_terminal_its_sentence(tmp_path: Path, face: Callable[..., Shown]) -> None:
    new = run(tmp_path, "new", BEFORE)
    target = tmp_path / "gate.xml"
    code, out, _ = face("gate", new, "--baseline", new, "--format", "junit", "-o", target)
    assert (code, out.count("\n")) == (0, 1)
    assert out.startswith("pass: ")
    assert ElementTree.parse(target).getroot().tag == "testsuites"


def test_imported_answers_can_be_gated(tmp_path: Path, face: Callable[..., Shown]) -> None:
    """Their settings are unknown on both sides: told, and no hindrance."""

    def taken(name: str, accepted: Callable[[int], int]) -> str:
        lines = []
        for i in range(24):
            a = accepted(i)
            metrics = {
                "acceptance_histogram": [8 - a, a], "num_spec_steps": 8, "num_accepted_draft_tokens": a,
                "num_draft_tokens": 8, "num_spec_tokens": 1,
            }  # fmt: skip
            body = {
                "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 9 + a, "total_tokens": 12 + a},
                "metrics": {"speculative_decoding": metrics},
            }
            lines.append(json.dumps({"request_id": f"r{i}", "dataset": "talk", "http_status": 200, "response": body}))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        out = face("import", "captures", tmp_path / f"{name}.jsonl", "--engine", "vllm", "--out", tmp_path / "runs")[1]
        return out.strip()

    good, bad = taken("good", lambda i: 6 + i % 2), taken("bad", lambda i: 3 + i % 2)
    code, out, _ = face("gate", good, "--baseline", good)
    assert code == 0
    assert "unknown in both: temperature, " in out
    assert face("gate", bad, "--baseline", good)[0] == 1
