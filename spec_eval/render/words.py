"""The words and numbers that every format shares: what a run was, what a figure means, how it is printed."""

from collections.abc import Callable, Sequence

from spec_eval import counting, verdict
from spec_eval.render import facts, points
from spec_eval.stats import Estimate
from spec_eval.store import Cell, Plan
from spec_eval.tables import Row, RunReport

NOTHING = "—"
DEFINITIONS = (
    "AL (acceptance length) = 1 + accepted draft tokens / verification steps, "
    "pooled over requests: summed first, divided once",
    "AL per request = the mean over requests of the same ratio; a second figure, never mixed with the first",
    "rate = accepted / drafted; position i = share of steps that accepted at least i draft tokens",
    "± is half of a 95% interval over conversations, of a percentage in points; ≈ marks one that rests on under 80",
)
DETAILS = (
    "mean of repeats = each repeat by itself, then their equal-weight mean, and the smallest and the largest; "
    "a mean of rows (macro) weighs each row the same, and is no overall figure",
    "at fewer drafts = the first k drafts of the steps that were measured: a hint, no forecast, since a run with "
    "that k would take other steps",
)


def printable(text: str) -> str:
    """Without characters that steer a terminal or end a line."""
    return "".join(c if c.isprintable() else " " for c in text)


def number(value: float | None, digits: int = 4) -> str:
    """With `digits` decimals, or a dash where there is no data."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A fraction as a percentage with two decimals, or a dash where there is no data."""
    return NOTHING if value is None else f"{value:.2%}"


def interval(estimate: Estimate | None, show: Callable[[float | None], str] = number) -> str:
    """[low, high], marked where it is approximate, or a dash."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return NOTHING
    return f"{'≈' if estimate.approximate else ''}[{show(estimate.low)}, {show(estimate.high)}]"


def give_or_take(estimate: Estimate | None, show: Callable[[float | None], str] = number, scale: float = 1) -> str:
    """A value and half the width of its interval in units of 1 / `scale`, where it has one."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return show(None if estimate is None else estimate.value)
    half = (estimate.high - estimate.low) / 2 * scale
    return f"{show(estimate.value)} {'≈' if estimate.approximate else ''}±{half:.{4 if scale == 1 else 2}f}"


def labels(report: RunReport) -> list[str]:
    """What the figures are not, in a word or two; every format carries these."""
    plan, figures = report.plan, report.overall.figures
    marks = {
        "synthetic": plan.synthetic,
        "imported": plan.origin == "imported",
        "adaptive": counting.is_adaptive(plan, report.manifest),
        "server-wide": counting.is_server_wide(plan),
        "no drafter": not plan.target.drafts,
        "inferred": figures.inferred,
        "nominal drafts": counting.has_nominal_drafts(plan, figures),
        "tree drafts": counting.is_tree(report.manifest),
        "stand-in rows": plan.standin,
        "incomplete": not report.whole,
    }
    return [mark for mark, there in marks.items() if there]


def marks(report: RunReport, row: Row) -> list[str]:
    """Of `labels` what holds for this row, and what holds for it alone."""
    # A row of a simple suite carries the word in its title already.
    titled = row.table is None and row is not report.overall
    alone = {"stand-in": row.standin and not titled, "partial": row.partial}
    whole_run = [mark for mark in labels(report) if mark not in ("stand-in rows", "incomplete")]
    return [*whole_run, *(mark for mark, there in alone.items() if there)]


def marked(name: str, found: Sequence[str]) -> str:
    """A row's name with its marks behind it: nobody should copy the row without them."""
    return f"{name} ({', '.join(found)})" if found else name


def heading(report: RunReport) -> str:
    """Title of a run's report; a synthetic or unfinished run says so here, where nobody can miss it."""
    plan = report.plan
    shown = "".join(f" ({mark})" for mark in labels(report))
    return f"{plan.suite_name}: {plan.target.drafter or 'drafter not named'}{shown}"


def header(report: RunReport, hardware: str | None = None) -> list[tuple[str, str]]:
    """(name, text) of everything that a reader needs before the first figure. hardware: as the user states it."""
    plan, manifest, outcome = report.plan, report.manifest, report.overall.outcome
    target = plan.target
    return [
        ("engine", f"{target.engine} {(manifest and manifest.engine_version) or 'version not known'}"),
        ("target", (manifest and manifest.server.get("model")) or target.model or "not named"),
        ("drafter", target.drafter or "not named"),
        *([("imported from", plan.tool)] if plan.tool else []),
        ("hardware", facts.hardware(plan, hardware)),
        ("k", _k(report)),
        ("sampling", _sampling(report)),
        ("thinking", _thinking(report)),
        ("concurrency", ", ".join(dict.fromkeys(str(cell.concurrency or "not known") for cell in plan.cells))),
        ("prompts", "; ".join(dict.fromkeys(_prompts(cell) for cell in plan.cells))),
        *([("the card's own run", plan.card)] if plan.card else []),
        *([("not stated by the card", "; ".join(plan.not_stated))] if plan.not_stated else []),
        *((f"our choice of {name}", text) for name, text in plan.choices.items()),
        ("overrides", overrides(plan)),
        *_reasons("not sent", outcome.not_sent_by),
        *_reasons("failed", outcome.failed_by),
        ("coverage", _coverage(report)),
        ("reconciliation", report.reconciliation.sentence()),
        *points.lines(report),
        *_beside(report),
        *([("synthetic", plan.synthetic)] if plan.synthetic else []),
    ]


