"""A run whose acceptance was played from a known answer says so wherever anybody could meet its figures."""

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from spec_eval import tables
from spec_eval.engines.scrape import parse
from spec_eval.render import console, markdown
from spec_eval.render import csv as csv_render
from spec_eval.render import json as json_render
from spec_eval.store import Plan, RunFolder, Target
from tests.factories import answered, cell, from_histogram, plan, run_folder

WHY = "llama.cpp accepted at the rates of card:table:row (model card org/model), not by comparing tokens"
METRICS = (
    "llamacpp:spec_decode_num_drafts_total 3\n"
    "llamacpp:spec_decode_num_draft_tokens_total 6\n"
    "llamacpp:spec_decode_num_accepted_tokens_total 3\n"
)


def made(synthetic: str | None) -> Plan:
    target = Target(engine="llamacpp", model="m", drafter="synthetic-card:table:row" if synthetic else "d", k=2)
    return plan(cell([("a", "qa", 1)]), synthetic=synthetic, target=target)


def folder(where: Path, synthetic: str | None) -> RunFolder:
    return run_folder(where, made(synthetic), [answered(from_histogram((1, 1, 1)), prompt_id="a", category="qa")])


@pytest.mark.parametrize("synthetic", [WHY, None])
def test_scrapes_begin_with_a_comment_and_are_read_all_the_same(tmp_path: Path, synthetic: str | None) -> None:
    one = folder(tmp_path, synthetic)
    one.write_scrape(1, "before", METRICS)
    text = (one.path / "metrics-before.prom").read_text(encoding="utf-8")
    assert text == (f"# synthetic\n{METRICS}" if synthetic else METRICS)
    assert parse(text, "llamacpp:") == parse(METRICS, "llamacpp:")


@pytest.mark.parametrize("synthetic", [WHY, None])
def test_sessions_are_marked(tmp_path: Path, synthetic: str | None) -> None:
    one = folder(tmp_path, synthetic)
    assert one.start_session("2030-01-02T03:04:05+00:00") == 1
    (line,) = (one.path / "sessions.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line).get("synthetic", False) is (synthetic is not None)


@pytest.mark.parametrize("synthetic", [WHY, None])
def test_every_format_of_the_report_is_marked(tmp_path: Path, synthetic: str | None) -> None:
    report = tables.build(folder(tmp_path, synthetic))
    title = markdown.render([report]).splitlines()[0]
    assert title == ("## chat: synthetic-card:table:row (synthetic)" if synthetic else "## chat: d")
    (run,) = json.loads(json_render.render([report]))["runs"]
    assert run["synthetic"] == synthetic
    rows = list(csv.DictReader(io.StringIO(csv_render.render([report]))))
    assert [row["synthetic"] for row in rows] == [synthetic or ""] * 2
    out = io.StringIO()
    console.show([report], Console(file=out, width=200))
    assert ("(synthetic)" in out.getvalue().splitlines()[0]) is (synthetic is not None)
    assert (WHY in out.getvalue()) is (synthetic is not None)
    assert ("never publish" in out.getvalue()) is (synthetic is not None)


def test_synthetic_run_has_other_settings_than_a_real_one() -> None:
    real = made(None)
    assert real.settings_sha256 != real.model_copy(update={"synthetic": WHY}).settings_sha256
