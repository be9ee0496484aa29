"""Run folders whose comparison can be worked out by hand."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from spec_eval.engines.base import Identity
from spec_eval.records import RequestRecord
from spec_eval.run import provenance
from spec_eval.store import RunFolder
from tests.factories import CELL, answered, cell, from_histogram, plan, run_folder

Histograms = Sequence[Sequence[int]]

# Twenty prompts of one step each, one draft a step. Of BEFORE every second step accepts: AL 1.5, u = ∓1/2.
# Of AFTER every step does: AL 2, u = 0. So ln(4/3) = 0.2876821 and SE = 0.0764719; of position 1 the difference
# is 0.5 and SE = 0.114708 (worked out in test_stats).
BEFORE: Histograms = [[1, 0], [0, 1]] * 10
AFTER: Histograms = [[0, 1]] * 20


def run(
    where: Path,
    name: str,
    histograms: Histograms,
    *,
    categories: Sequence[str] = ("coding",),
    records: Iterable[RequestRecord] = (),
    settings: dict[str, Any] | None = None,
    whole: bool = True,
    manifest: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """A run with one request a prompt, p0, p1, …; the categories go round. `records` come on top of them."""
    units = [(f"p{i}", categories[i % len(categories)], 1) for i in range(len(histograms))]
    more = list(records)
    known = {prompt for prompt, _, _ in units}
    units += [(one.prompt_id, one.category, 1) for one in more if one.prompt_id not in known]
    of = plan(cell(units), run_id=name, **changes)
    answers = [
        answered(from_histogram(histogram), prompt_id=prompt, category=category)
        for (prompt, category, _), histogram in zip(units, histograms, strict=False)
    ]
    everything = [*answers, *more]
    told = provenance.comparable_settings(of, Identity(models=()), everything)[CELL] | (settings or {})
    folder: RunFolder = run_folder(where, of, everything, whole=whole, settings={CELL: told}, **(manifest or {}))
    return folder.path
