import json
import math
from pathlib import Path
from typing import Any

import pytest

from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.run import RunOptions, dry_run
from spec_eval.run.planning import marked, prepare, reload
from spec_eval.suite import Sampling
from tests.llamacpp_server import write_suite

URL = "http://127.0.0.1:8080/v1"


@pytest.fixture
def suite(tmp_path: Path) -> str:
    return str(write_suite(tmp_path / "suite"))


def options(suite: str, **more: Any) -> RunOptions:
    return RunOptions(**{"suite": suite, "engine": "llamacpp", "base_url": URL, **more})


def test_a_plan_says_everything_before_the_first_request(suite: str) -> None:
    plan = prepare(options(suite, command=("spec-eval", "run", "x"), seed=5, drafter="eagle", k=3)).plan
    text = Path(suite).read_text(encoding="utf-8")
    assert (plan.suite_name, plan.suite_text, plan.seed, plan.command) == ("pair", text, 5, ("spec-eval", "run", "x"))
    assert (plan.target.engine, plan.target.drafter, plan.target.k) == ("llamacpp", "eagle", 3)
    assert (plan.target.base_url, plan.target.recipe, plan.target.model) == (URL, None, None)
    assert (plan.origin, plan.synthetic, plan.overrides, plan.planned()) == ("measured", None, {}, 6)
    cell = plan.cells[0]
    assert (cell.cell_id, cell.dataset, cell.concurrency, cell.repeats) == ("pair", "pair", 2, 1)
    assert cell.prompts.units == tuple((f"p{i}", ("even", "odd")[i % 2], 1) for i in range(6))
    assert cell.prompts.rows == 6
    assert list(cell.prompts.files) == ["rows.jsonl"]
    assert list(cell.units()) == [("pair", f"p{i}", 0, 0) for i in range(6)]


def test_mark_of_made_up_acceptance_is_on_the_plan_and_on_every_cell(suite: str) -> None:
    real = prepare(options(suite, concurrency=(1, 2)))
    made_up = marked(real, "played")
    assert made_up.plan.synthetic == "played"
    assert [cell.cell_id for cell in made_up.plan.cells] == ["synthetic-pair-c1", "synthetic-pair-c2"]
    assert list(made_up.prompts) == ["synthetic-pair-c1", "synthetic-pair-c2"]
    assert made_up.plan.settings_sha256 != real.plan.settings_sha256
    assert marked(real, None) is real


def test_overrides_are_recorded_by_the_options_name_and_reach_the_cell(suite: str) -> None:
    given = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 5, "thinking": False, "repeats": 3, "limit": 4}
    plan = prepare(options(suite, **given)).plan
    assert plan.overrides == given
    assert plan.cells[0].sampling == Sampling(temperature=0.7, top_p=0.9, max_tokens=5, thinking=False)
    assert plan.cells[0].repeats == 3
    assert plan.planned() == 12


def test_an_override_of_zero_or_off_is_one_too(suite: str) -> None:
    plan = prepare(options(suite, temperature=0.0, thinking=False)).plan
    assert plan.overrides == {"temperature": 0.0, "thinking": False}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("temperature", math.inf),
    ],
)
def test_an_override_that_the_suite_could_not_hold_is_refused(suite: str, name: str, value: float) -> None:
    with pytest.raises(UsageError, match=name.replace("_", ".")):
        prepare(options(suite, **{name: value}))


def test_a_limit_deals_evenly_over_the_categories_and_keeps_the_rows_order(suite: str) -> None:
    prepared = prepare(options(suite, limit=3))
    assert [name for name, _, _ in prepared.plan.cells[0].prompts.units] == ["p0", "p1", "p2"]
    assert [c.prompt_id for c in prepared.prompts["pair"]] == ["p0", "p1", "p2"]
    assert prepared.plan.cells[0].prompts.rows == 6


def test_a_limit_above_the_rows_takes_all_and_leaves_the_hash_alone(suite: str) -> None:
    all_of_it, limited = prepare(options(suite)).plan, prepare(options(suite, limit=2)).plan
    assert prepare(options(suite, limit=99)).plan.planned() == 6
    assert limited.cells[0].prompts.sha256 == all_of_it.cells[0].prompts.sha256


