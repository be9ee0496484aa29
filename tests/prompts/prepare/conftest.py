from pathlib import Path

import pytest

from tests.prompts.prepare.made_up import fill_sources


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    return fill_sources(tmp_path / "sources")
