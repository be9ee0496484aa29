"""Options and fixtures of the live llama.cpp tests."""

import pytest

from tests import live


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="more steps, tighter bounds")


@pytest.fixture(scope="session")
def humaneval() -> list[str]:
    return live.humaneval_rows()