def test_several_levels_of_concurrency_become_cells_of_their_own(suite: str) -> None:
    prepared = prepare(options(suite, concurrency=(1, 4, 16)))
    cells = prepared.plan.cells
    assert [(c.cell_id, c.concurrency) for c in cells] == [("pair-c1", 1), ("pair-c4", 4), ("pair-c16", 16)]
    assert sorted(prepared.prompts) == ["pair-c1", "pair-c16", "pair-c4"]
    assert (prepared.plan.planned(), prepared.plan.overrides) == (18, {"concurrency": [1, 4, 16]})


def test_one_level_of_concurrency_is_no_other_cell(suite: str) -> None:
    cells = prepare(options(suite, concurrency=(8,))).plan.cells
    assert [(c.cell_id, c.concurrency) for c in cells] == [("pair", 8)]


@pytest.mark.parametrize(
    "given",
    [
        {"engine": "embedded", "base_url": None},
        {"engine": None, "base_url": None, "serve": "smollm2-ngram"},
        {"engine": "llamacpp", "base_url": None, "serve": "smollm2-ngram"},
        {"engine": "embedded", "base_url": None, "serve": "smollm2-ngram"},
    ],
)
def test_every_way_to_the_embedded_engine_is_the_recipe_on_llamacpp(suite: str, given: dict[str, Any]) -> None:
    target = prepare(options(suite, **given)).plan.target
    assert (target.engine, target.base_url, target.drafter, target.k) == ("llamacpp", None, "ngram-simple", 8)
    assert target.recipe is not None
    assert target.recipe["name"] == "smollm2-ngram"
    assert (target.adaptive, target.tensor_parallelism) == (False, 1)


