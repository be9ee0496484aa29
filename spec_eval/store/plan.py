"""The plan: everything that is decided before the first request."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from spec_eval.records import Unit
from spec_eval.suite import Sampling

SCHEMA_VERSION: Final = 1
_SETTINGS = {
    "suite_sha256",
    "target",
    "cells",
    "seed",
    "synthetic",
    "cold_cache",
    "first_turn_only",
    "reasoning_in_history",
}


class Stored(BaseModel):
    """Base of what is written into a run folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PromptRef(Stored):
    """Which prompts: where they came from, their hash (before any limit), and the chosen ones with their turns.

    duplicates: chosen prompts whose every turn another one before them has too.
    """

    source: str
    revision: str | None
    files: dict[str, str]
    sha256: str | None
    rows: int
    units: tuple[tuple[str, str, int], ...]
    duplicates: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    standin: bool = False
    preparation: dict[str, Any] | None = None


class Cell(Stored):
    """One data set at one setting. null is "not known".

    member: name of the suite it comes from. table: heading of the table that its rows go into. rows: one for the
    cell, or one for each category, in `order` first. units in `prompts` are (prompt_id, category, turns).
    repeats_of: by prompt_id, where an imported run asked it another number of times than `repeats`.
    """

    cell_id: str
    dataset: str
    title: str
    member: str | None = None
    table: str | None = None
    rows: Literal["cell", "category"] = "category"
    order: tuple[str, ...] = ()
    sampling: Sampling
    concurrency: int | None = Field(gt=0)
    repeats: int = Field(gt=0)
    prompts: PromptRef
    repeats_of: dict[str, int] = Field(default_factory=dict)

    @property
    def slots(self) -> int:
        """Conversations at a time, of a cell that is to be driven: never more than there are."""
        if self.concurrency is None:
            raise ValueError(f"cell {self.cell_id!r} was imported: it has no concurrency to drive it at")
        return min(self.concurrency, max(1, self.repeats * len(self.prompts.units)))

    def planned(self) -> int:
        """Requests."""
        return sum(turns * self.asked(prompt_id) for prompt_id, _, turns in self.prompts.units)

    def asked(self, prompt_id: str) -> int:
        """How often the conversation is had."""
        return self.repeats_of.get(prompt_id, self.repeats)

    def units(self) -> Iterator[Unit]:
        """Of every planned request."""
        for repeat in range(max(self.repeats, *self.repeats_of.values(), 0)):
            for prompt_id, _, turns in self.prompts.units:
                for turn in range(turns if repeat < self.asked(prompt_id) else 0):
                    yield self.cell_id, prompt_id, turn, repeat


class Member(Stored):
    """A suite file as it was used. path: of a file of the user's own, null for a shipped one."""

    text: str
    path: str | None = None


class Target(Stored):
    """What is measured. k: draft tokens a step, where the user or a recipe says so.

    base_url: null where spec-eval starts the server itself. Then: recipe and hardware with their whole content;
    model_file and draft_file as the user named them, null where they are the recipe's; variant: which of the recipe's.
    synthetic_rates: what the server was told to accept by, position by position; empty where acceptance is real.
    """

    engine: str
    model: str | None
    drafter: str | None
    k: int | None
    base_url: str | None = None
    recipe: dict[str, Any] | None = None
    adaptive: bool | None = None
    draft_sampling: str | None = None
    tensor_parallelism: int | None = None
    synthetic_rates: tuple[float, ...] = ()
    model_file: str | None = None
    draft_file: str | None = None
    hardware: dict[str, Any] | None = None
    variant: str | None = None

    @property
    def drafts(self) -> bool:
        """False where a recipe without a drafter was asked for: then there is nothing to count, and none is missing."""
        drafter = (self.recipe or {}).get("drafter")
        return not (isinstance(drafter, dict) and drafter.get("algorithm") == "none")


class PlanHead(Stored):
    """What the plans of all kinds of runs say. synthetic: why the figures are not real, or null."""

    run_id: str
    synthetic: str | None = None
    created: str
    spec_eval_version: str
    spec_eval_commit: str | None = None
    command: tuple[str, ...]
    suite_name: str
    suite_text: str
    suite_sha256: str | None
    overrides: dict[str, Any]
    target: Target
    seed: int | None
    max_failures: float = 0.05
    data_dir: str | None = None
    api_key_env: str | None = None
    trust_remote_code: bool = False


class Plan(PlanHead):
    """plan.json.

    origin: measured by us, or imported from another tool's files.
    server_wide: whether an imported run holds a server's totals and no request. tool: what wrote it, with its version.
    members: the simple suites that the cells come from, by name. not_stated, choices, card: of a compound suite.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    origin: Literal["measured", "imported"] = "measured"
    server_wide: bool = False
    tool: str | None = None
    members: dict[str, Member] = Field(default_factory=dict)
    not_stated: tuple[str, ...] = ()
    choices: dict[str, str] = Field(default_factory=dict)
    card: str | None = None
    cells: tuple[Cell, ...] = Field(min_length=1)
    cold_cache: bool = True
    first_turn_only: bool = False
    reasoning_in_history: bool = False

    @property
    def standin(self) -> bool:
        """Whether any prompt is made up in the shape of a real set."""
        return any(cell.prompts.standin for cell in self.cells)

    @property
    def settings_sha256(self) -> str:
        """Of all that must stay the same while a run is taken up again."""
        chosen = self.model_dump(mode="json", include=_SETTINGS)
        target = chosen["target"]
        target.pop("base_url")
        for name in ("draft_file", "hardware", "variant"):  # null in plans that are older than these keys
            if target[name] is None:
                target.pop(name)
        for cell in chosen["cells"]:
            cell.pop("repeats_of")  # of imported runs alone, which nobody takes up again
        return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()

    def stamped(self, why: str) -> "tuple[Plan, dict[str, str]]":
        """As synthetic, on the name of every cell too; and each cell's new name by its old one."""
        names = {cell.cell_id: f"synthetic-{cell.cell_id}" for cell in self.cells}
        renamed = tuple(cell.model_copy(update={"cell_id": names[cell.cell_id]}) for cell in self.cells)
        return self.model_copy(update={"synthetic": why, "cells": renamed}), names

    @property
    def slots(self) -> int:
        """Conversations at a time, in the cell that has most."""
        return max(cell.slots for cell in self.cells)

    @property
    def load_is_heavy(self) -> bool:
        """Our own driver takes little of a processor."""
        return False

    def planned(self) -> int:
        """Requests, all cells together."""
        return sum(cell.planned() for cell in self.cells)
