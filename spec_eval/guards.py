"""Warnings: a closed list, each with a code, a message and a remedy. The same ones stand in every format."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from spec_eval import engines, signs
from spec_eval.acceptance import Figures, Outcome, measured
from spec_eval.counting import has_nominal_drafts, is_adaptive, is_server_wide, is_tree
from spec_eval.loaded import LoadedRun
from spec_eval.records import RequestRecord
from spec_eval.stats import FEWEST_FOR_EXACT, FEWEST_FOR_INTERVAL
from spec_eval.store import Manifest, NotExact, Plan, Records
from spec_eval.verdict import NOT_WHOLE, Cause, Shortfall

MANY_BY_LENGTH = 0.2
MANY_ZERO_STEPS = 0.2
SLOW_LOOP_MS = 50.0
MANY_LOOPING = 0.02
_SKIPPING_DRAFTERS = ("ngram", "suffix")


class Code(StrEnum):
    """Every warning that there is."""

    INCOMPLETE = "incomplete"
    LOW_COVERAGE = "low_coverage"
    FAILURES = "failures"
    INVALID_COUNTERS = "invalid_counters"
    UNRECONCILED = "unreconciled"
    FOREIGN_TRAFFIC = "foreign_traffic"
    MANY_LENGTH = "many_ended_by_length"
    ZERO_STEPS = "zero_step_requests"
    LOOPING = "looping_answers"
    FEW_CONVERSATIONS = "few_conversations"
    DUPLICATES = "duplicate_prompts"
    MIXED_K = "mixed_k"
    SET_ASIDE = "lines_set_aside"
    DOUBLES = "measured_twice"
    DATA_NOTE = "data_note"
    SYNTHETIC = "synthetic"
    STANDIN = "standin_data"
    SLOW_CLIENT = "slow_client"
    DRAFTER_CONTEXT = "drafter_beyond_context"
    NO_THINKING = "thinking_not_seen"
    UNASKED_THINKING = "thinking_not_asked"
    ADAPTIVE = "adaptive"
    WARM_CACHE = "warm_prefix_cache"
    PHANTOM = "phantom_steps"
    UNEXPLAINED = "unexplained_tokens"
    NOMINAL = "nominal_drafts"
    INFERRED = "inferred"
    RATE_ALONE = "rate_alone"
    TREE = "tree_drafts"
    SERVER_WIDE = "server_wide"


@dataclass(frozen=True, slots=True)
class Warning:  # noqa: A001 # the field's word for it; the builtin is not used here
    """One line for a person: what is the matter, and what to do."""

    code: Code
    message: str
    remedy: str


def run_warnings(run: LoadedRun, figures: Figures, short: Sequence[Shortfall]) -> list[Warning]:
    """All that a reader of this run's figures must know; `short` is the verdict on it."""
    plan, manifest, records, outcome = run.plan, run.manifest, run.read, run.outcome
    found = [
        *_whole(plan, records, short),
        *_answers(plan, outcome, figures),
        *_texts(plan, records.records),
        *_counters(run, short),
    ]
    if plan.standin:
        found.append(Warning(Code.STANDIN, "stand-in rows in place of a real set", "never report these under its name"))
    for cell in {cell.dataset: cell for cell in plan.cells}.values():
        if doubled := cell.prompts.duplicates:
            names = ", ".join(doubled[:5])
            message = f"{cell.dataset}: {len(doubled)} prompts have the text of another, the first of them {names}"
            found.append(Warning(Code.DUPLICATES, message, "drop them: the interval takes each for a new prompt"))
        found += [
            Warning(Code.DATA_NOTE, f"{cell.dataset}: {note}", "know your data set") for note in cell.prompts.notes
        ]
    found += _server(plan, manifest, records)
    found += _kind_of_counters(plan, manifest, figures)
    found += _unexplained(plan, manifest, figures)
    if plan.synthetic:
        found.append(Warning(Code.SYNTHETIC, plan.synthetic, "never publish these figures as measured"))
    return found


def _whole(plan: Plan, records: Records, short: Sequence[Shortfall]) -> list[Warning]:
    # Without the run's path, which is nobody's business in a report that is shown around.
    mend = "import it again" if plan.origin == "imported" else "spec-eval run --resume with this run folder"
    found = [Warning(Code.INCOMPLETE, one.what, mend) for one in short if one.cause in NOT_WHOLE]
    found += [Warning(Code.SET_ASIDE, note, "nothing to do if the run was resumed since") for note in records.set_aside]
    if records.doubles:
        names = ", ".join(unit[1] for unit in records.doubles[:5])
        message = f"{len(records.doubles)} requests were measured twice ({names}); the first success counts"
        found.append(Warning(Code.DOUBLES, message, "do not join run folders by hand"))
    return found


