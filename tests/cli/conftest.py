"""The command line in this process, a server, and the stand-in for AIPerf."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spec_eval import cli
from tests import fake_aiperf
from tests.cli.throughput import Face
from tests.llamacpp_server import LlamaCppServer


@pytest.fixture
def face(capsys: pytest.CaptureFixture[str]) -> Face:
    def call(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main([*map(str, argv)])
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return int(left.value.code), captured.out, captured.err

    return call


@pytest.fixture
def server() -> Iterator[LlamaCppServer]:
    with LlamaCppServer() as running:
        yield running


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """AIPerf's stand-in is the one that is found, and notes its calls here."""
    monkeypatch.setenv("SPEC_EVAL_AIPERF", str(fake_aiperf.executable(tmp_path / "tool")))
    monkeypatch.setenv("FAKE_AIPERF_SEEN", str(tmp_path / "seen.jsonl"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path / "seen.jsonl"
