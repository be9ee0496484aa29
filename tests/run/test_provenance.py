import importlib.metadata
import platform
from dataclasses import replace
from pathlib import Path

import pytest

from spec_eval import __version__, git
from spec_eval.engines.base import Identity
from spec_eval.records import RequestRecord
from spec_eval.run import RunOptions, provenance
from spec_eval.run.planning import prepare
from spec_eval.store import Plan
from tests.factories import answered, from_histogram
from tests.llamacpp_server import write_suite

# What two runs must share before they may be compared.
KEYS = {
    "k",
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "thinking",
    "chat_template_sha256",
    "suite_sha256",
    "data_sha256",
    "adaptive",
    "draft_sampling",
    "prefix_caching",
    "concurrency",
    "tensor_parallelism",
    "estimator",
}

ANSWER = answered(from_histogram((1, 0, 1, 1, 0), drafted=11), cell_id="pair", completion_tokens=9)


def plan(tmp_path: Path, **more: object) -> Plan:
    options = {"suite": str(write_suite(tmp_path)), "engine": "llamacpp", "base_url": "http://127.0.0.1:1", **more}
    return prepare(RunOptions(**options)).plan  # type: ignore[arg-type]


def test_every_setting_that_two_runs_must_share_is_there(tmp_path: Path) -> None:
    made = plan(tmp_path, concurrency=(1, 8), temperature=0.5, k=3)
    found = provenance.comparable_settings(made, Identity(models=("m",), chat_template_sha256="abc"), [ANSWER])
    assert sorted(found) == ["pair-c1", "pair-c8"]
    assert set(found["pair-c8"]) >= KEYS
    settings = found["pair-c8"]
    assert (settings["k"], settings["temperature"], settings["max_tokens"], settings["concurrency"]) == (3, 0.5, 32, 8)
    assert (settings["chat_template_sha256"], settings["estimator"]) == ("abc", "pooled")
    assert settings["suite_sha256"] == made.suite_sha256
    assert settings["data_sha256"] == made.cells[0].prompts.sha256


def test_what_nobody_says_is_null_and_not_a_guess(tmp_path: Path) -> None:
    settings = provenance.comparable_settings(plan(tmp_path), Identity(models=("m",)), [])["pair"]
    unknown = {"k", "top_p", "top_k", "thinking", "chat_template_sha256", "adaptive", "draft_sampling"}
    assert {name for name in unknown if settings[name] is not None} == set()


def test_the_users_k_stands_above_the_servers(tmp_path: Path) -> None:
    said = Identity(models=("m",), k=6)
    assert provenance.comparable_settings(plan(tmp_path, k=3), said, [])["pair"]["k"] == 3
    assert provenance.comparable_settings(plan(tmp_path), said, [])["pair"]["k"] == 6


@pytest.mark.parametrize(
    ("records", "seen"),
    [
        ([], None),
        ([replace(ANSWER, status="failed", reasoning_text="hm")], None),
        ([ANSWER], False),
        ([ANSWER, replace(ANSWER, reasoning_text="hm")], True),
        ([replace(ANSWER, reasoning_tokens=4)], True),
        ([replace(ANSWER, reasoning_tokens=0, reasoning_text="")], False),
    ],
)
def test_thinking_is_what_was_seen_in_answers(records: list[RequestRecord], seen: bool | None) -> None:
    assert provenance.thinking_seen(records) is seen


def test_thinking_is_of_the_cells_own_answers(tmp_path: Path) -> None:
    made = plan(tmp_path, concurrency=(1, 2))
    thought = replace(ANSWER, cell_id="pair-c2", reasoning_text="hm")
    found = provenance.comparable_settings(made, Identity(models=("m",)), [replace(ANSWER, cell_id="pair-c1"), thought])
    assert (found["pair-c1"]["thinking"], found["pair-c2"]["thinking"]) == (False, True)


def test_packages_are_those_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version

    def without_uvloop(name: str) -> str:
        if name == "uvloop":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", without_uvloop)
    found = provenance.packages()
    assert found["spec-eval"] == __version__
    assert found["openai"] == real("openai")
    assert "uvloop" not in found


def test_the_machine_says_which_python() -> None:
    assert provenance.machine()["python"] == platform.python_version()


class Installed:
    """A distribution whose direct_url.json is that text."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    def read_text(self, name: str) -> str | None:
        return self._text if name == "direct_url.json" else None


def test_commit_is_the_one_that_was_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    told = '{"url": "https://example.org/x.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}'
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed(told))
    assert provenance.commit() == "c0ffee"


@pytest.mark.parametrize(
    ("checkout", "told"),
    [
        (git.Checkout("c0ffee", changed=False), "c0ffee"),
        (git.Checkout("c0ffee", changed=True), "c0ffee, changed since"),
        (None, None),
    ],
)
def test_commit_of_a_checkout_says_whether_it_was_changed(
    checkout: git.Checkout | None, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed(None))
    monkeypatch.setattr(git, "checkout", lambda *_: checkout)
    assert provenance.commit() == told