def _server(plan: Plan, manifest: Manifest | None, records: Records) -> list[Warning]:
    found = []
    if is_adaptive(plan, manifest):
        message = "adaptive verification: acceptance depends on load, and drafted counts are nominal"
        found.append(Warning(Code.ADAPTIVE, message, "compare only with runs of the same kind"))
    if not plan.cold_cache:
        message = "answers may have come from a warm prefix cache"
        found.append(Warning(Code.WARM_CACHE, message, "run without --no-cache-salt"))
    phantoms = sum(
        r.prompt_tokens is not None and r.cached_tokens is not None and r.prompt_tokens - r.cached_tokens == 1
        for r in records.records
        if r.status == "ok" and engines.find(plan.target.engine).pads_cache_hits
    )
    if phantoms:
        message = f"{phantoms} answers began with a phantom step: the cache left one token of their prompt"
        found.append(Warning(Code.PHANTOM, message, "run without --no-cache-salt, or with prefix caching off"))
    return found


def _texts(plan: Plan, records: Sequence[RequestRecord]) -> list[Warning]:
    """What the answers themselves show."""
    found = []
    answers = [r for r in records if r.status == "ok"]
    looping = sum(signs.loops(r.text or r.reasoning_text or "") for r in answers)
    if answers and looping / len(answers) > MANY_LOOPING:
        message = f"{looping} of {len(answers)} answers end in a loop, which any drafter predicts well"
        found.append(Warning(Code.LOOPING, message, "look at the texts; lower --max-tokens, or mend the sampling"))
    if (silent := signs.silence(records)) is not None:
        where = f"prompts of {silent.prompt_tokens} tokens and more ({silent.prompts})" if silent.prompts else ""
        half = f"the later part of {silent.answers} answers" if silent.answers else ""
        message = f"not one draft was accepted in {' and '.join(filter(None, (where, half)))}"
        found.append(Warning(Code.DRAFTER_CONTEXT, message, "is the drafter's context shorter than the target's?"))
    for cell in plan.cells:
        mine = [r for r in answers if r.cell_id == cell.cell_id]
        if not mine or cell.sampling.thinking is None:
            continue
        seen = any(r.reasoned for r in mine)
        if cell.sampling.thinking and not seen:
            message = f"{cell.cell_id}: thinking was asked for, no answer shows any"
            remedy = "start the server with its reasoning parser; a template may know no switch"
            found.append(Warning(Code.NO_THINKING, message, remedy))
        elif seen and not cell.sampling.thinking:
            message = f"{cell.cell_id}: thinking was switched off, yet answers carry reasoning"
            found.append(Warning(Code.UNASKED_THINKING, message, "the chat template ignores enable_thinking"))
    return found


def _unexplained(plan: Plan, manifest: Manifest | None, figures: Figures) -> list[Warning]:
    """Tokens that no verification step accounts for: plain steps of a drafter that skips some, or lost counters."""
    recipe = (plan.target.recipe or {}).get("drafter")
    told = recipe.get("algorithm") if isinstance(recipe, dict) else manifest and manifest.server.get("method")
    # Without a recipe, and where the server does not say, the drafter's name is all there is.
    skips = any(word in str(told or plan.target.drafter or "") for word in _SKIPPING_DRAFTERS)
    if skips or not figures.unexplained:
        return []
    message = f"{figures.unexplained} tokens came from no verification step: from steps without drafts, or uncounted"
    return [Warning(Code.UNEXPLAINED, message, "expected of n-gram and suffix drafters; else look into the server")]


def _kind_of_counters(plan: Plan, manifest: Manifest | None, figures: Figures) -> list[Warning]:
    """What an engine's counters are not."""
    found = []
    if is_server_wide(plan):
        message = "the server's own totals over the run, not its answers' counters: other traffic would be in them"
        remedy = "let nobody else use the server; `run` with --engine vllm, sglang or llamacpp counts by request"
        found.append(Warning(Code.SERVER_WIDE, message, remedy))
    if has_nominal_drafts(plan, figures):
        message = "drafted is nominal: verification steps x k, whatever was really drafted; the rate is over that"
        found.append(Warning(Code.NOMINAL, message, "compare rates only with runs of the same engine"))
    if figures.inferred:
        message = "steps and accepted are inferred from an average of tokens an iteration, not counted"
        found.append(Warning(Code.INFERRED, message, engines.find(plan.target.engine).remedy))
    if is_tree(manifest):
        message = "drafts are trees: positions are refused, since depth in a tree is no position in a chain"
        found.append(Warning(Code.TREE, message, "start the server with --speculative-eagle-topk 1 for positions"))
    return found


