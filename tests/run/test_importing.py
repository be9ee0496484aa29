from pathlib import Path

import pytest

from spec_eval import run as running
from spec_eval import tables
from spec_eval.engines import ENGINES
from spec_eval.errors import UsageError
from spec_eval.importers import aiperf, captures, vllm_bench
from spec_eval.render.progress import Progress
from spec_eval.run import importing
from spec_eval.store import NotExact, RunFolder
from tests.factories import DATA
from tests.importers.test_captures import body, line, written
from tests.importers.test_vllm_bench import result
from tests.importers.test_vllm_bench import written as bench_written


def kept(tmp_path: Path, *, k: int | None = None) -> RunFolder:
    path = written(tmp_path, [line("a", body([1, 2, 1])), line("b", body([2, 0, 0]), dataset="other")])
    found = captures.read(path, ENGINES["vllm"], k=k)
    return importing.keep(found, path, engine="vllm", k=k, out=tmp_path / "results", command=("spec-eval", "import"))


def test_folder_is_whole_at_once_and_says_where_it_is_from(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    assert "imported-captures-vllm" in folder.path.name
    assert folder.is_whole
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "manifest.json",
        "plan.json",
        "requests.jsonl",
        "requests.parquet",
    ]
    plan, manifest = folder.plan(), folder.manifest()
    assert (plan.origin, plan.suite_name, plan.run_id) == ("imported", "captures", folder.path.name)
    assert (plan.target.engine, plan.target.model, plan.target.drafter) == ("vllm", None, None)
    assert manifest is not None
    assert (manifest.started, manifest.ended, manifest.sessions) == (None, None, ())
    assert manifest.outcome == {"planned": 2, "sent": 2, "ok": 2, "failed": 0, "measured": 2}
    assert (manifest.reconciliation.status, manifest.reconciliation.cause) == ("not available", NotExact.IMPORTED)
    assert "imported" in str(manifest.reconciliation.reason)


def test_what_nobody_knows_is_null_and_not_a_default(tmp_path: Path) -> None:
    manifest = kept(tmp_path).manifest()
    assert manifest is not None
    settings = manifest.settings["talk"]
    unknown = ("temperature", "top_p", "top_k", "max_tokens", "concurrency", "prefix_caching", "adaptive")
    assert {name: settings[name] for name in unknown} == dict.fromkeys(unknown)
    assert (settings["k"], settings["thinking"]) == (2, False)


def test_rows_are_those_of_the_data_sets(tmp_path: Path) -> None:
    report = tables.build(kept(tmp_path), "dataset")
    # talk: S 4, A 4; other: S 2, A 0
    assert [(row.dataset, row.figures.steps, row.figures.accepted) for row in report.rows] == [
        ("talk", 4, 4),
        ("other", 2, 0),
    ]
    length = report.overall.figures.acceptance_length
    assert length is not None
    assert length.value == pytest.approx(1 + 4 / 6)


def test_imported_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="imported, not measured here"):
        running.resume(kept(tmp_path).path, Progress())


def test_given_k_stands_in_the_plan(tmp_path: Path) -> None:
    assert kept(tmp_path, k=2).plan().target.k == 2


def test_named_drafter_stands_in_the_plan(tmp_path: Path) -> None:
    path = written(tmp_path, [line("a", body([1, 2, 1]))])
    found = captures.read(path, ENGINES["vllm"])
    folder = importing.keep(found, path, engine="vllm", k=None, drafter="org/d", out=tmp_path, command=("spec-eval",))
    assert folder.plan().target.drafter == "org/d"


def test_points_stand_in_the_manifest_and_requests_are_theirs(tmp_path: Path) -> None:
    path = bench_written(tmp_path, result())
    found = vllm_bench.read(path)
    folder = importing.keep(found, path, engine="vllm", k=None, out=tmp_path / "results", command=("spec-eval",))
    plan, manifest = folder.plan(), folder.manifest()
    assert manifest is not None
    assert (plan.server_wide, plan.tool, plan.target.model) == (True, "vllm bench serve", "org/target-b")
    assert manifest.points == found.points
    assert manifest.outcome == {"planned": 50, "sent": 50, "ok": 48, "failed": 2, "measured": 0}
    settings = manifest.settings["c=4"]
    assert (settings["k"], settings["concurrency"], settings["temperature"], settings["thinking"]) == (3, 4, None, None)
    assert (manifest.started, folder.records().records) == (None, ())


def test_folder_gives_its_name_and_its_times(tmp_path: Path) -> None:
    path = DATA / "aiperf" / "vllm"
    found = aiperf.read(path, ENGINES["vllm"])
    folder = importing.keep(found, path, engine="vllm", k=None, out=tmp_path, command=("spec-eval",))
    manifest = folder.manifest()
    assert manifest is not None
    assert (folder.plan().suite_name, folder.plan().server_wide) == ("vllm", False)
    # the first request began at 1796068518.438456047 s, the last one ended before 1796068521 s
    assert manifest.started == "2026-11-30T19:55:18+00:00"
    assert manifest.started < str(manifest.ended) < "2026-11-30T19:55:21+00:00"