def _coverage(report: RunReport) -> str:
    outcome = report.overall.outcome
    if counting.is_server_wide(report.plan):
        return "none by request: the rows hold the server's own totals"
    if not report.plan.target.drafts:
        return "nothing to count: the recipe has no drafter"
    coverage = verdict.floored(outcome.measured, outcome.ok) if outcome.ok else NOTHING
    return f"{coverage} ({outcome.measured} of {outcome.ok} answers have usable counters)"


def _reasons(name: str, counts: dict[str, int]) -> list[tuple[str, str]]:
    return [(name, ", ".join(f"{n} {reason}" for reason, n in counts.items()))] if counts else []


def _beside(report: RunReport) -> list[tuple[str, str]]:
    """Figures that explain AL and are none, each under its own name."""
    figures = report.overall.figures
    lines = []
    if figures.inferred:
        lines.append(("AL", "inferred from an average of tokens an iteration, not counted"))
    if figures.steps and figures.positions is None:
        tree = counting.is_tree(report.manifest)
        lines.append(("positions", "refused: drafts are trees" if tree else "not reported"))
    if figures.delivered_per_step is not None:
        delivered = give_or_take(figures.delivered_per_step)
        text = f"{delivered} completion tokens after the first / verification steps (not AL)"
        if figures.undelivered:
            each = f"{figures.undelivered / figures.requests:.2f}".rstrip("0").rstrip(".")
            text += f"; {figures.undelivered} verified tokens lay past the end of an answer ({each} a request): "
            text += "AL counts them, nobody received them"
        lines.append(("delivered", text))
    full = figures.full_steps
    if full is not None and (report.plan.synthetic or full.steps != figures.steps):
        shares = ", ".join(percent(share) for share in full.positions)
        text = f"{full.steps} of {figures.steps} steps drafted exactly k: AL {full.acceptance_length:.4f}"
        lines.append(("full steps", f"{text}, positions {shares}"))
    return lines


def overrides(plan: Plan) -> str:
    """What the command line changed of the suite; a limit counts conversations, of each cell."""
    texts = [f"{name} = {value}" for name, value in plan.overrides.items()]
    return ", ".join(texts).replace("limit = ", "limit in conversations a cell = ") or "none"


def row_name(row: Row) -> str:
    """As it stands in the first column, before any mark."""
    if row.label is None:
        return row.title
    return row.label if row.table is not None else f"{row.title} / {row.label}"


def _k(report: RunReport) -> str:
    figures, k = report.overall.figures, report.k
    if k is None:
        return "not known"
    flag = report.manifest.server.get("k_flag") if report.manifest else None
    told = f" (server flag: {flag})" if flag else ""
    mean = figures.drafts_per_step
    if mean is None or mean == k:
        return f"{k} draft tokens a step{told}"
    return f"up to {k} draft tokens a step, {mean:.4f} on average{told}"


def _sampling(report: RunReport) -> str:
    imported = report.plan.origin == "imported"
    texts = []
    for cell in report.plan.cells:
        fields = cell.sampling.model_dump(exclude={"thinking"}, exclude_none=True)
        texts.append(", ".join(f"{name} {value:g}" for name, value in fields.items()))
    told = "; ".join(dict.fromkeys(text for text in texts if text))
    if imported:
        return f"{told}; what is not named is not known: imported" if told else "not known: imported"
    seed = "no seed sent" if report.plan.seed is None else f"a seed for each request from run seed {report.plan.seed}"
    return f"{told}; what is not named is the server's default; {seed}"


def _thinking(report: RunReport) -> str:
    asked = {cell.sampling.thinking for cell in report.plan.cells}
    default = "not known" if report.plan.origin == "imported" else "server default"
    asked_words = {None: default, True: "on", False: "off"}
    text = f"asked: {', '.join(asked_words[a] for a in sorted(asked, key=str))}"
    if report.manifest is None:
        return text
    seen = {str(cell.get("thinking")) for cell in report.manifest.settings.values()}
    words = {"True": "yes", "False": "no"}
    return f"{text}; reasoning seen in answers: {', '.join(words.get(s, 'not known') for s in sorted(seen))}"


def _prompts(cell: Cell) -> str:
    reference = cell.prompts
    revision = f" @{reference.revision[:12]}" if reference.revision else ""
    chosen = f"{len(reference.units)} of {reference.rows} conversations" if reference.units else "prompts not named"
    if reference.preparation:
        tool = reference.preparation.get("tool", {})
        chosen += f", prepared by {tool.get('name')} {tool.get('commit') or tool.get('version') or ''}".rstrip()
    digest = f", sha256 {reference.sha256[:12]}" if reference.sha256 else ""
    return f"{reference.source}{revision}, {chosen}{digest}"
