"""A suite into cells: one for each data set at each setting."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from spec_eval import prompts, suite, toml
from spec_eval.errors import UsageError
from spec_eval.prompts import PromptSet
from spec_eval.run.options import RunOptions
from spec_eval.store import Cell, PromptRef
from spec_eval.store.plan import Member
from spec_eval.suite import CellSpec, CompoundSuite, Load, Sampling, Select, Suite, SuiteFile

STANDIN = "stand-in"


@dataclass(frozen=True)
class LaidOut:
    """The cells of a plan, the suites they come from, and the prompts of each."""

    cells: tuple[Cell, ...]
    members: dict[str, Member]
    prompts: dict[str, PromptSet]


@dataclass(frozen=True)
class _Wanted:
    """One cell before its prompts are known."""

    id: str
    file: SuiteFile
    title: str
    table: str | None
    rows: str
    order: tuple[str, ...]
    sampling: Sampling
    load: Load
    select: Select


def lay_out(file: SuiteFile, options: RunOptions) -> LaidOut:
    """Load each data set once, apply the overrides, and make a cell for every level of concurrency."""
    loaded: dict[Path, PromptSet] = {}
    cells: dict[str, Cell] = {}
    members: dict[str, Member] = {}
    chosen: dict[str, PromptSet] = {}
    for wanted in _wanted(file, override(options)):
        if wanted.file.path not in loaded:
            loaded[wanted.file.path] = prompts.load(
                wanted.file,
                data_dir=options.data_dir,
                trust_remote_code=options.trust_remote_code,
                first_turn_only=options.first_turn_only,
            )
        whole = loaded[wanted.file.path]
        prompt_set = _select(whole, wanted, options.limit)
        name = wanted.file.simple.name
        member = Member(text=wanted.file.text, path=None if wanted.file.is_shipped else str(wanted.file.path.resolve()))
        if members.setdefault(name, member) != member:
            raise UsageError(f"{wanted.file.path}: another suite of this card is called {name!r} too; rename one")
        levels = options.concurrency or (wanted.load.concurrency,)
        for level in levels:
            cell = _cell(wanted, whole, prompt_set, level, options, suffix=len(levels) > 1)
            cells[cell.cell_id] = cell
            chosen[cell.cell_id] = prompt_set
    return LaidOut(tuple(cells.values()), members, chosen)


def _wanted(file: SuiteFile, given: Sampling) -> Iterator[_Wanted]:
    if isinstance(file.suite, CompoundSuite):
        for spec in file.suite.cells:
            yield _of_card(file.suite, spec, suite.find(spec.suite, file.path.parent), given)
        return
    simple = file.simple
    yield _Wanted(
        id=simple.name,
        file=file,
        title=simple.title,
        table=None,
        rows="category",
        order=(),
        sampling=given.over(simple.sampling),
        load=simple.load,
        select=simple.select,
    )


def override(options: RunOptions) -> Sampling:
    """What the command line says of sampling; UsageError names the option that cannot be."""
    try:
        return Sampling(
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            top_p=options.top_p,
            thinking=options.thinking,
        )
    except ValidationError as error:
        first = error.errors()[0]
        option = f"--{str(first['loc'][0]).replace('_', '-')}"
        raise UsageError(f"{option} {first['input']}: {first['msg']}; give another value") from error


def _of_card(card: CompoundSuite, spec: CellSpec, file: SuiteFile, given: Sampling) -> _Wanted:
    simple = file.simple
    return _Wanted(
        id=spec.id,
        file=file,
        title=spec.title,
        table=spec.table,
        rows=spec.rows,
        order=spec.order,
        sampling=given.over(spec.sampling.over(card.sampling.over(simple.sampling))),
        load=Load(concurrency=spec.concurrency or card.load.concurrency, repeats=spec.repeats or card.load.repeats),
        select=spec.select or simple.select,
    )


def _select(whole: PromptSet, wanted: _Wanted, limit: int | None) -> PromptSet:
    known = {entry.category for entry in whole.entries}
    # Made-up rows need not have every category of the real set, which a card's order names.
    for names, verb in ((wanted.select.categories, "selects"), (() if whole.standin else wanted.order, "orders")):
        if unknown := [name for name in names if name not in known]:
            hint = toml.nearest(unknown[0], sorted(known))
            raise UsageError(f"{whole.source}: no rows of {', '.join(unknown)}, which {wanted.id} {verb}{hint}")
    return whole.selected(wanted.select.categories, wanted.select.first).limited(limit)


def _cell(
    wanted: _Wanted, whole: PromptSet, chosen: PromptSet, level: int, options: RunOptions, *, suffix: bool
) -> Cell:
    simple = wanted.file.simple
    name, title = named(simple, wanted.title, in_table=wanted.table is not None, standin=whole.standin)
    cell_id = f"{STANDIN}-{wanted.id}" if whole.standin and wanted.table else (name if not wanted.table else wanted.id)
    return Cell(
        cell_id=f"{cell_id}-c{level}" if suffix else cell_id,
        dataset=name,
        title=title,
        member=simple.name,
        table=wanted.table,
        rows="cell" if wanted.rows == "cell" else "category",
        order=wanted.order,
        sampling=wanted.sampling,
        concurrency=level,
        repeats=options.repeats or wanted.load.repeats,
        prompts=reference(whole, chosen),
    )


def reference(whole: PromptSet, chosen: PromptSet) -> PromptRef:
    """What a plan keeps of its prompts."""
    return PromptRef(
        source=chosen.source,
        revision=chosen.revision,
        files=chosen.files,
        sha256=chosen.sha256,
        rows=whole.rows,
        units=tuple((entry.prompt_id, entry.category, entry.turns) for entry in chosen.entries),
        duplicates=chosen.duplicates,
        notes=chosen.notes,
        standin=whole.standin,
        preparation=whole.preparation,
    )


def named(simple: Suite, title: str, *, in_table: bool, standin: bool) -> tuple[str, str]:
    """(data set, title); made-up rows carry neither the real set's name nor its title."""
    if not standin:
        return simple.name, title
    alias = f"{STANDIN}-{simple.data.standin or 'rows'}"
    return alias, title if in_table else f"{STANDIN} {simple.data.standin or 'rows'}"
