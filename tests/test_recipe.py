from pathlib import Path

import pytest

from spec_eval import recipe
from spec_eval.errors import UsageError

GOOD = """\
schema_version = 1
name = "mouse"
description = "a mouse of a model"
engine = "llamacpp"

[target]
name = "mouse-1b"
package = "mouse_wheel"
file = "mouse.gguf"
sha256 = "00"

[drafter]
name = "ngram-simple"
algorithm = "ngram-simple"
k = 5
match = 2

[embedded]
slot_context = 512
threads = 1
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mouse.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_recipe_is_found_by_path(tmp_path: Path) -> None:
    found = recipe.find(written(tmp_path, GOOD))
    assert (found.name, found.engine, found.target.file) == ("mouse", "llamacpp", "mouse.gguf")
    assert (found.drafter.k, found.drafter.match) == (5, 2)
    assert (found.embedded.slot_context, found.embedded.threads) == (512, 1)


def test_embedded_recipe_is_shipped_and_counts_drafts() -> None:
    found = recipe.find(recipe.EMBEDDED_RECIPE)
    assert found.name == recipe.EMBEDDED_RECIPE
    assert found.engine == "llamacpp"
    assert found.drafter.k == 8
    assert len(found.target.sha256) == 64


def test_unknown_recipe_lists_the_shipped_ones() -> None:
    with pytest.raises(UsageError, match=r"no recipe 'smollm3', did you mean 'smollm2-ngram'\?"):
        recipe.find("smollm3")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("threads = 1", "thread = 1", "unknown key 'embedded.thread', did you mean 'threads'"),
        ("[drafter]", "[draftr]", "unknown key 'draftr', did you mean 'drafter'"),
        ("k = 5", "k = 0", "drafter.k: "),
        ('engine = "llamacpp"', 'engine = "abacus"', "engine: "),
        ("schema_version = 1", "schema_version = 9", "schema_version 9"),
        ("[target]", "[target", "not TOML"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        recipe.find(written(tmp_path, GOOD.replace(old, new)))
    assert message in str(caught.value)
    assert "mouse.toml" in str(caught.value)


def test_recipe_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(GOOD.replace("mouse of", "souris \xe9").encode("latin-1"))
    with pytest.raises(UsageError, match=r"latin\.toml"):
        recipe.find(str(path))
