"""Hardware profiles: TOML into frozen types. What a server may use, and what engines must be told there."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from spec_eval import shipped, toml
from spec_eval.errors import UsageError
from spec_eval.recipe import Environment, Flags
from spec_eval.toml import Frozen


class OnHardware(Frozen):
    """What an engine is told on this hardware, whatever it serves; a recipe's own word wins."""

    flags: Flags = Field(default_factory=dict)
    env: Environment = Field(default_factory=dict)


class Hardware(Frozen):
    """One profile. gpus: how many, 0 for none. memory_gb: of one GPU, in units of 10⁹ bytes, by its maker."""

    schema_version: int
    name: str
    description: str
    gpus: int = Field(ge=0)
    memory_gb: int | None = Field(default=None, gt=0)
    engines: dict[str, OnHardware] = Field(default_factory=dict)


def find(name: str) -> Hardware:
    """The profile called `name` among the shipped ones, or the TOML file at that path."""
    shipped_path = shipped.folder("hardware") / f"{name}.toml"
    path = shipped_path if shipped_path.is_file() else Path(name)
    if path.suffix != ".toml" or not path.is_file():
        known = [one.name for one in shipped_hardware()]
        raise UsageError(
            f"no hardware {name!r}{toml.nearest(name, known)}; `spec-eval list hardware` names them, "
            "or give the path of a .toml file"
        )
    return toml.parse(Hardware, toml.read_text(path), path)


def shipped_hardware() -> Iterator[Hardware]:
    """Every profile that comes with spec-eval, by name."""
    files = sorted(shipped.folder("hardware").glob("*.toml"), key=lambda path: path.stem)
    return (toml.parse(Hardware, toml.read_text(path), path) for path in files)