def _answers(plan: Plan, outcome: Outcome, figures: Figures) -> list[Warning]:
    found = []
    if outcome.failed:
        reasons = ", ".join(f"{n} {reason}" for reason, n in outcome.failed_by.items())
        message = f"{outcome.failed} of {outcome.sent} requests failed: {reasons}"
        where = "see the files that were imported" if plan.server_wide else "see failure_reason in requests.jsonl"
        again = "" if plan.origin == "imported" else "; `run --resume` asks again"
        found.append(Warning(Code.FAILURES, message, where + again))
    if outcome.ok and outcome.length / outcome.ok > MANY_BY_LENGTH:
        message = f"{outcome.length} of {outcome.ok} answers were ended by the token limit"
        found.append(Warning(Code.MANY_LENGTH, message, "raise --max-tokens if whole answers are what you publish"))
    silent = outcome.zero_steps / outcome.measured if outcome.measured and plan.target.drafts else 0.0
    if silent > MANY_ZERO_STEPS:
        message = f"{outcome.zero_steps} of {outcome.measured} requests took no verification step"
        found.append(Warning(Code.ZERO_STEPS, message, "the figures rest on the others alone"))
    n = figures.acceptance_length.n if figures.acceptance_length else 0
    if 0 < n < FEWEST_FOR_INTERVAL:
        message = f"{n} conversations took verification steps: too few for an interval"
        found.append(Warning(Code.FEW_CONVERSATIONS, message, f"run at least {FEWEST_FOR_INTERVAL}"))
    elif 0 < n < FEWEST_FOR_EXACT:
        message = f"{n} conversations took verification steps: intervals are approximate"
        found.append(Warning(Code.FEW_CONVERSATIONS, message, f"run at least {FEWEST_FOR_EXACT}"))
    return found


def _rate_alone(run: LoadedRun) -> list[Warning]:
    """Answers that tell drafts and no steps are in no figure; what they do tell is told here."""
    engine = engines.find(run.plan.target.engine)
    uncounted = [r for r in run.read.records if r.status == "ok" and r.counters is None]
    told = [drafts for r in uncounted if (drafts := engine.drafts_alone(r.raw_counters)) is not None]
    if not told:
        return []
    drafted, accepted = (sum(column) for column in zip(*told, strict=True))
    message = (
        f"{len(told)} answers tell drafts and no steps: rate {accepted / drafted:.2%} "
        f"({accepted} of {drafted} drafts accepted), acceptance length and positions not to be had from them"
    )
    return [Warning(Code.RATE_ALONE, message, "stream the answers, with timings_per_token; `run` does")]


def _counters(run: LoadedRun, short: Sequence[Shortfall]) -> list[Warning]:
    plan, manifest, outcome = run.plan, run.manifest, run.outcome
    found = []
    if any(one.cause is Cause.LOW_COVERAGE for one in short):
        reasons = ", ".join(f"{n} {reason}" for reason, n in (outcome.no_counters_by | outcome.invalid_by).items())
        message = f"only {outcome.measured} of {outcome.ok} answers have usable counters ({reasons})"
        found.append(Warning(Code.LOW_COVERAGE, message, engines.find(plan.target.engine).remedy))
    found += _rate_alone(run)
    if outcome.invalid:
        reasons = ", ".join(f"{n} {reason}" for reason, n in outcome.invalid_by.items())
        found.append(
            Warning(Code.INVALID_COUNTERS, f"{outcome.invalid} answers left out: {reasons}", "check --engine and --k")
        )
    ks = {c.k for _, c in measured(run.read.records) if c.steps}
    if len(ks) > 1:
        message = f"requests differ in k: {', '.join(map(str, sorted(ks)))}"
        found.append(Warning(Code.MIXED_K, message, "give --k, the draft tokens a step"))
    if manifest is not None and manifest.reconciliation.status == "differs":
        foreign = manifest.reconciliation.cause is NotExact.FOREIGN_TRAFFIC
        code = Code.FOREIGN_TRAFFIC if foreign else Code.UNRECONCILED
        found.append(Warning(code, str(manifest.reconciliation.reason), "run again on a server of your own"))
    lag = max((s.loop_lag_p99_ms or 0.0 for s in manifest.sessions), default=0.0) if manifest else 0.0
    if lag > SLOW_LOOP_MS:
        message = f"the client's event loop was late by {lag:.0f} ms (p99): times to first token are only as exact"
        found.append(Warning(Code.SLOW_CLIENT, message, "give the client a core of its own, or lower --concurrency"))
    return found
