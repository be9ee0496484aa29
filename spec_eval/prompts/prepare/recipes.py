"""How a placeholder is replaced where the source's own text is all that is missing.

Everything else (instructions of other papers, padding to a length, examples drawn at random) is not here.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

from spec_eval.errors import UsageError
from spec_eval.prompts import rows
from spec_eval.prompts.rows import Problem, Row
from spec_eval.prompts.speed_bench import PLACEHOLDERS, source_name

Key = str | int
_PREFIX = f"{PLACEHOLDERS[0]}\n\n"
_COMMIT = re.compile(r"/([0-9a-f]{40})(?=/|$)")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One source.

    files: patterns in its repository, `{part}` being what the row's src_id says. src_id: a pattern with `key`, and
    perhaps `part`. column: holds the key; null: the key is the record's number. fields: of the row's template, out of
    a record; null: `turns` makes all turns. revision: where the row's address names none. configs: null for all.
    """

    files: tuple[str, ...]
    column: str | None
    columns: tuple[str, ...]
    src_id: str = r"(?P<key>.+)"
    fields: Callable[[Row], dict[str, object]] | None = None
    turns: Callable[[Row], list[object]] | None = None
    revision: str | None = None
    configs: tuple[str, ...] | None = None
    on_hub: bool = True


def _pair(record: Row) -> dict[str, object]:
    # Both texts with their language codes, spelled as Python spells a dict: so NVIDIA's preparer sets them in.
    pair = record["translation"]
    return {"question": str({code: pair[code] for code in sorted(pair)})}


def _user_turns(record: Row) -> list[object]:
    return [entry["user"] for entry in record["history"]]


RECIPES = {
    "abisee/cnn_dailymail": Recipe(
        files=("3.0.0/test-*.parquet",),
        column="id",
        columns=("article",),
        fields=lambda record: {"article": record["article"]},
    ),
    "cais/hle": Recipe(
        files=("data/test-*.parquet",),
        column="id",
        columns=("question",),
        turns=lambda record: [record["question"]],
        revision="021a3d71f516a7ac28ceb8d284969902edf1edeb",
        configs=("qualitative",),
    ),
    "livecodebench/code_generation_lite": Recipe(
        files=("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl"),
        column="question_id",
        columns=("question_content", "starter_code"),
        fields=lambda record: {"question": record["question_content"], "starter_code": record["starter_code"]},
        revision="0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
    ),
    "deepmind/code_contests": Recipe(
        files=("data/test-*.parquet",),
        column="name",
        columns=("description",),
        fields=lambda record: {"question": record["description"]},
        revision="802411c3010cb00d1b05bad57ca77365a3c699d6",
    ),
    "mtbench101/mt-bench-101": Recipe(
        files=("data/subjective/mtbench101.jsonl",),
        column=None,
        columns=("history",),
        src_id=r".*_(?P<key>\d+)",
        turns=_user_turns,
        on_hub=False,
    ),
    "Helsinki-NLP/opus-100": Recipe(
        files=("{part}/test-*.parquet",),
        column=None,
        columns=("translation",),
        src_id=r"[^_]*_(?P<part>[A-Za-z-]+)_(?P<key>\d+)",
        fields=_pair,
        revision="805090dc28bf78897da9641cdf08b61287580df9",
    ),
}


@dataclass(frozen=True, slots=True)
class Group:
    """Rows whose texts lie in the same files of one source at one revision."""

    name: str
    revision: str | None
    files: tuple[str, ...]

    @property
    def recipe(self) -> Recipe:
        """Of the source."""
        return RECIPES[self.name]


def recipe_for(row: Row, config: str) -> Recipe | None:
    """Ours for a waiting row; null where the text is more than the source's."""
    recipe = RECIPES.get(source_name(row["source"]))
    if recipe is None or (recipe.configs is not None and config not in recipe.configs):
        return None
    return recipe if row["turns"][0].startswith(PLACEHOLDERS[0]) else None


def wanted(row: Row, recipe: Recipe) -> tuple[Group, Key]:
    """Where the text of `row` lies; ValueError where its src_id does not tell."""
    src_id = row["src_id"]
    match = re.fullmatch(recipe.src_id, src_id) if isinstance(src_id, str) else None
    if match is None:
        raise ValueError(f"src_id {src_id!r} names no record")
    parts = match.groupdict()
    files = tuple(pattern.replace("{part}", parts.get("part", "")) for pattern in recipe.files)
    commit = _COMMIT.search(str(row["source"]))
    group = Group(source_name(row["source"]), commit[1] if commit else recipe.revision, files)
    return group, int(parts["key"]) if recipe.column is None else parts["key"]


def texts(row: Row, recipe: Recipe, record: Row) -> list[str]:
    """The turns of `row`; ValueError where row and record do not fit together."""
    try:
        if recipe.turns is not None:
            turns = recipe.turns(record)
        else:
            assert recipe.fields is not None
            turns = [_filled(_template(row), recipe.fields(record))]
    except (KeyError, TypeError) as error:
        raise ValueError(f"its record is of another shape ({type(error).__name__}: {error})") from error
    if not turns:
        raise ValueError("its record holds no turns")
    good = [turn for turn in turns if isinstance(turn, str) and turn.strip()]
    if len(good) < len(turns):
        raise ValueError("its record holds a turn without text")
    for turn in good:
        try:
            turn.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"its text cannot be written as UTF-8 (character {error.start + 1})") from error
    return good


def take(group: Group, paths: list[Path], keys: set[Key]) -> dict[Key, Row]:
    """The records under `keys`; the first where there are several."""
    recipe, number = group.recipe, 0
    found: dict[Key, Row] = {}
    columns = (*((recipe.column,) if recipe.column else ()), *recipe.columns)
    for path in paths:
        for record in _records(path, columns):
            key = number if recipe.column is None else record[recipe.column]
            number += 1
            if key in keys and key not in found:
                found[key] = record
                if len(found) == len(keys):
                    return found
    return found


def _template(row: Row) -> str:
    if len(row["turns"]) != 1 or not row["turns"][0].startswith(_PREFIX):
        raise ValueError("no single template stands behind its placeholder")
    return str(row["turns"][0]).removeprefix(_PREFIX)


def _filled(template: str, fields: dict[str, object]) -> str:
    """As `str.format` does it, for plain names only: a template reaches into nothing."""
    parts: list[str] = []
    try:
        pieces = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"its template cannot be read ({error})") from error
    for text, name, layout, conversion in pieces:
        parts.append(text)
        if name is None:
            continue
        value = fields.get(name)
        if layout or conversion or not isinstance(value, str):
            raise ValueError(f"nothing of its record fills {{{name}}} of its template")
        parts.append(value)
    return "".join(parts)


def _records(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    if path.suffix == ".parquet":
        yield from _parquet(path, columns)
        return
    for where, row in rows.read([path]):
        if isinstance(row, Problem):
            raise UsageError(f"{path.parent}: {where}: {row.text}; fetch the file again")
        _check_columns(f"{path}", columns, row)
        yield row


def _parquet(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        with path.open("rb") as stream, pyarrow.parquet.ParquetFile(stream) as source:
            _check_columns(f"{path}", columns, source.schema_arrow.names)
            for batch in source.iter_batches(batch_size=64, columns=list(columns)):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: not readable parquet ({error}); fetch the file again") from error


def _check_columns(where: str, columns: tuple[str, ...], there: Any) -> None:
    if missing := [name for name in columns if name not in there]:
        raise UsageError(f"{where}: no column {missing[0]!r}; fetch the source at the revision that the rows name")
