from pathlib import Path

from spec_eval import tables
from spec_eval.render import points
from spec_eval.store import Point
from tests.factories import cell, plan, run_folder


def test_each_point_has_its_speed_and_what_is_amiss(tmp_path: Path) -> None:
    cells = tuple(cell((), cell_id=name, title=name) for name in ("c=1", "c=2"))
    found = {
        "c=1": Point(planned=2, ok=2, failed=0, steps=4, drafted=8, accepted=2, load={"mean_tpot_ms": 8.0}),
        "c=2": Point(
            planned=2,
            ok=2,
            failed=0,
            no_figure="zero drafts",
            load={"mean_ttft_ms": 30.0},
            missing=("mean_tpot_ms is NaN",),
        ),
    }
    report = tables.build(run_folder(tmp_path, plan(*cells, server_wide=True), (), points=found))
    assert points.lines(report) == [
        ("interactivity, c=1", "125.00 tokens/s/user (1000 / mean TPOT 8.00 ms)"),
        ("interactivity, c=2", "mean TTFT 30.00 ms"),
        ("no figure, c=2", "zero drafts"),
        ("read as missing, c=2", "mean_tpot_ms is NaN"),
    ]


def test_other_runs_have_none(tmp_path: Path) -> None:
    assert points.lines(tables.build(run_folder(tmp_path, plan(cell(())), ()))) == []
