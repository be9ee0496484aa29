"""In the manner of the GLM-5.3-speculator.dflash2-preview card: pooled counters, positions from 1, four decimals."""

from collections.abc import Sequence

from spec_eval import stats
from spec_eval.render import facts, words
from spec_eval.render.grid import longest
from spec_eval.render.markdown import escape, table
from spec_eval.render.styles import document
from spec_eval.render.styles.document import Joined, Run

DEFINITIONS = (
    "Acceptance length = 1 + accepted draft tokens / verification steps.",
    "Acceptance rate = accepted / drafted tokens.",
    "Position i = share of verification steps that accepted at least i draft tokens; positions are numbered from 1.",
    "Counters are pooled: summed over requests first, divided once. No row is a mean over requests, and none is a "
    "mean of other rows.",
    "Requests that failed count among the outcomes; figures rest on the measured ones.",
)


def render(runs: Sequence[Run], hardware: str | None = None, *, all_bins: bool = False) -> str:
    """The document. hardware: as the user states it. all_bins: by prompt length not for MRCR alone."""
    numbered = bool(document.differences(runs, hardware))
    lines = [*document.front(runs), "", "## Model specification", ""]
    lines += document.merged(runs, lambda one: facts.specification(one.plan, one.manifest, hardware))
    lines += ["", "## Evaluation", ""]
    lines += [f"- {definition}" for definition in DEFINITIONS]
    for joined in document.join(runs):
        lines += _section(joined, with_positions=True, numbered=numbered)
    for joined in document.binned(runs, lambda one, cell: all_bins or facts.is_mrcr(one.plan, cell)):
        lines += _section(joined, with_positions=False, numbered=numbered)
    lines += document.back(runs, hardware)
    lines += ["", "## Reproducibility", ""]
    lines += document.merged(runs, lambda one: facts.reproducibility(one.plan, one.manifest))
    return "\n".join(lines) + "\n"


def _section(joined: Joined, *, with_positions: bool, numbered: bool) -> list[str]:
    k = longest([line.row for line in joined.lines]) if with_positions else 0
    columns = [joined.first, "Acceptance length", "Acceptance rate", *[f"Pos {i}" for i in range(1, k + 1)]]
    rows = []
    for line in joined.lines:
        figures = line.row.figures
        shares = [*(stats.values(figures.positions) or ()), *[None] * k][:k]
        rows.append(
            [
                line.marked(numbered=numbered),
                words.number(stats.value(figures.acceptance_length)),
                words.percent(stats.value(figures.acceptance_rate)),
                *map(words.percent, shares),
            ]
        )
    heading = f"### {escape(joined.heading)}"
    counts = document.counted(joined, numbered=numbered)
    return ["", heading, "", *table(columns, rows), "", *counts, *document.footnote(joined, numbered=numbered)]
