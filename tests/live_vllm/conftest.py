"""One real vLLM server at a time: it starts in half a minute and fills two cores."""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.live_vllm.server import Drafter, Metrics, Server, serve

Serve = Callable[..., AbstractContextManager[Server]]


@dataclass
class _Kept:
    """The server that runs: the next test may ask for the same one, and starting it takes most of a minute."""

    settings: object = None
    server: Server | None = None
    ending: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def end(self) -> None:
        self.settings = self.server = None
        self.ending.close()


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """A context manager that serves SmolLM2 with a drafter; a server is ended when another one is asked for."""
    python = Path(os.environ["SPEC_EVAL_VLLM_PYTHON"])
    model = Path(os.environ["SPEC_EVAL_VLLM_MODEL"])
    logs = tmp_path_factory.mktemp("vllm")
    kept = _Kept()

    @contextlib.contextmanager
    def start(
        drafter: Drafter,
        *,
        metrics: Metrics = "detailed",
        prefix_caching: bool = False,
        prompt_tokens_details: bool = False,
        log_stats: bool = True,
    ) -> Iterator[Server]:
        settings = (drafter, metrics, prefix_caching, prompt_tokens_details, log_stats)
        if kept.server is None or kept.settings != settings:
            kept.end()
            asked = serve(
                drafter,
                python=python,
                model=model,
                log=logs / f"{drafter}.log",
                metrics=metrics,
                prefix_caching=prefix_caching,
                prompt_tokens_details=prompt_tokens_details,
                log_stats=log_stats,
            )
            kept.server, kept.settings = kept.ending.enter_context(asked), settings
        yield kept.server

    yield start
    kept.end()
