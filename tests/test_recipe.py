from pathlib import Path

import pytest

from spec_eval import recipe
from spec_eval.errors import UsageError

GOOD = """\
schema_version = 1
name = "mouse"
description = "a mouse of a model"

[target]
name = "mouse-1b"
variants = { fp8 = "house/mouse-FP8", bf16 = "house/mouse" }

[drafter]
algorithm = "dflash2"
model = "house/mouse-draft"
k = 5
block = 6

[engines.vllm]
env = { A = "1" }
speculative = { kv_cache_dtype = "auto" }

[engines.vllm.flags]
max-model-len = 512
enforce-eager = true

[engines.vllm.hardware]
8xh200 = { from_card = true, memory = "0.90" }
"""
ALGORITHMS = {"dflash2", "dspark", "mtp", "eagle3", "draft-model", "ngram", "suffix", "none"}


def written(folder: Path, text: str) -> str:
    path = folder / "mouse.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_recipe_is_found_by_path(tmp_path: Path) -> None:
    found = recipe.find(written(tmp_path, GOOD))
    assert found.target is not None
    assert list(found.target.variants.items()) == [("fp8", "house/mouse-FP8"), ("bf16", "house/mouse")]
    assert (found.drafter.k, found.drafter.block, found.drafter.adaptive) == (5, 6, False)
    vllm = found.engines["vllm"]
    assert vllm.flags == {"max-model-len": 512, "enforce-eager": True}
    assert vllm.flags["enforce-eager"] is True, "a flag without a value is no number"
    assert (vllm.k, vllm.hardware["8xh200"].memory, vllm.hardware["8xh200"].from_card) == (None, "0.90", True)


def test_embedded_recipe_is_shipped_and_counts_drafts() -> None:
    found = recipe.find(recipe.EMBEDDED_RECIPE)
    assert found.name == recipe.EMBEDDED_RECIPE
    assert next(iter(found.engines)) == "llamacpp"
    assert found.drafter.k == 8
    assert found.target is not None
    assert found.target.file is not None
    assert len(found.target.file.sha256) == 64


def test_every_kind_of_drafter_has_a_recipe_and_every_recipe_its_files_name() -> None:
    shipped = list(recipe.shipped_recipes())
    assert {one.drafter.algorithm for one in shipped} == ALGORITHMS
    for one in shipped:
        assert recipe.find(one.name) == one
        assert (one.drafter.k is None) == (one.drafter.algorithm == "none")


def test_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no recipe 'glm-5\.3-dspar', did you mean 'glm-5\.3-dspark'\?"):
        recipe.find("glm-5.3-dspar")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("block = 6", "blok = 6", "unknown key 'drafter.blok', did you mean 'block'"),
        ("[drafter]", "[draftr]", "unknown key 'draftr', did you mean 'drafter'"),
        ("k = 5", "k = 0", "drafter.k: "),
        ("k = 5", "", "k is needed, in drafts"),
        ('algorithm = "dflash2"\nmodel = "house/mouse-draft"', 'algorithm = "none"', "without a drafter there is no k"),
        ('algorithm = "dflash2"', 'algorithm = "ngram"', "ngram has no draft model"),
        ('algorithm = "dflash2"', 'algorithm = "abacus"', "drafter.algorithm: "),
        ("max-model-len = 512", "--max-model-len = 512", "engines.vllm.flags.--max-model-len"),
        ('env = { A = "1" }', 'env = { HF_TOKEN = "hf_1" }', "HF_TOKEN looks like a secret"),
        ('memory = "0.90"', 'memory = "90%"', "engines.vllm.hardware.8xh200.memory: "),
        ("fp8 = ", "fp4 = ", "target.variants.fp4"),
        ("schema_version = 1", "schema_version = 9", "schema_version 9"),
        ("[target]", "[target", "not TOML"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        recipe.find(written(tmp_path, GOOD.replace(old, new)))
    assert message in str(caught.value)
    assert "mouse.toml" in str(caught.value)


def test_a_recipe_for_no_engine_is_refused(tmp_path: Path) -> None:
    head = GOOD[: GOOD.index("[engines.vllm]")]
    with pytest.raises(UsageError, match="engines: "):
        recipe.find(written(tmp_path, f"{head}\n[engines]\n"))


def test_recipe_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(GOOD.replace("mouse of", "souris \xe9").encode("latin-1"))
    with pytest.raises(UsageError, match=r"latin\.toml"):
        recipe.find(str(path))
