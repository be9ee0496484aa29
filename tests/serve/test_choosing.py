from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from spec_eval import hardware, recipe
from spec_eval.engines import ENGINES
from spec_eval.errors import UsageError
from spec_eval.recipe import Recipe
from spec_eval.serve import Choice, Wish, choose


def chosen(name: str, **given: Any) -> Choice:
    return choose(recipe.find(name), Wish(**given))


def changed(name: str, **engine: Any) -> Recipe:
    """A shipped recipe with other words for vLLM or SGLang."""
    content = recipe.find(name).model_dump()
    for one, words in engine.items():
        content["engines"][one].update(words)
    return Recipe.model_validate(content)


def test_every_shipped_recipe_can_be_served_on_each_engine_and_hardware_that_it_names() -> None:
    served = 0
    for one in recipe.shipped_recipes():
        model = "house/mouse" if one.target is None else None
        drafts = one.drafter.algorithm in ("draft-model", "eagle3") and one.drafter.model is None
        draft = "house/pup" if drafts and not one.drafter.itself else None
        for engine, spec in one.engines.items():
            if engine == "llamacpp" and one.target is None:
                continue  # wants a file that is there
            for place in list(spec.hardware) or ["1xgpu" if engine != "llamacpp" else "cpu"]:
                choice = choose(one, Wish(engine=engine, hardware=place, model=model, draft=draft))
                assert choice.launcher.command(choice.launch).argv
                assert choice.hardware.name == place
                served += 1
    assert served > 30


def test_what_is_not_said_is_the_recipes_first() -> None:
    choice = chosen("glm-5.3-dflash2")
    assert (choice.engine.name, choice.hardware.name) == ("vllm", "8xh200")
    assert (choice.launch.model, choice.launch.k, choice.drafter) == ("zai-org/GLM-5.3-FP8", 8, "GLM-5.3-DFlash2")
    preview = chosen("glm-5.3-dflash2-preview")
    assert (preview.hardware.name, preview.launch.model) == ("4xb300", "zai-org/GLM-5.3")
    assert chosen("smollm2-ngram").engine.name == "llamacpp"


def test_k_is_in_drafts_for_every_engine_and_the_option_wins() -> None:
    assert chosen("glm-5.3-dflash2", engine="sglang").launch.k == 7, "SGLang's 8 counts the root"
    assert chosen("glm-5.3-dflash2", engine="sglang", k=8).launch.k == 8
    assert chosen("glm-5.3-dflash2", engine="vllm", k=3).launch.k == 3


@pytest.mark.parametrize("k", [1, 11])
def test_k_within_the_block_is_silent(k: int) -> None:
    assert not [note for note in chosen("glm-5.3-dflash2", k=k).notes if note.startswith("warning")]


def test_k_of_the_whole_block_warns_and_beyond_it_is_refused() -> None:
    assert chosen("glm-5.3-dflash2", k=12).notes[0] == (
        "warning: k 12 is all of the block size 12 that the drafter was trained with, root included; "
        "up to 11 was trained"
    )
    with pytest.raises(UsageError, match=r"k 13 is beyond the block .* block size 12; give --k 11 or less"):
        chosen("glm-5.3-dflash2", k=13)
    assert chosen("glm-5.3-dspark", k=40).launch.k == 40, "its card does not state a block size"


def test_variants_of_the_target() -> None:
    assert chosen("glm-5.3-dflash2", variant="bf16").launch.model == "zai-org/GLM-5.3"
    assert chosen("glm-5.3-none", hardware="8xh200").launch.model == "zai-org/GLM-5.3-FP8"
    assert chosen("glm-5.3-none", hardware="4xb300").launch.model == "zai-org/GLM-5.3"
    assert chosen("glm-5.3-none", hardware="8xh200", variant="bf16").launch.model == "zai-org/GLM-5.3"


def test_another_model_is_not_served_under_the_recipes_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen("glm-5.3-dflash2").launch.served_name is None
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    launch = chosen("glm-5.3-dflash2", model="mine").launch
    assert (launch.model, launch.served_name) == (str(tmp_path / "mine"), "mine")
    assert chosen("glm-5.3-dflash2", model="house/mouse").launch.served_name == "house/mouse"


