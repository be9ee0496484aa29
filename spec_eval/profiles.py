"""Acceptance profiles: the rows of published model cards, and files of the user's own.

A profile gives, for draft positions 1 to k, the share of steps that accept at least that many drafts. Card rows are
named CARD:TABLE:ROW, as in glm-5.3-dflash2-preview:basic-t0:HumanEval.
"""

import csv
import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from spec_eval import shipped
from spec_eval.errors import UsageError


@dataclass(frozen=True, slots=True)
class Profile:
    """positions[i - 1]: share of steps that accept at least i drafts, as a fraction. source: where it stands.

    acceptance_length, acceptance_rate: as printed beside it (the rate as a fraction), or null. printed: the row's
    numbers as text, for comparing digits.
    """

    name: str
    positions: tuple[float, ...]
    source: str
    temperature: float | None = None
    acceptance_length: float | None = None
    acceptance_rate: float | None = None
    printed: tuple[str, ...] = ()

    @property
    def k(self) -> int:
        """Draft tokens a step."""
        return len(self.positions)


def published() -> dict[str, Profile]:
    """Every row with positions of the published cards, by name."""
    with (shipped.folder("profiles") / "published.csv").open(encoding="utf-8", newline="") as stream:
        profiles = [_from_row(row) for row in csv.DictReader(stream)]
    return {profile.name: profile for profile in profiles}


def find(name: str) -> Profile:
    """The published row of that name, or the profile in that TOML file."""
    if name.endswith(".toml"):
        return _from_file(Path(name))
    known = published()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.3)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"no profile {name!r}{hint}; `spec-eval list profiles` names them, or give a .toml file")
    return known[name]


def _from_row(row: dict[str, str]) -> Profile:
    k = int(row["k"])
    positions = [row[f"position_{i}_pct"] for i in range(1, k + 1)]
    rate = row["acceptance_rate_pct"]
    return Profile(
        name=f"{row['card']}:{row['table']}:{row['row']}",
        positions=tuple(float(p) / 100 for p in positions),
        source=f"model card {row['model']}",
        temperature=float(row["temperature"]),
        acceptance_length=float(row["acceptance_length"]),
        acceptance_rate=float(rate) / 100 if rate else None,
        printed=(row["acceptance_length"], rate, *positions),
    )


def _from_file(path: Path) -> Profile:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}; a profile is a TOML file with `positions = [0.8, 0.6]`") from error
    positions = content.get("positions")
    if unknown := content.keys() - {"schema_version", "positions", "source"}:
        raise UsageError(f"{path}: unknown key {min(unknown)!r}; known keys: schema_version, positions, source")
    if content.get("schema_version") != 1:
        raise UsageError(f"{path}: schema_version {content.get('schema_version')!r}; set `schema_version = 1`")
    if not isinstance(positions, list) or not positions or not all(type(p) in (float, int) for p in positions):
        raise UsageError(f"{path}: positions is not a list of shares; write it as [0.8, 0.6]")
    falling = all(0 <= b <= a <= 1 for a, b in zip([1, *positions], positions, strict=False))
    if not falling:
        raise UsageError(f"{path}: positions do not fall from at most 1 to at least 0; position i counts steps >= i")
    return Profile(path.stem, tuple(float(p) for p in positions), str(content.get("source", path.name)))
