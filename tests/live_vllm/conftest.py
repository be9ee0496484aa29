"""One real vLLM server at a time: it starts in half a minute and fills two cores."""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests import live
from tests.live_vllm.server import Drafter, Metrics, Server, serve

Serve = Callable[..., AbstractContextManager[Server]]


@pytest.fixture(scope="session")
def humaneval() -> list[str]:
    return live.humaneval_rows()


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """A context manager that serves SmolLM2 with a drafter."""
    python = Path(os.environ["SPEC_EVAL_VLLM_PYTHON"])
    model = Path(os.environ["SPEC_EVAL_VLLM_MODEL"])
    logs = tmp_path_factory.mktemp("vllm")

    @contextlib.contextmanager
    def start(
        drafter: Drafter,
        *,
        metrics: Metrics = "detailed",
        prefix_caching: bool = False,
        prompt_tokens_details: bool = False,
        log_stats: bool = True,
    ) -> Iterator[Server]:
        with serve(
            drafter,
            python=python,
            model=model,
            log=logs / f"{drafter}.log",
            metrics=metrics,
            prefix_caching=prefix_caching,
            prompt_tokens_details=prompt_tokens_details,
            log_stats=log_stats,
        ) as server:
            yield server

    return start
