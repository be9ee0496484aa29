"""Options and a suite into a plan; nothing here touches a server."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spec_eval import __version__, engines, prompts, recipe, suite
from spec_eval.engines.endpoint import Endpoint
from spec_eval.errors import UsageError
from spec_eval.prompts import PromptSet
from spec_eval.store import Cell, Plan, PromptRef, Target
from spec_eval.suite import SuiteFile

EMBEDDED = "embedded"


@dataclass(frozen=True)
class RunOptions:
    """What the command line says; null leaves it to the suite."""

    suite: str
    engine: str | None = None
    base_url: str | None = None
    serve: str | None = None
    model: str | None = None
    drafter: str | None = None
    k: int | None = None
    limit: int | None = None
    repeats: int | None = None
    concurrency: tuple[int, ...] = ()
    seed: int | None = 0
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    thinking: bool | None = None
    data_dir: Path | None = None
    out: Path = Path("results")
    max_failures: float = 0.05
    trust_remote_code: bool = False
    api_key_env: str = "OPENAI_API_KEY"
    command: tuple[str, ...] = ()

    def overrides(self) -> dict[str, Any]:
        """What differs from the suite file, by the option's name."""
        chosen = {
            "limit": self.limit,
            "repeats": self.repeats,
            "concurrency": list(self.concurrency) or None,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "thinking": self.thinking,
        }
        return {name: value for name, value in chosen.items() if value is not None}


@dataclass(frozen=True)
class Prepared:
    """A plan, with the prompts of each of its cells."""

    plan: Plan
    prompts: dict[str, PromptSet]


def prepare(options: RunOptions) -> Prepared:
    """Load the prompts and write down everything that is decided before the first request."""
    file = suite.find(options.suite)
    target = _target(options)
    prompt_set = prompts.load(file, data_dir=options.data_dir, trust_remote_code=options.trust_remote_code)
    chosen = prompt_set.limited(options.limit)
    cells = _cells(file, options, chosen, rows=len(prompt_set.entries))
    now = datetime.now(UTC)
    plan = Plan(
        run_id=f"{now:%Y%m%d-%H%M%S}-{file.suite.name}-{target.engine}",
        created=now.isoformat(timespec="seconds"),
        spec_eval_version=__version__,
        command=options.command,
        suite_name=file.suite.name,
        suite_text=file.text,
        suite_sha256=file.sha256,
        overrides=options.overrides(),
        target=target,
        cells=cells,
        seed=options.seed,
        max_failures=options.max_failures,
        data_dir=str(options.data_dir) if options.data_dir else None,
        api_key_env=options.api_key_env,
        trust_remote_code=options.trust_remote_code,
    )
    return Prepared(plan, {cell.cell_id: chosen for cell in cells})


def reload(plan: Plan, suite_path: Path) -> Prepared:
    """The prompts of a plan made earlier; UsageError where they are not the same any more."""
    file = SuiteFile(
        suite=suite.parse_toml(suite.Suite, plan.suite_text, suite_path), path=suite_path, text=plan.suite_text
    )
    data_dir = Path(plan.data_dir) if plan.data_dir else None
    loaded = prompts.load(file, data_dir=data_dir, trust_remote_code=plan.trust_remote_code)
    by_cell = {}
    for cell in plan.cells:
        if loaded.sha256 != cell.prompts.sha256:
            raise UsageError(f"{loaded.source}: the prompts changed since the run was planned; start a new run")
        by_cell[cell.cell_id] = loaded.only(prompt_id for prompt_id, _, _ in cell.prompts.units)
    return Prepared(plan, by_cell)


def dry_run(options: RunOptions) -> str:
    """What `run` would do, for people; sends nothing and writes nothing."""
    prepared = prepare(options)
    plan = prepared.plan
    conversations = sum(len(cell.prompts.units) * cell.repeats for cell in plan.cells)
    ceiling = sum(
        cell.repeats * cell.sampling.max_tokens * sum(t for _, _, t in cell.prompts.units) for cell in plan.cells
    )
    lines = [f"{plan.planned()} requests in {conversations} conversations, at most {ceiling} generated tokens"]
    for cell in plan.cells:
        first = next(iter(prepared.prompts[cell.cell_id]))
        lines += [
            f"{cell.cell_id}: {cell.prompts.source}, concurrency {cell.concurrency}, repeats {cell.repeats}, "
            f"{cell.sampling.model_dump(exclude_none=True)}",
            f"first: {first.prompt_id}: {first.turns[0][-1]['content'][:200]!r}",
        ]
    return "\n".join(lines)


def _target(options: RunOptions) -> Target:
    if options.engine == EMBEDDED or options.serve is not None:
        return _served(options)
    if options.engine is None or options.base_url is None:
        raise UsageError("no server: give --engine embedded, or --engine NAME with --base-url URL, or --serve RECIPE")
    engine = engines.find(options.engine)
    url = Endpoint.at(options.base_url).base_url
    return Target(engine=engine.name, model=options.model, drafter=options.drafter, k=options.k, base_url=url)


def _served(options: RunOptions) -> Target:
    if options.base_url is not None:
        raise UsageError("--base-url does not go with a server that spec-eval starts itself; drop one of the two")
    chosen = recipe.find(options.serve or recipe.EMBEDDED)
    if options.engine not in (None, EMBEDDED, chosen.engine):
        raise UsageError(f"recipe {chosen.name!r} is for engine {chosen.engine}, not {options.engine}; drop --engine")
    return Target(
        engine=chosen.engine,
        model=chosen.target.name,
        drafter=options.drafter or chosen.drafter.name,
        k=options.k or chosen.drafter.k,
        recipe=chosen.model_dump(mode="json") | ({"model_file": options.model} if options.model else {}),
        adaptive=False,
        draft_sampling="none",
        tensor_parallelism=1,
    )


def _cells(file: SuiteFile, options: RunOptions, chosen: PromptSet, rows: int) -> tuple[Cell, ...]:
    given = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "max_tokens": options.max_tokens,
        "thinking": options.thinking,
    }
    sampling = file.suite.sampling.model_copy(update={k: v for k, v in given.items() if v is not None})
    levels = options.concurrency or (file.suite.load.concurrency,)
    reference = PromptRef(
        source=chosen.source,
        revision=chosen.revision,
        files=chosen.files,
        sha256=chosen.sha256,
        rows=rows,
        units=tuple((entry.prompt_id, entry.category, entry.turns) for entry in chosen.entries),
        notes=chosen.notes,
    )
    return tuple(
        Cell(
            cell_id=file.suite.name if len(levels) == 1 else f"{file.suite.name}-c{level}",
            dataset=file.suite.name,
            title=file.suite.title,
            sampling=sampling,
            concurrency=level,
            repeats=options.repeats or file.suite.load.repeats,
            prompts=reference,
        )
        for level in levels
    )
