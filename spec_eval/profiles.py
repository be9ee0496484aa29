"""Acceptance profiles: the rows of published model cards, and files of the user's own.

A profile gives, for draft positions 1 to k, the share of steps that accept at least that many drafts. Card rows are
named CARD:TABLE:ROW, as in glm-5.3-dflash2-preview:basic-t0:HumanEval.
"""

import csv
import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from spec_eval import shipped, toml
from spec_eval.errors import UsageError
from spec_eval.jsontext import is_version


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


def by_length() -> dict[str, Profile]:
    """Rows of the published cards that print an acceptance length without positions, by name.

    Their positions are made up to fit the length: every draft is accepted with one and the same probability, given
    that those before it were.
    """
    with (shipped.folder("profiles") / "published-lengths.csv").open(encoding="utf-8", newline="") as stream:
        profiles = [_from_length(row) for row in csv.DictReader(stream)]
    return {profile.name: profile for profile in profiles}


def table(name: str) -> dict[str, Profile]:
    """The rows of the published table CARD:TABLE, by their labels."""
    known = {**published(), **by_length()}
    rows = {full.removeprefix(f"{name}:"): profile for full, profile in known.items() if full.startswith(f"{name}:")}
    if not rows or any(":" in label for label in rows):
        tables = sorted({full.rpartition(":")[0] for full in known})
        raise UsageError(f"no table {name!r} of a published card{toml.nearest(name, tables)}")
    return rows


def find(name: str) -> Profile:
    """The published row of that name, or the profile in that TOML file."""
    if name.endswith(".toml"):
        return _from_file(Path(name))
    known = {**published(), **by_length()}
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


def _from_length(row: dict[str, str]) -> Profile:
    length, rate = row["acceptance_length"], row["acceptance_rate_pct"]
    return Profile(
        name=f"{row['card']}:{row['table']}:{row['row']}",
        positions=_geometric(float(length), int(row["k"])),
        source=f"model card {row['model']}; it prints no positions, these are made up to fit its length",
        temperature=float(row["temperature"]),
        acceptance_length=float(length),
        acceptance_rate=float(rate) / 100 if rate else None,
        printed=(length, rate),
    )


def _geometric(length: float, k: int) -> tuple[float, ...]:
    """Shares q, q², …, qᵏ in steps of 1/10000 that sum to length − 1, exactly where it has four decimals."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**i for i in range(1, k + 1)) < length - 1 else (low, middle)
    shares = [round(low**i * 10_000) for i in range(1, k + 1)]
    missing = round((length - 1) * 10_000) - sum(shares)
    # What rounding lost or added, at most k / 2: one each, so that the shares still fall.
    for i in range(abs(missing)):
        shares[i if missing > 0 else -1 - i] += 1 if missing > 0 else -1
    return tuple(share / 10_000 for share in shares)


def _from_file(path: Path) -> Profile:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}; a profile is a TOML file with `positions = [0.8, 0.6]`") from error
    positions = content.get("positions")
    if unknown := content.keys() - {"schema_version", "positions", "source"}:
        raise UsageError(f"{path}: unknown key {min(unknown)!r}; known keys: schema_version, positions, source")
    if not is_version(content.get("schema_version"), 1):
        raise UsageError(f"{path}: schema_version {content.get('schema_version')!r}; set `schema_version = 1`")
    if not isinstance(positions, list) or not positions or not all(type(p) in (float, int) for p in positions):
        raise UsageError(f"{path}: positions is not a list of shares; write it as [0.8, 0.6]")
    falling = all(0 <= b <= a <= 1 for a, b in zip([1, *positions], positions, strict=False))
    if not falling:
        raise UsageError(f"{path}: positions do not fall from at most 1 to at least 0; position i counts steps >= i")
    return Profile(path.stem, tuple(float(p) for p in positions), str(content.get("source", path.name)))
