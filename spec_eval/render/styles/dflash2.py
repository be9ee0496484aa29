"""In the manner of the GLM-5.3-DFlash2 card: means over requests, positions from 0, two decimals.

Rows of several repeats are the equal-weight mean of the repeats' own means. Everything in a table is of this one
estimator, and its caption says so.
"""

from collections.abc import Sequence

from spec_eval import stats
from spec_eval.render import words
from spec_eval.render.grid import longest
from spec_eval.render.markdown import escape, table
from spec_eval.render.styles import document
from spec_eval.render.styles.document import Joined, Line, Run

DEFINITIONS = (
    "AL (acceptance length) is the mean over requests of 1 + accepted draft tokens / verification steps.",
    "Pos i is the mean over requests of the share of verification steps that accepted more than i draft tokens, in "
    "percent; positions are numbered from 0, so that AL = 1 + the sum of the positions.",
    "Every request weighs the same, however long its answer; no figure here is pooled over steps.",
)


def render(runs: Sequence[Run], hardware: str | None = None) -> str:
    """The document. hardware: as the user states it."""
    numbered = bool(document.differences(runs, hardware))
    lines = [*document.front(runs), "", "## Evaluation", ""]
    lines += [f"- {definition}" for definition in DEFINITIONS]
    for joined in [*document.join(runs), *document.binned(runs, lambda *_: True)]:
        lines += ["", f"### {escape(joined.heading)}", "", caption(joined), ""]
        lines += _figures(joined, numbered=numbered)
        lines += ["", _requests(joined), *document.footnote(joined, numbered=numbered)]
    return "\n".join([*lines, *document.back(runs, hardware)]) + "\n"


def caption(joined: Joined) -> str:
    """Which estimator the table holds."""
    numbers = {line.row.repeats.number if line.row.repeats else 1 for line in joined.lines}
    if numbers == {1}:
        return "Per-request mean, one run of each prompt."
    if len(numbers) == 1:
        return f"Per-request mean of each of {numbers.pop()} repeats, then their equal-weight mean."
    several = ", ".join(f"{line.name}: {line.row.repeats.number if line.row.repeats else 1}" for line in joined.lines)
    return escape(f"Per-request mean of each repeat, then their equal-weight mean. Repeats: {several}.")


def _figures(joined: Joined, *, numbered: bool) -> list[str]:
    k = longest([line.row for line in joined.lines])
    columns = [joined.first, "AL", *[f"Pos {i}" for i in range(k)]]
    return table(columns, [[line.marked(numbered=numbered), *_row(line, k)] for line in joined.lines])


def _row(line: Line, k: int) -> list[str]:
    figures, repeats = line.row.figures, line.row.repeats
    if repeats is not None:
        length = repeats.acceptance_length_request_mean
        al = None if length is None else length.mean
        shares = (
            None if repeats.positions_request_mean is None else [one.mean for one in repeats.positions_request_mean]
        )
    else:
        al = stats.value(figures.acceptance_length_request_mean)
        found = stats.values(figures.positions_request_mean)
        shares = None if found is None else list(found)
    padded = [*(shares or ()), *[None] * k][:k]
    return [words.number(al, 2), *(words.number(None if one is None else 100 * one, 2) for one in padded)]


def _requests(joined: Joined) -> str:
    outcomes = [line.row.outcome for line in joined.lines]
    names = ("planned", "sent", "ok", "failed", "measured")
    return f"Requests: {', '.join(f'{sum(getattr(one, name) for one in outcomes)} {name}' for name in names)}."
