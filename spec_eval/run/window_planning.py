"""The plan of a throughput run, made from options or read again; nothing here touches a server."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from spec_eval import engines, prompts, shipped, suite
from spec_eval.drivers import aiperf
from spec_eval.engines.endpoint import key_from_environment
from spec_eval.errors import UsageError
from spec_eval.prompts import PromptSet
from spec_eval.run import cells, planning, targets
from spec_eval.run.options import RunOptions
from spec_eval.store.plan import Member
from spec_eval.store.windows import Tool, WindowPlan
from spec_eval.suite import Select, SuiteFile, ThroughputSuite, Window


@dataclass(frozen=True)
class Prepared:
    """A plan and its prompts."""

    plan: WindowPlan
    prompts: PromptSet


def prepare(options: RunOptions) -> Prepared:
    """Load the prompts, look for AIPerf, and write down everything that is decided before the first cell."""
    file = suite.find(options.suite)
    chosen = file.suite
    assert isinstance(chosen, ThroughputSuite)
    key_from_environment(options.api_key_env)
    sampling = cells.override(options).over(chosen.sampling)
    window = _window(chosen.window, options)
    target = targets.choose(options)
    member = suite.find(chosen.prompts, file.path.parent)
    simple = member.simple
    whole = _load(member, options.data_dir, trust_remote_code=options.trust_remote_code)
    selected = _selected(whole, simple.select, options.limit)
    dataset, title = cells.named(simple, chosen.title, in_table=False, standin=whole.standin)
    name = chosen.name if not whole.standin else f"throughput-{dataset}"
    plan = WindowPlan(
        **planning.head(options, name, file, target),
        synthetic=targets.synthetic(options),
        member=Member(text=member.text, path=None if member.is_shipped else str(member.path.resolve())),
        member_name=simple.name,
        dataset=dataset,
        title=title,
        sampling=sampling,
        window=window,
        prompts=cells.reference(whole, selected),
        aiperf=_tool(options),
        tokenizer=options.tokenizer,
    )
    return Prepared(plan, selected)


def reload(plan: WindowPlan) -> Prepared:
    """The prompts of a plan made earlier; UsageError where they are not the same any more."""
    member = plan.member
    where = Path(member.path) if member.path else shipped.folder("suites") / f"{plan.member_name}.toml"
    data_dir = Path(plan.data_dir) if plan.data_dir else None
    whole = _load(suite.restored(member.text, where), data_dir, trust_remote_code=plan.trust_remote_code)
    if whole.sha256 != plan.prompts.sha256:
        raise UsageError(f"{whole.source}: the prompts changed since the run was planned; start a new run")
    chosen = whole.only(prompt_id for prompt_id, _, _ in plan.prompts.units)
    if [(one.prompt_id, one.category, one.turns) for one in chosen.entries] != list(plan.prompts.units):
        raise UsageError("plan.json: units that no prompt has; the file is damaged")
    return Prepared(plan, chosen)


def dry_run(options: RunOptions) -> str:
    """What `run` would do, for people."""
    plan = prepare(options).plan
    window = plan.window
    sampling = ", ".join(f"{name} {value}" for name, value in plan.sampling.model_dump(exclude_none=True).items())
    levels = ", ".join(map(str, window.concurrency))
    count = len(window.cells())
    seconds = count * (window.warmup_s + window.duration_s)
    extra = aiperf.extra_inputs(engines.find(plan.target.engine), plan.sampling)
    return "\n".join(
        [
            f"{count} cells of AIPerf {plan.aiperf.version} ({plan.aiperf.path}, {plan.aiperf.found}): "
            f"at least {seconds / 60:.0f} min, and about 12 s a cell beside",
            f"concurrency {levels}; repeats {window.repeats}; warm-up {window.warmup_s:g} s, window "
            f"{window.duration_s:g} s, grace {window.grace_s:g} s; {sampling}",
            f"{plan.dataset}: {len(plan.prompts.units)} prompts, {plan.prompts.source}",
            f"fields of every request: {extra}",
        ]
    )


def _window(window: Window, options: RunOptions) -> Window:
    changes = {
        "concurrency": options.concurrency or None,
        "duration_s": options.duration,
        "warmup_s": options.warmup,
        "repeats": options.repeats,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return Window.model_validate({**window.model_dump(), **given})
    except ValidationError as error:
        first = error.errors()[0]
        option = f"--{str(first['loc'][0]).removesuffix('_s')}"
        raise UsageError(f"{option} {first['input']}: {first['msg']}; give another value") from error


def _load(file: SuiteFile, data_dir: Path | None, *, trust_remote_code: bool) -> PromptSet:
    return prompts.load(file, data_dir=data_dir, trust_remote_code=trust_remote_code, first_turn_only=True)


def _selected(whole: PromptSet, select: Select, limit: int | None) -> PromptSet:
    return whole.selected(select.categories, select.first).limited(limit)


def _tool(options: RunOptions) -> Tool:
    found = aiperf.find(options.aiperf)
    told = aiperf.version(found)
    aiperf.check_version(found, told, any_version=options.any_aiperf)
    return Tool(path=str(found.path), version=told, found=found.how, any_version=options.any_aiperf)
