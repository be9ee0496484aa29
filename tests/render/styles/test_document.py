"""Several runs in one document: one table a heading, no cell twice, and nothing unlike joined without a word."""

import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from spec_eval import tables
from spec_eval.errors import UsageError
from spec_eval.render.styles import dflash2, document, speculators
from spec_eval.render.styles.document import Run
from spec_eval.store import Target
from spec_eval.suite import Sampling
from tests import cards_oracle as oracle
from tests.factories import CELL, answered, cell, failed, from_histogram, plan, run_folder

# S 10, A 10, and S 2, A 4: pooled 1 + 14/12, per request the mean of 2 and 3.
LONG, SHORT = from_histogram((5, 0, 5)), from_histogram((0, 0, 2))
SETTINGS = {"k": 2, "temperature": 0.0, "max_tokens": 64, "concurrency": 1}


def run(where: Path, name: str, title: str = "Alpha", **changes: Any) -> Run:
    """A run of two requests in one cell."""
    settings: dict[str, Any] = {CELL: {**SETTINGS, **changes.pop("settings", {})}}
    whole, records = changes.pop("whole", True), changes.pop("records", None)
    more: dict[str, Any] = {
        key: changes.pop(key) for key in ("sampling", "table", "order", "rows", "concurrency") if key in changes
    }
    laid: dict[str, Any] = {"title": title, "table": "Both", "rows": "cell", "dataset": title.lower(), **more}
    units = changes.pop("units", [("a", "coding", 1), ("b", "qa", 1)])
    named: dict[str, Any] = {"dataset": title.lower()}
    if records is None:
        records = [answered(LONG, prompt_id="a", **named), answered(SHORT, prompt_id="b", category="qa", **named)]
    of = plan(cell(units, **laid), run_id=name, **changes)
    return Run(tables.build(run_folder(where, of, records, whole=whole, settings=settings)))


def shown(text: str, heading: str) -> list[tuple[str, ...]]:
    return list(oracle.tables(text)[heading][0].rows)


def names(text: str, heading: str = "Both") -> list[str]:
    return [row[0] for row in shown(text, heading)]


def test_rows_of_several_runs_stand_under_one_heading(tmp_path: Path) -> None:
    text = speculators.render([run(tmp_path, "one"), run(tmp_path, "two", "Beta")])
    assert names(text) == ["Alpha", "Beta"]
    assert text.count("### Both") == 1
    assert "Where the runs differ" not in text


def test_each_style_keeps_to_one_estimator(tmp_path: Path) -> None:
    one = run(tmp_path, "one")
    assert shown(speculators.render([one]), "Both") == [("Alpha", "2.1667", "58.33%", "58.33%", "58.33%")]
    assert shown(dflash2.render([one]), "Both") == [("Alpha", "2.50", "75.00", "75.00")]


def test_same_cell_from_two_runs_is_refused_and_both_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^one and two both hold 'Alpha' of 'Both'; give one of them$"):
        speculators.render([run(tmp_path, "one"), run(tmp_path, "two")])


def test_category_that_a_run_never_planned_leaves_its_cell_to_another(tmp_path: Path) -> None:
    laid: dict[str, Any] = {"rows": "category", "order": ("qa", "coding")}
    first = run(tmp_path, "one", units=[("a", "coding", 1)], records=[answered(LONG, prompt_id="a")], **laid)
    record = answered(SHORT, prompt_id="b", category="qa")
    second = run(tmp_path, "two", units=[("b", "qa", 1)], records=[record], **laid)
    assert shown(speculators.render([first, second]), "Both") == [
        ("qa", "3.0000", "100.00%", "100.00%", "100.00%"),
        ("coding", "2.0000", "50.00%", "50.00%", "50.00%"),
    ]


def test_simple_suites_of_one_row_stand_together_and_others_by_themselves(tmp_path: Path) -> None:
    alone: dict[str, Any] = {"table": None, "rows": "category"}
    first = run(tmp_path, "one", units=[("a", "(none)", 1)], records=[answered(LONG, prompt_id="a")], **alone)
    second = run(tmp_path, "two", "Beta", units=[("a", "(none)", 1)], records=[answered(LONG, prompt_id="a")], **alone)
    third = run(tmp_path, "three", "Gamma", **alone)
    text = dflash2.render([first, second, third])
    assert names(text, "Data sets, temperature 0") == ["Alpha", "Beta"]
    assert names(text, "Gamma, temperature 0") == ["coding", "qa"]


