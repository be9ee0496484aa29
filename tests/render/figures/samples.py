"""Run folders whose figures can be worked out by hand.

`easy`: 20 conversations of one step with k = 1; ten accept their draft, ten do not. R = 10/20, every u_i is ±1/2,
sd(u) = sqrt(20/4 / 19) = 0.5129892, SE = sd / sqrt(20) = 0.1147079, t(19; 0.975) = 2.0930241 from a table: half the
interval is 0.2400864. `hard`: two conversations, S 3 A 1 and S 2 A 0. `never`: planned, and failed.
All together S 25, A 11.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spec_eval.records import RequestRecord
from spec_eval.render.figures import charts
from spec_eval.render.figures.charts import Arm
from spec_eval.store import RunFolder, Target
from tests.factories import answered, cell, failed, from_histogram, plan, run_folder

HALF = 0.2400864
EASY = [(f"e{i}", "easy", 1) for i in range(20)]
UNITS = [*EASY, ("h1", "hard", 1), ("h2", "hard", 1), ("n1", "never", 1)]


def easy(**changes: Any) -> list[RequestRecord]:
    return [
        answered(from_histogram((1, 0) if i < 10 else (0, 1)), **{"prompt_id": f"e{i}", "category": "easy"} | changes)
        for i in range(20)
    ]


RECORDS = [
    *easy(),
    answered(from_histogram((2, 1)), prompt_id="h1", category="hard", prompt_tokens=9000),
    answered(from_histogram((2, 0)), prompt_id="h2", category="hard", prompt_tokens=9000),
    failed(prompt_id="n1", category="never"),
]


def folder(
    where: Path, name: str = "one", *, drafter: str = "eagle", engine: str = "vllm", k: int = 1, **changes: Any
) -> RunFolder:
    """A run of the sample, or of other `units` and `records`."""
    units, records = changes.pop("units", UNITS), changes.pop("records", RECORDS)
    whole, title = changes.pop("whole", True), changes.pop("title", "Chat")
    target = Target(engine=engine, model="target-a", drafter=drafter, k=k)
    made = plan(cell(units, title=title), run_id=name, target=target, max_failures=0.5, **changes)
    return run_folder(where, made, records, whole=whole)


def arms(where: Path, *folders: RunFolder) -> list[Arm]:
    return charts.read(folders or [folder(where)])


def seen(chart: charts.Chart) -> list[tuple[str, str | None, float | None]]:
    """(group, place, value) of all points."""
    return [(p.group.name, p.at, None if p.estimate is None else p.estimate.value) for p in chart.points]


def throughput(where: Path, name: str, sizes: Sequence[int] = (1, 8), **changes: Any) -> RunFolder:
    """A card's cells over throughput sets, and one beside them; of each set 20 conversations as `easy`."""
    cells, records = [], []
    for size in sizes:
        suite = f"speed-bench-throughput-{size}k"
        names = {"cell_id": f"low-{size}k", "dataset": suite}
        cells.append(cell(EASY, member=suite, title=f"{size}k", table="Low entropy", rows="cell", **names))
        records += easy(**names)
    cells.append(cell(EASY, cell_id="chat", dataset="chat", table="Talk", title="Chat", rows="cell"))
    records += easy(cell_id="chat")
    return run_folder(where, plan(*cells, run_id=name, **changes), records)
