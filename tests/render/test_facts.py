from pathlib import Path
from typing import Any

from spec_eval.render import facts
from spec_eval.store import Plan, Target
from spec_eval.store.plan import Member
from tests.factories import cell, manifest, plan

RECIPE: dict[str, Any] = {
    "hardware": {"name": "8xh200", "description": "eight GPUs of a kind"},
    "target": {"revision": "v" * 40, "precision": "FP8"},
    "engines": {"vllm": {"flags": {"dtype": "bfloat16", "kv-cache-dtype": "fp8"}}},
    "drafter": {"algorithm": "dflash2", "revision": "d" * 40, "format": "Safetensors", "precision": "BF16"},
}
UNITS = [("a", "coding", 1)]


def with_recipe(**changes: Any) -> Plan:
    target = Target(engine="vllm", model="org/target-fp8", drafter="org/draft", k=8, recipe=RECIPE)
    return plan(cell(UNITS), target=target, **changes)


def test_what_the_recipe_knows_is_told() -> None:
    of = with_recipe()
    told = dict(facts.specification(of, None))
    assert told["Draft format / precision"] == "Safetensors / BF16"
    assert told["Verifier precision"] == "precision FP8, dtype bfloat16, KV cache dtype fp8"
    assert told["Draft algorithm"] == "dflash2"
    assert told["Hardware"] == "eight GPUs of a kind"
    assert told["Draft tokens a step"] == "8"
    identities = dict(facts.reproducibility(of, None))
    assert identities["Draft revision"] == f"{'d' * 40} (from recipe, unverified)"
    assert identities["Verifier revision"] == f"{'v' * 40} (from recipe, unverified)"


def test_revision_of_the_recipe_is_not_that_of_a_file_of_ones_own() -> None:
    of = with_recipe()
    of = of.model_copy(update={"target": of.target.model_copy(update={"model_file": "/models/mine"})})
    assert dict(facts.reproducibility(of, None))["Verifier revision"] == "not stated"


def test_what_a_recipe_records_is_of_its_default_variant_alone() -> None:
    of = with_recipe()
    recipe = RECIPE | {"target": RECIPE["target"] | {"variants": {"fp8": "org/target-fp8", "bf16": "org/target"}}}
    for variant, revision, precision in (
        ("fp8", f"{'v' * 40} (from recipe, unverified)", "precision FP8, recipe's variant fp8, dtype bfloat16"),
        ("bf16", "not stated", "recipe's variant bf16, dtype bfloat16"),
    ):
        target = of.target.model_copy(update={"recipe": recipe, "variant": variant})
        served = of.model_copy(update={"target": target})
        assert dict(facts.reproducibility(served, None))["Verifier revision"] == revision
        assert dict(facts.specification(served, None))["Verifier precision"] == f"{precision}, KV cache dtype fp8"


def test_what_nobody_said_is_not_made_up() -> None:
    of = plan(cell(UNITS), target=Target(engine="vllm", model=None, drafter=None, k=None))
    told = dict(facts.specification(of, None))
    assert {told[name] for name in ("Draft format / precision", "Verifier precision", "Hardware")} == {"not stated"}
    unknown = ("Draft tokens a step", "Chat template sha256", "Draft sampling", "Serving context", "Draft algorithm")
    assert {told[name] for name in unknown} == {"not known"}
    assert (told["Verifier"], told["Draft"]) == ("not named", "not named")
    identities = dict(facts.reproducibility(of, None))
    assert (identities["Draft revision"], identities["Draft weights sha256"]) == ("not stated", "not known")
    assert identities["spec-eval"] == "0.1.0, commit not known"


def test_server_and_settings_are_told_once_each() -> None:
    of = plan(cell(UNITS), cell(UNITS, cell_id="other"), spec_eval_commit="c0ffee")
    settings = {"chat_template_sha256": "a" * 64, "adaptive": False, "draft_sampling": "greedy", "k": 8}
    server = {"model": "org/served", "context": 131072, "k_flag": "num_draft_tokens 9", "model_file_sha256": "f" * 64}
    written = manifest(of, settings={c.cell_id: settings for c in of.cells}, server=server)
    told = dict(facts.specification(of, written))
    assert told["Verifier"] == "org/served"
    assert told["Chat template sha256"] == "a" * 64
    assert (told["Adaptive verification"], told["Draft sampling"]) == ("off", "greedy")
    assert told["Draft tokens a step"] == "8 (server flag: num_draft_tokens 9)"
    assert told["Serving context"] == "131,072 tokens"
    identities = dict(facts.reproducibility(of, written))
    assert identities["Verifier weights sha256"] == f"{'f' * 64} (hashed)"
    assert identities["spec-eval"] == "0.1.0, commit c0ffee"
    assert identities["Engine"] == "llamacpp b1"


def member(adapter: str, data: str) -> Member:
    return Member(text=f'[data]\n{data}\n[prompt]\nadapter = "{adapter}"\n')


def test_data_is_told_with_preparer_revision_and_files() -> None:
    talks, long = cell(UNITS, cell_id="talks", dataset="talks", member="m1"), cell(UNITS, dataset="long", member="m2")
    tool = {"name": "preparer", "commit": "abc", "changed": True, "run_by": "spec-eval 0.1.0"}
    talks = talks.model_copy(update={"prompts": talks.prompts.model_copy(update={"preparation": {"tool": tool}})})
    hub = {"source": "org/long", "revision": "r" * 40, "files": {}, "rows": 800}
    long = long.model_copy(update={"prompts": long.prompts.model_copy(update=hub)})
    members = {"m1": member("speed-bench", ""), "m2": member("mrcr", 'hub_files = ["one.parquet", "two.parquet"]')}
    of = plan(talks, long, members=members)
    told = dict(facts.reproducibility(of, None))
    assert told["SPEED-Bench preparation"] == "preparer commit abc, changed since, run by spec-eval 0.1.0"
    assert told["talks file sha256"] == f"{'0' * 64} (chat.jsonl)"
    assert told["MRCR source"] == f"org/long revision {'r' * 40}; one.parquet, two.parquet; 800 rows"
    assert [facts.is_mrcr(of, one) for one in of.cells] == [False, True]


def test_imported_run_knows_no_aiperf_and_a_measured_one_used_none() -> None:
    assert dict(facts.reproducibility(plan(cell(UNITS)), None))["AIPerf"].startswith("not used")
    imported = plan(cell(UNITS), origin="imported")
    assert dict(facts.reproducibility(imported, None))["AIPerf"] == "not known: imported"


def test_hardware_of_the_option_wins(tmp_path: Path) -> None:
    assert facts.hardware(with_recipe(), "two boards") == "two boards"