def test_levels_of_load_are_told_apart(tmp_path: Path) -> None:
    cells = [cell([("a", "coding", 1)], cell_id=f"x-c{c}", table="Both", rows="cell", concurrency=c) for c in (1, 4)]
    records = [answered(LONG, cell_id=one.cell_id, prompt_id="a") for one in cells]
    text = speculators.render([Run(tables.build(run_folder(tmp_path, plan(*cells), records)))])
    assert names(text) == ["Chat, c=1", "Chat, c=4"]


def test_cells_whose_categories_share_names_are_told_apart_by_title(tmp_path: Path) -> None:
    cells = [cell([("a", "coding", 1)], cell_id=name, table="Both", title=name) for name in ("x", "y")]
    records = [answered(LONG, cell_id=one.cell_id, prompt_id="a") for one in cells]
    text = speculators.render([Run(tables.build(run_folder(tmp_path, plan(*cells), records)))])
    assert names(text) == ["x / coding", "y / coding"]


def test_settings_that_differ_are_told_and_every_row_names_its_run(tmp_path: Path) -> None:
    second = run(tmp_path, "two", "Beta", settings={"concurrency": 8, "top_p": 0.9})
    for render in (speculators.render, dflash2.render):
        text = render([run(tmp_path / render.__module__, "one"), second])
        assert names(text) == ["Alpha (run 1)", "Beta (run 2)"]
        assert "Runs 1, 2 were not measured alike: see “Where the runs differ” below." in text
        told = text.partition("## Where the runs differ")[2].splitlines()
        assert "- concurrency: 1 (run 1), 8 (run 2)" in told
        assert "- top\\_p: not known (run 1), 0.9 (run 2)" in told
        assert not any(line.startswith("- k:") for line in told)


def test_other_drafter_engine_or_prompts_are_told_too(tmp_path: Path) -> None:
    first = run(tmp_path, "one")
    second = run(tmp_path, "two", "Beta", target=Target(engine="vllm", model="target-a", drafter="drafter-b", k=3))
    told = document.differences([first, second], None)
    assert told == ["engine: llamacpp (run 1), vllm (run 2)", "draft: drafter-a (run 1), drafter-b (run 2)"]


def test_temperatures_differ_only_within_a_table(tmp_path: Path) -> None:
    hot: dict[str, Any] = {"sampling": Sampling(temperature=1.0, max_tokens=64), "settings": {"temperature": 1.0}}
    first = run(tmp_path, "one")
    assert document.differences([first, run(tmp_path, "two", table="Other", **hot)], None) == []
    assert document.differences([first, run(tmp_path, "three", "Beta", **hot)], None) == [
        "temperature of 'Both': 0 (run 1), 1 (run 2)"
    ]


def test_unfinished_run_joins_with_a_word_on_what_nobody_knows(tmp_path: Path) -> None:
    text = speculators.render([run(tmp_path, "one"), run(tmp_path, "two", "Beta", whole=False)])
    assert text.splitlines()[0] == "# drafter-a (incomplete)"
    assert "- settings of run 2 are not known: it is not whole" in text


@pytest.mark.parametrize("render", [speculators.render, dflash2.render])
@pytest.mark.parametrize(
    ("changes", "mark", "titled"),
    [
        ({"synthetic": "rates of a card"}, "synthetic", True),
        ({"origin": "imported"}, "imported", True),
        ({"settings": {"adaptive": True}}, "adaptive", True),
        ({"target": Target(engine="sglang", model="m", drafter="drafter-a", k=2)}, "nominal drafts", True),
        ({"target": Target(engine="scrape", model="m", drafter="drafter-a", k=2)}, "server-wide", True),
        ({"records": [answered(LONG, prompt_id="a"), failed(prompt_id="b", category="qa")]}, "partial", False),
    ],
)
def test_marks_stand_in_the_title_and_behind_the_row(
    render: Any, changes: dict[str, Any], mark: str, titled: bool, tmp_path: Path
) -> None:
    text = render([run(tmp_path, "one", **changes)])
    assert (f"({mark})" in text.splitlines()[0]) is titled
    (heading,) = [name for name in oracle.tables(text) if name in ("Both", "Totals of the server")]
    (name,) = names(text, heading)
    assert name.endswith(f" ({mark})")


