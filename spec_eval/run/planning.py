"""A plan, made from options or read again; nothing here touches a server."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spec_eval import __version__, prompts, shipped, suite
from spec_eval.engines.endpoint import key_from_environment
from spec_eval.errors import UsageError
from spec_eval.prompts import PromptSet
from spec_eval.render import words
from spec_eval.run import cells, provenance, targets
from spec_eval.run.options import RunOptions
from spec_eval.serve.choosing import EMBEDDED_ENGINE
from spec_eval.store import Plan, Target
from spec_eval.suite import CompoundSuite, SuiteFile

# Disk of one record: about four bytes a token of text, and as much again for counters and names.
_BYTES_PER_TOKEN = 8


@dataclass(frozen=True)
class Prepared:
    """A plan, with the prompts of each of its cells."""

    plan: Plan
    prompts: dict[str, PromptSet]


def prepare(options: RunOptions) -> Prepared:
    """Load the prompts and write down everything that is decided before the first request."""
    file = suite.find(options.suite)
    key_from_environment(options.api_key_env)  # a key in the wrong place must not reach the plan
    cells.override(options)  # a wrong value is told before a server or a data set is looked for
    target = targets.choose(options)
    laid = cells.lay_out(file, options)
    compound = file.suite if isinstance(file.suite, CompoundSuite) else None
    name = file.suite.name if compound else laid.cells[0].dataset
    plan = Plan(
        **head(options, name, file, target),
        members=laid.members,
        not_stated=compound.not_stated if compound else (),
        choices=compound.choices if compound else {},
        card=f"{compound.title}: {compound.drafter} on {compound.engine}" if compound and compound.drafter else None,
        cells=laid.cells,
        cold_cache=options.cold_cache,
        first_turn_only=options.first_turn_only,
        reasoning_in_history=options.reasoning_in_history,
    )
    return marked(Prepared(plan, laid.prompts), targets.synthetic(options))


def head(options: RunOptions, suite_name: str, file: SuiteFile, target: Target) -> dict[str, Any]:
    """What the plans of all kinds of runs say: the fields of `PlanHead`, but for `synthetic`."""
    now = datetime.now(UTC)
    return {
        "run_id": f"{now:%Y%m%d-%H%M%S}-{suite_name}-{target.engine}",
        "created": now.isoformat(timespec="seconds"),
        "spec_eval_version": __version__,
        "spec_eval_commit": provenance.commit(),
        "command": options.command,
        "suite_name": suite_name,
        "suite_text": file.text,
        "suite_sha256": file.sha256,
        "overrides": options.overrides(),
        "target": target,
        "seed": options.seed,
        "max_failures": options.max_failures,
        "data_dir": str(options.data_dir.resolve()) if options.data_dir else None,
        "api_key_env": options.api_key_env,
        "trust_remote_code": options.trust_remote_code,
    }


def marked(prepared: Prepared, why: str | None) -> Prepared:
    """With `why` in the plan, and on the name of every cell; as it is where the acceptance is real."""
    if why is None:
        return prepared
    plan, names = prepared.plan.stamped(why)
    return Prepared(plan, {names[cell_id]: chosen for cell_id, chosen in prepared.prompts.items()})


def reload(plan: Plan) -> Prepared:
    """The prompts of a plan made earlier; UsageError where they are not the same any more."""
    data_dir = Path(plan.data_dir) if plan.data_dir else None
    loaded: dict[str, PromptSet] = {}
    for name, member in plan.members.items():
        where = Path(member.path) if member.path else shipped.folder("suites") / f"{name}.toml"
        loaded[name] = prompts.load(
            suite.restored(member.text, where),
            data_dir=data_dir,
            trust_remote_code=plan.trust_remote_code,
            first_turn_only=plan.first_turn_only,
        )
    by_cell = {}
    for cell in plan.cells:
        prompt_set = loaded.get(str(cell.member))
        if prompt_set is None or cell.concurrency is None:
            raise UsageError(f"plan.json: cell {cell.cell_id!r} has no suite or no concurrency; the file is damaged")
        if prompt_set.sha256 != cell.prompts.sha256:
            raise UsageError(f"{prompt_set.source}: the prompts changed since the run was planned; start a new run")
        chosen = prompt_set.only(prompt_id for prompt_id, _, _ in cell.prompts.units)
        planned = [(entry.prompt_id, entry.category, entry.turns) for entry in chosen.entries]
        if planned != list(cell.prompts.units):
            raise UsageError(f"plan.json: cell {cell.cell_id!r} has units that no prompt has; the file is damaged")
        by_cell[cell.cell_id] = chosen
    return Prepared(plan, by_cell)


def dry_run(options: RunOptions) -> str:
    """What `run` would do, for people; sends nothing and writes nothing."""
    prepared = prepare(options)
    plan = prepared.plan
    conversations = sum(len(cell.prompts.units) * cell.repeats for cell in plan.cells)
    ceiling = sum(cell.planned() * (cell.sampling.max_tokens or 0) for cell in plan.cells)
    lines = [
        f"{plan.planned()} requests in {conversations} conversations, at most {ceiling} generated tokens, "
        f"at most {max(1, round(ceiling * _BYTES_PER_TOKEN / 1e6))} MB on disk",
        *(f"not stated by the card: {fact}" for fact in plan.not_stated),
        *(f"our choice of {name}: {text}" for name, text in plan.choices.items()),
        f"overrides: {words.overrides(plan)}",
        *(f"server: {line}" for line in _server_lines(plan)),
    ]
    for cell in plan.cells:
        first = next(iter(prepared.prompts[cell.cell_id]))
        settings = ", ".join(f"{name} {value}" for name, value in cell.sampling.model_dump(exclude_none=True).items())
        lines += [
            f"{cell.cell_id}: {cell.planned()} requests, {cell.prompts.source}, concurrency {cell.concurrency}, "
            f"repeats {cell.repeats}, {settings}",
            *(f"  note: {note}" for note in cell.prompts.notes),
            f"  first: {first.prompt_id}: {first.turns[0][-1]['content'][:120]!r}",
        ]
    return "\n".join(lines)


def _server_lines(plan: Plan) -> list[str]:
    """Exports and command of a server that spec-eval would start; the embedded one has its file looked up first."""
    if plan.target.recipe is None or plan.target.engine == EMBEDDED_ENGINE:
        return []
    choice = targets.served(plan.target, trust_remote_code=plan.trust_remote_code)
    return [*choice.notes, *choice.launcher.command(choice.launch).shell().splitlines(), "port 0 is a free one"]