def test_the_embedded_engine_takes_another_file_another_k_and_another_name(
    suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.gguf").touch()
    target = prepare(options(suite, engine="embedded", base_url=None, model="mine.gguf", k=2, drafter="d")).plan.target
    assert (target.k, target.drafter) == (2, "d")
    assert target.model == "mine.gguf", "another file is not reported under the recipe's name"
    assert target.model_file == str(Path("mine.gguf").resolve())


def test_adaptive_does_not_go_with_a_server_of_ours(suite: str) -> None:
    with pytest.raises(UsageError, match="--adaptive does not go with"):
        prepare(options(suite, engine="embedded", base_url=None, adaptive=True))


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"engine": None, "base_url": None}, "no server: .*--engine embedded"),
        ({"base_url": None}, "no server: .*--base-url"),
        ({"engine": None}, "no server: .*--engine"),
        ({"engine": "embedded"}, "--base-url does not go"),
        ({"engine": None, "serve": "smollm2-ngram"}, "--base-url does not go"),
        ({"engine": "sglang-not-there", "base_url": None, "serve": "smollm2-ngram"}, "no engine 'sglang-not-there'"),
        ({"engine": "lamacpp"}, "no engine 'lamacpp'.*llamacpp"),
        ({"engine": None, "base_url": None, "serve": "smollm2-ngrm"}, "no recipe 'smollm2-ngrm'.*smollm2-ngram"),
        ({"base_url": "127.0.0.1:8080"}, "--base-url .*not a web address"),
        ({"base_url": "ftp://127.0.0.1/v1"}, "--base-url .*not a web address"),
        ({"base_url": "http://[::1/v1"}, "--base-url .*not a web address"),
        ({"base_url": "http://127.0.0.1:http/v1"}, "--base-url .*not a web address"),
        ({"suite": "smokey"}, "no suite 'smokey', did you mean 'smoke'"),
        ({"suite": "elsewhere/none.toml"}, "no suite 'elsewhere/none.toml'"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_remedy(suite: str, given: dict[str, Any], names: str) -> None:
    with pytest.raises(UsageError, match=names):
        prepare(options(**{"suite": suite, **given}))


def test_a_password_in_the_address_is_refused_and_not_repeated(suite: str) -> None:
    with pytest.raises(UsageError) as caught:
        prepare(options(suite, base_url="http://me:hunter2@127.0.0.1/v1"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/"])
def test_an_address_is_taken_with_or_without_its_v1(suite: str, url: str) -> None:
    assert prepare(options(suite, base_url=url)).plan.target.base_url == URL


def test_the_key_is_in_no_plan(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-1")
    plan = prepare(options(suite, api_key_env="MY_KEY")).plan
    assert plan.api_key_env == "MY_KEY"
    assert "sk-secret-1" not in plan.model_dump_json()


def test_a_dry_run_tells_what_would_be_sent_and_writes_nothing(suite: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    text = dry_run(options(suite, repeats=2, concurrency=(1, 4), limit=4, out=tmp_path / "out"))
    first, *rest = text.splitlines()
    # 4 prompts x 2 repeats x 2 levels, 32 tokens each at most
    assert first == "16 requests in 16 conversations, at most 512 generated tokens, at most 1 MB on disk"
    names = [line.strip().partition(":")[0] for line in rest]
    assert names == ["overrides", "pair-c1", "first", "pair-c4", "first"]
    assert rest[0] == "overrides: limit in conversations a cell = 4, repeats = 2, concurrency = [1, 4]"
    assert "'Answer: Question number 0?'" in text
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_tells_what_is_odd_about_the_data(suite: str) -> None:
    rows = Path(suite).with_name("rows.jsonl")
    more = '{"id": "x", "kind": "Odd ", "question": "Why?"}\n{"id": "y", "question": "Why not?"}\n'
    rows.write_text(rows.read_text(encoding="utf-8") + more, encoding="utf-8")
    notes = [line.strip() for line in dry_run(options(suite)).splitlines() if "note: " in line]
    assert notes == [
        "note: categories 'Odd ', 'odd' differ only by case or space and are kept apart",
        "note: 1 rows have no category and are counted under (none)",
    ]


def test_a_dry_run_tells_the_disk_that_a_run_may_take(suite: str) -> None:
    # 6 requests x 500,000 tokens x 8 bytes
    first = dry_run(options(suite, max_tokens=500_000)).splitlines()[0]
    assert first == "6 requests in 6 conversations, at most 3000000 generated tokens, at most 24 MB on disk"


def test_settings_hash_alike_where_only_the_address_differs(suite: str) -> None:
    plan = prepare(options(suite)).plan
    elsewhere = prepare(options(suite, base_url="http://127.0.0.1:9999/v1", max_failures=0.5)).plan
    assert elsewhere.settings_sha256 == plan.settings_sha256
    for change in ({"seed": 1}, {"seed": None}, {"max_tokens": 31}, {"limit": 2}, {"concurrency": (3,)}, {"k": 2}):
        assert prepare(options(suite, **change)).plan.settings_sha256 != plan.settings_sha256


def test_a_reloaded_plan_has_its_prompts_again(suite: str) -> None:
    prepared = prepare(options(suite, limit=3, concurrency=(1, 2)))
    again = reload(prepared.plan)
    assert sorted(again.prompts) == ["pair-c1", "pair-c2"]
    assert [c.prompt_id for c in again.prompts["pair-c1"]] == ["p0", "p1", "p2"]


def test_a_plan_does_not_hang_on_where_it_was_made(suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(suite).parent)
    plan = prepare(options("pair.toml")).plan
    monkeypatch.chdir(tmp_path)
    assert len(list(reload(plan).prompts["pair"])) == 6


def test_a_plan_whose_prompts_changed_since_is_refused(suite: str) -> None:
    plan = prepare(options(suite)).plan
    rows = Path(suite).with_name("rows.jsonl")
    changed = json.loads(rows.read_text(encoding="utf-8").splitlines()[0]) | {"question": "Another?"}
    rows.write_text(json.dumps(changed) + "\n" + rows.read_text(encoding="utf-8").split("\n", 1)[1], encoding="utf-8")
    with pytest.raises(UsageError, match="prompts changed since the run was planned"):
        reload(plan)


def test_a_plan_whose_rows_are_gone_is_a_fault_of_the_place(suite: str) -> None:
    plan = prepare(options(suite)).plan
    Path(suite).with_name("rows.jsonl").unlink()
    with pytest.raises(EnvironmentFault, match=r"rows\.jsonl"):
        reload(plan)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"member": None}, "has no suite or no concurrency"),
        ({"member": "another"}, "has no suite or no concurrency"),
        ({"concurrency": None}, "has no suite or no concurrency"),
        ({"units": (("p0", "even", 2),)}, "has units that no prompt has"),
        ({"units": (("p99", "even", 1),)}, "has units that no prompt has"),
    ],
)
def test_a_plan_that_does_not_fit_its_suites_is_damaged(suite: str, changes: dict[str, Any], says: str) -> None:
    plan = prepare(options(suite)).plan
    cell = plan.cells[0]
    if "units" in changes:
        changes = {"prompts": cell.prompts.model_copy(update=changes)}
    with pytest.raises(UsageError, match=f"plan.json: cell 'pair' {says}; the file is damaged"):
        reload(plan.model_copy(update={"cells": (cell.model_copy(update=changes),)}))