def test_made_up_rows_say_so_behind_their_name(tmp_path: Path) -> None:
    laid = cell([("a", "coding", 1)], table="Both", rows="cell")
    laid = laid.model_copy(update={"prompts": laid.prompts.model_copy(update={"standin": True})})
    text = speculators.render([Run(tables.build(run_folder(tmp_path, plan(laid), [answered(LONG, prompt_id="a")])))])
    assert text.splitlines()[0] == "# drafter-a (stand-in rows)"
    assert names(text) == ["Chat (stand-in)"]


def test_category_of_a_made_up_set_says_so_though_its_title_stands_elsewhere(tmp_path: Path) -> None:
    laid = cell([("a", "coding", 1), ("b", "qa", 1)], title="stand-in rows")
    laid = laid.model_copy(update={"prompts": laid.prompts.model_copy(update={"standin": True})})
    records = [answered(LONG, prompt_id="a"), answered(SHORT, prompt_id="b", category="qa")]
    text = speculators.render([Run(tables.build(run_folder(tmp_path, plan(laid), records)))])
    assert names(text, "stand-in rows, temperature 0") == ["coding (stand-in)", "qa (stand-in)"]


BAD = "<img src=x>|[a](http://b)\n# `c` **d**"


@pytest.mark.parametrize("render", [speculators.render, dflash2.render])
def test_texts_from_outside_can_open_nothing(render: Any, tmp_path: Path) -> None:
    target = Target(engine="llamacpp", model=BAD, drafter=BAD, k=2)
    changes: dict[str, Any] = {"table": BAD, "target": target, "suite_name": BAD}
    text = render([run(tmp_path, "one", BAD, **changes), run(tmp_path, "two", f"{BAD}2", **changes)], BAD)
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert not re.findall(r"<(?:a|img|em)\b", html)
    assert html.count("<h1>") == 1
    assert re.findall(r"<code>(\w+)</code>", html) == ["few_conversations"] * 2
    assert html.count("<code>") == 2
    assert "&lt;img src=x&gt;|[a](http://b) # `c` **d**" in html


@pytest.mark.parametrize("render", [speculators.render, dflash2.render])
def test_every_table_is_one_for_a_reader_of_markdown(render: Any, tmp_path: Path) -> None:
    html = MarkdownIt("commonmark").enable("table").render(render([run(tmp_path, "one"), run(tmp_path, "two", "a|b")]))
    bodies = re.findall(r"<table>(.*?)</table>", html, re.DOTALL)
    assert len(bodies) == {"speculators": 4, "dflash2": 1}[render.__module__.rpartition(".")[2]]
    for body in bodies:
        rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
        assert {len(re.findall(r"<t[hd]\b", row)) for row in rows} == {len(re.findall("<th", rows[0]))}
    assert "|" not in re.sub("a\\|b", "", html)


def test_caption_says_how_many_repeats_each_row_is_a_mean_of(tmp_path: Path) -> None:
    cells = [
        cell([("a", "coding", 1)], cell_id=name, title=name, table="Both", rows="cell", repeats=repeats)
        for name, repeats in (("x", 2), ("y", 1))
    ]
    # x: repeats of AL 2 and 3; y: AL 3.
    records = [
        answered(LONG, cell_id="x", prompt_id="a", repeat=0),
        answered(SHORT, cell_id="x", prompt_id="a", repeat=1),
        answered(SHORT, cell_id="y", prompt_id="a"),
    ]
    text = dflash2.render([Run(tables.build(run_folder(tmp_path, plan(*cells), records)))])
    assert [row[:2] for row in shown(text, "Both")] == [("x", "2.50"), ("y", "3.00")]
    assert "Repeats: x: 2, y: 1." in text
