"""Whether two runs may be compared: which settings they must share, cell by cell, and what only is shown.

`docs/design/compare.md` gives the reasons.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spec_eval import toml
from spec_eval.errors import UsageError

Settings = Mapping[str, Mapping[str, Any]]
# Whatever else stands in a run's settings must be equal too; these are the ones that every run has.
KEYS = (
    *("k", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "max_tokens"),
    *("first_turn_only", "reasoning_in_history", "thinking", "chat_template_sha256", "suite_sha256", "data_sha256"),
    *("adaptive", "draft_sampling", "prefix_caching", "concurrency", "tensor_parallelism", "estimator", "synthetic"),
)
# How a bare description calls the hash of its data.
DESCRIBED = ("dataset_sha256",)
SYNTHETIC = "synthetic"
CELL = "cell"
# The one cell of a description; it stands for every cell of the other side.
ANY_CELL = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting in which two runs differ, or a cell that only one of them has (key "cell").

    a, b: the values; null is "not known", or no such cell. cells: where; empty for two descriptions.
    """

    key: str
    a: Any
    b: Any
    cells: tuple[str, ...]
    allowed: bool = False

    def sentence(self) -> str:
        """For people."""
        if self.key == CELL:
            return f"cell {self.a or self.b!r} is only in {'A' if self.a else 'B'}"
        where = f" ({', '.join(self.cells[:3])}{', …' if len(self.cells) > 3 else ''})" if self.cells else ""
        return f"{self.key} {shown(self.a)} against {shown(self.b)}{where}"


@dataclass(frozen=True, slots=True)
class Comparability:
    """What keeps two runs from being compared, and what a reader must know where nothing does.

    unknown: keys that are null on both sides in some cell. allowed: keys that the user lets differ.
    problems: why a side can be compared with nothing.
    """

    differences: tuple[Difference, ...]
    unknown: tuple[str, ...]
    allowed: tuple[str, ...]
    problems: tuple[str, ...] = ()

    @property
    def comparable(self) -> bool:
        """Whether nothing stands in the way."""
        return not self.problems and all(one.allowed for one in self.differences)

    def sentence(self) -> str:
        """Everything that stands in the way, in one line."""
        return "; ".join([*(one.sentence() for one in self.differences if not one.allowed), *self.problems])


def judge(a: Settings, b: Settings, *, allow: Iterable[str] = (), problems: Sequence[str] = ()) -> Comparability:
    """Compare the settings of two runs cell by cell; UsageError for an allowed key that there is not.

    null against a value is a difference; null against null is none, and the key is named as unknown.
    """
    pairs, found = _cells(a, b)
    tables = [*a.values(), *b.values()]
    keys = list(dict.fromkeys([*KEYS, *(key for table in tables for key in table)]))
    allowed = _allowed(allow, keys)
    unknown: list[str] = []
    for key in keys:
        grouped: dict[tuple[str, str], tuple[Any, Any, list[str]]] = {}
        for cell, left, right in pairs:
            one, other = left.get(key), right.get(key)
            if _equal(one, other):
                if one is None and key != SYNTHETIC and (key in KEYS or key in left or key in right):
                    unknown.append(key)
                continue
            place = grouped.setdefault((repr(one), repr(other)), (one, other, []))
            place[2].extend([cell] if cell else [])
        found += [
            Difference(key, one, other, tuple(cells), allowed=key in allowed) for one, other, cells in grouped.values()
        ]
    return Comparability(tuple(found), tuple(dict.fromkeys(unknown)), allowed, tuple(problems))


def _cells(a: Settings, b: Settings) -> tuple[list[tuple[str, Mapping[str, Any], Mapping[str, Any]]], list[Difference]]:
    """(cell, settings in a, settings in b) of every cell that both have, and the cells that one lacks."""
    if ANY_CELL in a:
        return [(cell, a[ANY_CELL], table) for cell, table in b.items()], []
    if ANY_CELL in b:
        return [(cell, table, b[ANY_CELL]) for cell, table in a.items()], []
    a, b = _unmarked(a), _unmarked(b)
    missing = [Difference(CELL, cell, None, (cell,)) for cell in a if cell not in b]
    missing += [Difference(CELL, None, cell, (cell,)) for cell in b if cell not in a]
    return [(cell, table, b[cell]) for cell, table in a.items() if cell in b], missing


def _unmarked(settings: Settings) -> Settings:
    """A synthetic run has the word on its cells too: they are the same ones, and its settings tell the difference."""
    return {
        cell.removeprefix(f"{SYNTHETIC}-") if table.get(SYNTHETIC) else cell: table for cell, table in settings.items()
    }


def _allowed(allow: Iterable[str], keys: Sequence[str]) -> tuple[str, ...]:
    known = [key for key in keys if key != SYNTHETIC]
    chosen = tuple(dict.fromkeys(allow))
    for key in chosen:
        if key == SYNTHETIC:
            raise UsageError("--allow synthetic: acceptance that was told to the server proves nothing of a drafter")
        if key not in known:
            raise UsageError(f"--allow {key}: no such setting{toml.nearest(key, known)}")
    return chosen


def _equal(a: Any, b: Any) -> bool:
    """0.0 equals 0, but true is not 1."""
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def shown(value: Any) -> str:
    """A setting in a sentence."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
