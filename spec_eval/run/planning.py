"""Options and a suite into a plan; nothing here touches a server."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spec_eval import __version__, engines, profiles, prompts, recipe, suite
from spec_eval.engines.endpoint import Endpoint
from spec_eval.errors import UsageError
from spec_eval.prompts import PromptSet
from spec_eval.store import Cell, Plan, PromptRef, Target
from spec_eval.suite import Sampling, SuiteFile

EMBEDDED = "embedded"
SYNTHETIC = "synthetic"


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
    known_answer: str | None = None
    adaptive: bool | None = None
    cold_cache: bool = True
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
    synthetic = _synthetic(options)
    now = datetime.now(UTC)
    plan = Plan(
        run_id=f"{now:%Y%m%d-%H%M%S}-{file.suite.name}-{target.engine}",
        synthetic=synthetic,
        created=now.isoformat(timespec="seconds"),
        spec_eval_version=__version__,
        command=options.command,
        suite_name=file.suite.name,
        suite_path=None if file.is_shipped else str(file.path.resolve()),
        suite_text=file.text,
        suite_sha256=file.sha256,
        overrides=options.overrides(),
        target=target,
        cells=cells,
        seed=options.seed,
        max_failures=options.max_failures,
        cold_cache=options.cold_cache,
        data_dir=str(options.data_dir.resolve()) if options.data_dir else None,
        api_key_env=options.api_key_env,
        trust_remote_code=options.trust_remote_code,
    )
    return Prepared(plan, {cell.cell_id: chosen for cell in cells})


def reload(plan: Plan) -> Prepared:
    """The prompts of a plan made earlier; UsageError where they are not the same any more."""
    file = suite.restored(plan.suite_text, plan.suite_name, plan.suite_path)
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
        cell.repeats * (cell.sampling.max_tokens or 0) * sum(turns for _, _, turns in cell.prompts.units)
        for cell in plan.cells
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
    if options.known_answer is not None:
        raise UsageError("--known-answer needs a server that spec-eval starts itself; give --engine embedded")
    if options.engine is None or options.base_url is None:
        raise UsageError("no server: give --engine embedded, or --engine NAME with --base-url URL, or --serve RECIPE")
    engine = engines.find(options.engine)
    url = Endpoint.at(options.base_url).base_url
    return Target(
        engine=engine.name,
        model=options.model,
        drafter=options.drafter,
        k=options.k,
        base_url=url,
        adaptive=options.adaptive,
    )


def _served(options: RunOptions) -> Target:
    if options.base_url is not None:
        raise UsageError("--base-url does not go with a server that spec-eval starts itself; drop one of the two")
    chosen = recipe.find(options.serve or recipe.EMBEDDED)
    if options.engine not in (None, EMBEDDED, chosen.engine):
        raise UsageError(f"recipe {chosen.name!r} is for engine {chosen.engine}, not {options.engine}; drop --engine")
    profile = profiles.find(options.known_answer) if options.known_answer else None
    if profile is not None and options.k not in (None, profile.k):
        raise UsageError(f"--k {options.k} against --known-answer {profile.name}, which has k {profile.k}; drop --k")
    own_name = f"{SYNTHETIC}-{profile.name}" if profile else chosen.drafter.name
    return Target(
        engine=chosen.engine,
        model=chosen.target.name,
        drafter=options.drafter or own_name,
        k=profile.k if profile else options.k or chosen.drafter.k,
        synthetic_rates=profile.positions if profile else (),
        recipe=chosen.model_dump(mode="json") | ({"model_file": options.model} if options.model else {}),
        adaptive=False,
        draft_sampling=SYNTHETIC if profile else "none",
        tensor_parallelism=1,
    )


def _synthetic(options: RunOptions) -> str | None:
    if options.known_answer is None:
        return None
    profile = profiles.find(options.known_answer)
    return f"llama.cpp accepted at the rates of {profile.name} ({profile.source}), not by comparing tokens"


def _cells(file: SuiteFile, options: RunOptions, chosen: PromptSet, rows: int) -> tuple[Cell, ...]:
    given = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "max_tokens": options.max_tokens,
        "thinking": options.thinking,
    }
    chosen_sampling = file.suite.sampling.model_dump() | {k: v for k, v in given.items() if v is not None}
    try:
        sampling = Sampling.model_validate(chosen_sampling)
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        raise UsageError(f"{option} {first['input']}: {first['msg']}; give another value") from error
    name = f"{SYNTHETIC}-{file.suite.name}" if options.known_answer else file.suite.name
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
            cell_id=name if len(levels) == 1 else f"{name}-c{level}",
            dataset=file.suite.name,
            title=file.suite.title,
            sampling=sampling,
            concurrency=level,
            repeats=options.repeats or file.suite.load.repeats,
            prompts=reference,
        )
        for level in levels
    )