def test_a_target_that_drafts_for_itself_does_so_with_another_model_too() -> None:
    launch = chosen("smollm2-draft", engine="vllm", model="house/mouse").launch
    assert (launch.model, launch.draft) == ("house/mouse", "house/mouse")
    other = chosen("smollm2-draft", engine="vllm", draft="house/pup")
    assert (other.launch.draft, other.drafter) == ("house/pup", "house/pup")


def test_the_drafter_is_called_as_its_engine_calls_it_where_it_has_no_name() -> None:
    assert chosen("smollm2-ngram").drafter == "ngram-simple"
    assert chosen("smollm2-ngram", engine="vllm").drafter == "ngram"
    assert chosen("glm-5.3-none").drafter is None


def test_words_of_recipe_and_hardware_come_together_and_the_recipe_wins() -> None:
    launch = chosen("ngram", engine="vllm", hardware="cpu", model="m").launch
    assert launch.flags["enforce-eager"] is True
    assert launch.env["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert launch.tensor_parallelism is None
    own = changed("ngram", vllm={"flags": {"max-model-len": 512, "enforce-eager": False}, "env": {"A": "b"}})
    both = choose(own, Wish(engine="vllm", hardware="cpu", model="m")).launch
    assert (both.flags["max-model-len"], both.flags["enforce-eager"], both.flags["max-num-seqs"]) == (512, False, 8)
    assert (both.env["A"], both.env["VLLM_CPU_KVCACHE_SPACE"]) == ("b", "1")


@pytest.mark.parametrize(("place", "parallelism"), [("8xh200", 8), ("4xb300", 4), ("1xgpu", None)])
def test_every_gpu_takes_part_where_the_recipe_does_not_say_otherwise(place: str, parallelism: int | None) -> None:
    assert chosen("ngram", engine="vllm", model="m", hardware=place).launch.tensor_parallelism == parallelism
    two = changed("ngram", vllm={"hardware": {"8xh200": {"tensor_parallelism": 2}}})
    assert choose(two, Wish(engine="vllm", model="m")).launch.tensor_parallelism == 2


def test_a_hardware_profile_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text('schema_version = 1\nname = "two"\ndescription = "two cards"\ngpus = 2\n')
    assert chosen("ngram", engine="vllm", model="m", hardware=str(path)).launch.tensor_parallelism == 2


def test_notes_say_whose_command_it_is_and_what_is_open() -> None:
    card = chosen("glm-5.3-dflash2-preview-adaptive").notes
    assert card[0] == "the command of model card RedHatAI/GLM-5.3-speculator.dflash2-preview"
    assert "drafter revision f1da82107865449c6f5a830f4b8a3d60e0ab55e3" in card[2]
    assert "not stated there: the block size that the drafter was trained with" in card
    ours = chosen("glm-5.3-dflash2-preview-adaptive", hardware="8xb200").notes
    assert ours[0].startswith("no published command: made from model card")
    assert chosen("glm-5.3-dflash2", k=4, variant="bf16").notes[0].endswith(", changed by --k, --variant")
    assert chosen("smollm2-ngram").notes == ()


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("glm-5.3-dflash2", {"engine": "vlm"}, "no engine 'vlm'"),
        ("glm-5.3-dflash2", {"engine": "trtllm"}, "spec-eval cannot start trtllm; it starts llamacpp, vllm, sglang"),
        ("suffix", {"engine": "sglang", "model": "m"}, "sglang has no drafter of the kind suffix"),
        ("glm-5.3-dspark", {"engine": "llamacpp"}, "which recipe glm-5.3-dspark needs; take vllm or sglang"),
        ("glm-5.3-dflash2-preview", {"engine": "sglang"}, "is for vllm, not for sglang"),
        ("glm-5.3-dflash2", {"hardware": "8xh20"}, "no hardware '8xh20', did you mean '8xh200'"),
        ("glm-5.3-dflash2", {"hardware": "cpu"}, "not for cpu with vllm; --hardware 8xh200 or 8xb200 or 4xb300"),
        ("ngram", {"model": "m"}, "say which with --hardware; known: 1xgpu, 4xb300, 8xb200, 8xh200, cpu"),
        ("ngram", {"engine": "sglang", "model": "m", "hardware": "cpu"}, "sglang needs GPUs, and cpu has none"),
        ("smollm2-ngram", {"engine": "llamacpp", "hardware": "8xh200"}, "uses no GPU; --hardware cpu"),
        ("ngram", {"hardware": "cpu"}, "names no target for vllm; give a hub name or a folder with --model"),
        ("ngram", {"engine": "llamacpp"}, "names no target for llamacpp; give a .gguf file with --model"),
        ("eagle3", {"hardware": "1xgpu", "model": "m"}, "names no draft model; give one with --draft"),
        ("ngram", {"hardware": "1xgpu", "model": "m", "draft": "d"}, "--draft d: the drafter of recipe ngram"),
        ("glm-5.3-mtp", {"draft": "d"}, "(mtp) is no model; drop --draft"),
        ("glm-5.3-none", {"k": 3}, "--k 3: recipe glm-5.3-none has no drafter"),
        ("glm-5.3-dflash2", {"variant": "int4"}, "--variant int4: not a variant of recipe glm-5.3-dflash2; it has fp8"),
        ("ngram", {"hardware": "cpu", "variant": "fp8"}, "--variant fp8: not a variant of recipe ngram; it has none"),
        ("glm-5.3-dflash2", {"variant": "fp8", "model": "m"}, "name the target twice"),
        ("ngram", {"hardware": "cpu", "model": "./none"}, "--model ./none: no such file or folder"),
        ("draft-model", {"hardware": "cpu", "model": "m", "draft": "/no/d"}, "--draft /no/d: no such file or folder"),
    ],
)
def test_what_does_not_go_together_is_one_line(name: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(name, **given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "words", "message"),
    [
        # the published 8 of SGLang is 7 drafts: beside a k of 8 it would be wrong
        (
            "sglang",
            {"k": 8, "flags": {"speculative-num-draft-tokens": 8}},
            "sglang's speculative-num-draft-tokens 8 does not agree with k 8, which is 9 there",
        ),
        (
            "vllm",
            {"speculative": {"num_speculative_tokens": 7}},
            "vllm's num_speculative_tokens 7 does not agree with k 8, which is 8 there",
        ),
        ("vllm", {"speculative": {"num_speculative_tokens": 8}}, "num_speculative_tokens 8 says k 8 a second time"),
        ("vllm", {"flags": {"speculative-config": "{}"}}, "vllm's speculative-config is written by spec-eval"),
        ("vllm", {"flags": {"tensor-parallel-size": 4}}, "vllm's tensor-parallel-size is written by spec-eval"),
        ("sglang", {"flags": {"trust-remote-code": True}}, "sglang's trust-remote-code is written by spec-eval"),
    ],
)
def test_an_engines_own_number_beside_k_is_refused(engine: str, words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose(changed("glm-5.3-dflash2", **{engine: words}), Wish(engine=engine))
    assert message in str(caught.value)


def test_a_flag_that_the_embedded_engine_does_not_have_is_refused() -> None:
    misspelt = changed("smollm2-ngram", llamacpp={"flags": {"slot-kontext": 512}})
    with pytest.raises(UsageError, match="llamacpp has no flag 'slot-kontext', did you mean 'slot-context'"):
        choose(misspelt, Wish())


def test_more_gpus_than_the_hardware_has_are_refused() -> None:
    greedy = changed("ngram", vllm={"hardware": {"4xb300": {"tensor_parallelism": 8}}})
    with pytest.raises(UsageError, match="recipe ngram wants 8 GPUs, and 4xb300 has 4"):
        choose(greedy, Wish(model="m"))


def test_adaptive_verification_is_refused_where_the_engine_has_none() -> None:
    content = recipe.find("glm-5.3-dflash2").model_dump()
    content["drafter"]["adaptive"] = True
    with pytest.raises(UsageError, match="sglang has no adaptive verification"):
        choose(Recipe.model_validate(content), Wish(engine="sglang"))
    assert choose(Recipe.model_validate(content), Wish(engine="vllm")).launch.adaptive is True


def test_a_choice_made_again_from_what_was_kept_is_the_same() -> None:
    first = chosen("glm-5.3-dspark", engine="vllm", hardware="4xb300", k=5)
    kept = Recipe.model_validate_json(first.recipe.model_dump_json())
    place = hardware.Hardware.model_validate_json(first.hardware.model_dump_json())
    assert asdict(choose(kept, Wish(engine="vllm", hardware=place, k=5)).launch) == asdict(first.launch)


def test_every_engine_of_every_recipe_is_known() -> None:
    for one in recipe.shipped_recipes():
        assert one.engines.keys() <= ENGINES.keys()
