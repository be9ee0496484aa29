import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval import suite
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.run.cells import LaidOut, lay_out
from spec_eval.run.options import RunOptions
from spec_eval.run.planning import dry_run, prepare, reload
from spec_eval.suite import Sampling

SIMPLE = """schema_version = 1
name = "{name}"
title = "{title}"
[data]
file = "{name}.jsonl"
licence = "CC0-1.0"
[prompt]
id = "id"
category = "kind"
template = "{{q}}"
[sampling]
temperature = 0.5
max_tokens = 100
top_k = 7
[load]
concurrency = 2
repeats = 1
{more}
"""
CARD = """schema_version = 1
name = "card"
title = "The card"
not_stated = ["seeds", "thinking"]
[choices]
selection = "first two"
[sampling]
temperature = 0.7
max_tokens = 50
[load]
concurrency = 3
[[cells]]
id = "tea-hot"
suite = "tea.toml"
table = "Hot"
title = "Tea"
sampling = { temperature = 1.0 }
[[cells]]
id = "tea-cold"
suite = "tea.toml"
table = "Cold"
title = "Tea"
rows = "category"
order = ["green", "black"]
concurrency = 1
repeats = 4
select = { categories = ["black", "green"], first = 2 }
[[cells]]
id = "cake"
suite = "cake.toml"
table = "Hot"
title = "Cake"
"""
KINDS = ("black", "green", "black", "white", "black", "green", "green")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two simple suites of seven rows, and a card of three cells."""
    for name, more in (("tea", ""), ("cake", '[select]\ncategories = ["green"]')):
        (tmp_path / f"{name}.toml").write_text(SIMPLE.format(name=name, title=name.title(), more=more), "utf-8")
        rows = [{"id": f"{name}{i}", "kind": kind, "q": f"{kind} {i}?"} for i, kind in enumerate(KINDS)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (tmp_path / "card.toml").write_text(CARD, "utf-8")
    return tmp_path


def laid(folder: Path, name: str = "card.toml", **given: Any) -> LaidOut:
    return lay_out(suite.read(folder / name), RunOptions(suite=name, **given))


def chosen(found: LaidOut) -> dict[str, list[str]]:
    return {cell.cell_id: [name for name, _, _ in cell.prompts.units] for cell in found.cells}


def test_cells_stand_in_the_order_of_the_card(folder: Path) -> None:
    found = laid(folder)
    assert [(c.cell_id, c.table, c.title, c.dataset, c.member, c.rows) for c in found.cells] == [
        ("tea-hot", "Hot", "Tea", "tea", "tea", "cell"),
        ("tea-cold", "Cold", "Tea", "tea", "tea", "category"),
        ("cake", "Hot", "Cake", "cake", "cake", "cell"),
    ]
    assert found.cells[1].order == ("green", "black")


def test_nearer_settings_come_before_farther_ones(folder: Path) -> None:
    hot, cold, cake = laid(folder).cells
    assert hot.sampling == Sampling(temperature=1.0, max_tokens=50, top_k=7)
    assert cold.sampling == cake.sampling == Sampling(temperature=0.7, max_tokens=50, top_k=7)
    assert [(c.concurrency, c.repeats) for c in (hot, cold, cake)] == [(3, 1), (1, 4), (3, 1)]
    (alone,) = laid(folder, "tea.toml").cells
    assert alone.sampling == Sampling(temperature=0.5, max_tokens=100, top_k=7)


def test_command_line_comes_before_all(folder: Path) -> None:
    given: dict[str, Any] = {"temperature": 0.0, "max_tokens": 9, "top_p": 0.5, "thinking": True, "repeats": 2}
    for cell in laid(folder, **given).cells:
        assert cell.sampling == Sampling(temperature=0.0, max_tokens=9, top_p=0.5, thinking=True, top_k=7)
        assert cell.repeats == 2


def test_selection_takes_the_first_of_each_named_category_in_row_order(folder: Path) -> None:
    assert chosen(laid(folder)) == {
        "tea-hot": [f"tea{i}" for i in range(7)],
        "tea-cold": ["tea0", "tea1", "tea2", "tea5"],  # two black ones and two green ones
        "cake": ["cake1", "cake5", "cake6"],  # as the suite itself selects
    }


def test_limit_counts_conversations_of_each_cell_after_its_selection(folder: Path) -> None:
    assert chosen(laid(folder, limit=3)) == {
        "tea-hot": ["tea0", "tea1", "tea3"],
        "tea-cold": ["tea0", "tea1", "tea2"],
        "cake": ["cake1", "cake5", "cake6"],
    }


def test_hash_and_rows_are_those_of_the_whole_set(folder: Path) -> None:
    hot, cold, _ = laid(folder).cells
    assert hot.prompts.sha256 == cold.prompts.sha256 == laid(folder, limit=1).cells[0].prompts.sha256
    assert (hot.prompts.rows, cold.prompts.rows) == (7, 7)


@pytest.mark.parametrize(("names", "missing"), [('"red", "blue"', "red, blue"), ('"black", "gren"', "gren")])
def test_category_that_no_row_has_is_an_error_and_not_an_empty_cell(folder: Path, names: str, missing: str) -> None:
    card = (folder / "card.toml").read_text("utf-8").replace('["black", "green"], first', f"[{names}], first")
    (folder / "card.toml").write_text(card, "utf-8")
    with pytest.raises(UsageError, match=rf"tea\.jsonl: no rows of {missing}, which tea-cold selects"):
        laid(folder)


def test_levels_of_concurrency_multiply_the_cells(folder: Path) -> None:
    assert [c.cell_id for c in laid(folder, concurrency=(1, 8)).cells] == [
        *("tea-hot-c1", "tea-hot-c8", "tea-cold-c1", "tea-cold-c8", "cake-c1", "cake-c8")
    ]
    assert {c.concurrency for c in laid(folder, concurrency=(8,)).cells} == {8}


def test_made_up_rows_never_carry_the_real_name(tmp_path: Path) -> None:
    home = tmp_path / "speed_bench_standin" / "throughput_1k.jsonl"
    home.parent.mkdir()
    row = {"question_id": "a", "category": "low_entropy", "turns": ["Why?"]}
    home.write_text(json.dumps(row) + "\n", "utf-8")
    name = "speed-bench-throughput-1k"
    (alone,) = lay_out(suite.find(name), RunOptions(suite=name, data_dir=tmp_path)).cells
    assert (alone.cell_id, alone.dataset, alone.title) == (
        "stand-in-throughput-1k",
        "stand-in-throughput-1k",
        "stand-in throughput-1k",
    )
    assert alone.prompts.source == "stand-in rows from throughput_1k.jsonl"
    assert alone.prompts.standin


@pytest.mark.parametrize("word", ["Stand-in rows, made here.", "STANDIN"])
def test_readme_that_calls_its_rows_a_stand_in_is_believed(tmp_path: Path, word: str) -> None:
    home = tmp_path / "speed_bench" / "throughput_1k.jsonl"
    home.parent.mkdir()
    row = {"question_id": "a", "category": "low_entropy", "turns": ["Why?"]}
    home.write_text(json.dumps(row) + "\n", "utf-8")
    name = "speed-bench-throughput-1k"
    options = RunOptions(suite=name, data_dir=tmp_path)
    with pytest.raises(UsageError, match="1 rows, the suite pins 1536"):
        lay_out(suite.find(name), options)
    (home.parent / "README.md").write_text(word, "utf-8")
    assert lay_out(suite.find(name), options).cells[0].prompts.standin


def test_members_are_kept_with_their_text_so_that_a_run_can_go_on(folder: Path) -> None:
    members = laid(folder).members
    assert sorted(members) == ["cake", "tea"]
    assert members["tea"].text == (folder / "tea.toml").read_text("utf-8")
    assert members["tea"].path == str((folder / "tea.toml").resolve())


def test_plan_of_a_card_can_be_reloaded_from_anywhere(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    given = RunOptions(suite=f"{folder.name}/card.toml", engine="vllm", base_url="http://127.0.0.1:1", limit=2)
    prepared = prepare(given)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    (folder / "card.toml").unlink()
    again = reload(prepared.plan)
    assert {name: [c.prompt_id for c in one] for name, one in again.prompts.items()} == {
        "tea-hot": ["tea0", "tea1"],
        "tea-cold": ["tea0", "tea1"],
        "cake": ["cake1", "cake5"],
    }


def test_plan_of_a_card_tells_what_the_card_does_not(folder: Path) -> None:
    options = RunOptions(suite=str(folder / "card.toml"), engine="vllm", base_url="http://127.0.0.1:1", limit=2)
    plan = prepare(options).plan
    assert (plan.suite_name, plan.not_stated, plan.choices) == (
        "card",
        ("seeds", "thinking"),
        {"selection": "first two"},
    )
    first, *rest = dry_run(options).splitlines()
    # 2 prompts once, 2 prompts four times, 2 once; 50 tokens each
    assert first.startswith("12 requests in 12 conversations, at most 600 generated tokens")
    assert rest[:4] == [
        "not stated by the card: seeds",
        "not stated by the card: thinking",
        "our choice of selection: first two",
        "overrides: limit in conversations a cell = 2",
    ]


def test_cell_of_a_suite_that_is_a_card_itself_is_refused(folder: Path) -> None:
    card = (folder / "card.toml").read_text("utf-8").replace('suite = "cake.toml"', 'suite = "card.toml"')
    (folder / "card.toml").write_text(card, "utf-8")
    with pytest.raises(UsageError, match="a compound suite; a cell names a simple one"):
        laid(folder)


def test_cell_of_an_unknown_suite_names_the_nearest(folder: Path) -> None:
    card = (folder / "card.toml").read_text("utf-8").replace('suite = "cake.toml"', 'suite = "humanevl"')
    (folder / "card.toml").write_text(card, "utf-8")
    with pytest.raises(UsageError, match="no suite 'humanevl', did you mean 'humaneval'"):
        laid(folder)


@pytest.mark.parametrize("name", ["card-dflash2", "card-dflash2-preview", "card-dspark"])
def test_shipped_card_without_its_data_is_a_fault_of_the_place(name: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="--data-dir"):
        lay_out(suite.find(name), RunOptions(suite=name, data_dir=tmp_path))


def test_a_misspelt_category_in_an_order_is_refused(folder: Path) -> None:
    (folder / "card.toml").write_text(CARD.replace('["green", "black"]', '["gren", "black"]', 1), "utf-8")
    with pytest.raises(UsageError, match="no rows of gren, which tea-cold orders, did you mean 'green'"):
        laid(folder)
