from pathlib import Path
from typing import Any

import pytest

from spec_eval import profiles
from spec_eval.errors import UsageError
from spec_eval.run import RunOptions
from spec_eval.run.planning import prepare
from spec_eval.run.targets import choose, served, synthetic
from spec_eval.store import Target
from tests.llamacpp_server import write_suite

ROW = "glm-5.3-dflash2-preview:basic-t0:HumanEval"
URL = "http://127.0.0.1:8080/v1"


def options(**given: Any) -> RunOptions:
    return RunOptions(**{"suite": "smoke", "engine": "embedded", **given})


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "falling.toml"
    path.write_text('schema_version = 1\npositions = [0.75, 0.5, 0.25]\nsource = "my bench"\n', encoding="utf-8")
    return path


def test_running_server_is_taken_as_it_is() -> None:
    target = choose(options(engine="vllm", base_url=URL, model="m", drafter="d", k=5, adaptive=True))
    assert (target.engine, target.base_url, target.recipe) == ("vllm", URL, None)
    assert (target.model, target.drafter, target.k, target.adaptive) == ("m", "d", 5, True)
    assert (target.synthetic_rates, target.draft_sampling, target.tensor_parallelism) == ((), None, None)


def test_own_server_drafts_for_real_without_a_known_answer() -> None:
    target = choose(options())
    assert (target.synthetic_rates, target.draft_sampling, target.adaptive) == ((), "none", False)
    assert synthetic(options()) is None


def test_a_served_recipe_is_kept_whole_with_its_engine_and_hardware() -> None:
    target = choose(options(engine="sglang", serve="glm-5.3-dflash2"))
    assert (target.engine, target.model, target.base_url) == ("sglang", "zai-org/GLM-5.3-FP8", None)
    assert (target.drafter, target.k, target.adaptive, target.tensor_parallelism) == ("GLM-5.3-DFlash2", 7, False, 8)
    assert target.recipe is not None
    assert target.hardware is not None
    assert target.variant == "fp8"
    assert (target.recipe["name"], target.hardware["name"]) == ("glm-5.3-dflash2", "8xh200")
    again = served(target, trust_remote_code=False)
    assert (again.launch.k, again.launch.tensor_parallelism, again.hardware.name) == (7, 8, "8xh200")
    assert Target.model_validate_json(target.model_dump_json()) == target


def test_what_the_user_changes_of_a_recipe_is_kept_too(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "small").mkdir()
    given = {"model": str(tmp_path / "mine"), "draft": str(tmp_path / "small"), "k": 2, "hardware": "cpu"}
    target = choose(options(engine="vllm", serve="draft-model", **given))
    assert (target.model, target.drafter, target.k, target.tensor_parallelism) == ("mine", "small", 2, 1)
    assert target.variant is None
    again = served(target, trust_remote_code=True).launch
    assert (again.model, again.draft, again.k) == (given["model"], given["draft"], 2)
    assert (again.served_name, again.trust_remote_code) == ("mine", True)
    fp8 = choose(options(engine="vllm", serve="glm-5.3-mtp", variant="fp8"))
    assert (fp8.model, fp8.variant) == ("zai-org/GLM-5.3-FP8", "fp8")
    assert served(fp8, trust_remote_code=False).launch.model == "zai-org/GLM-5.3-FP8"


def test_adaptive_and_draft_sampling_are_the_recipes() -> None:
    adaptive = choose(options(engine="vllm", serve="glm-5.3-dflash2-preview-adaptive"))
    assert (adaptive.adaptive, adaptive.k, adaptive.draft_sampling) == (True, 7, None)
    assert choose(options(engine="vllm", serve="glm-5.3-dspark")).draft_sampling == "probabilistic"
    assert choose(options(engine="vllm", serve="smollm2-ngram", hardware="cpu")).draft_sampling == "none"


def test_a_recipe_of_another_version_is_told_so() -> None:
    target = choose(options()).model_copy(update={"recipe": {"name": "old", "engine": "llamacpp"}})
    with pytest.raises(UsageError, match="written by another version of spec-eval; start a new run"):
        served(target, trust_remote_code=False)


def test_known_answer_of_a_card_gives_its_rates_and_k() -> None:
    target = choose(options(known_answer=ROW))
    # as printed on the card
    printed = (83.49, 68.30, 56.05, 46.44, 39.08, 33.36, 28.84, 25.18)
    assert target.synthetic_rates == pytest.approx(tuple(p / 100 for p in printed))
    assert (target.k, target.drafter, target.draft_sampling) == (8, f"synthetic-{ROW}", "synthetic")


def test_known_answer_of_a_file_gives_its_rates_and_k(own: Path) -> None:
    target = choose(options(known_answer=str(own)))
    assert (target.synthetic_rates, target.k, target.drafter) == ((0.75, 0.5, 0.25), 3, "synthetic-falling")
    reason = synthetic(options(known_answer=str(own)))
    assert reason == "llama.cpp accepted at the rates of falling (my bench), not by comparing tokens"


def test_k_beside_a_known_answer_may_repeat_it_and_not_differ(own: Path) -> None:
    assert choose(options(known_answer=str(own), k=3)).k == 3
    with pytest.raises(UsageError, match="--k 4 against --known-answer falling, which has k 3; drop --k"):
        choose(options(known_answer=str(own), k=4))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine": "llamacpp", "base_url": URL, "known_answer": ROW}, "--known-answer needs a server that spec-eval"),
        ({"engine": None, "known_answer": ROW}, "--known-answer needs a server that spec-eval"),
        ({"known_answer": "glm-5.3-dflash2-preview:basic-t0:HumanEvall"}, f"did you mean {ROW!r}"),
        ({"known_answer": "nowhere.toml"}, "nowhere.toml"),
        ({"known_answer": ROW, "base_url": URL}, "--base-url does not go"),
        ({"engine": "vllm"}, "no server: "),
        ({"engine": "sglang", "serve": "smollm2-ngram"}, "is for llamacpp, vllm, not for sglang"),
        ({"engine": "trtllm", "serve": "smollm2-ngram"}, "cannot start trtllm; it starts llamacpp, vllm, sglang"),
        ({"engine": "vllm", "serve": "smollm2-ngram", "known_answer": ROW}, "--known-answer: vllm cannot play one"),
        ({"engine": "vllm", "base_url": URL, "hardware": "cpu"}, "--hardware is for a server that spec-eval starts"),
        ({"engine": "vllm", "base_url": URL, "draft": "d"}, "--draft is for a server that spec-eval starts"),
        ({"engine": "vllm", "base_url": URL, "variant": "fp8"}, "--variant is for a server that spec-eval starts"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose(options(**given))
    assert words in str(caught.value)


def test_plan_of_a_known_answer_is_synthetic_in_every_name(tmp_path: Path) -> None:
    suite = write_suite(tmp_path)
    plan = prepare(RunOptions(suite=str(suite), engine="embedded", known_answer=ROW, concurrency=(1, 2))).plan
    assert plan.synthetic == (
        f"llama.cpp accepted at the rates of {ROW} (model card RedHatAI/GLM-5.3-speculator.dflash2-preview), "
        "not by comparing tokens"
    )
    assert [cell.cell_id for cell in plan.cells] == ["synthetic-pair-c1", "synthetic-pair-c2"]
    assert plan.target.synthetic_rates == profiles.find(ROW).positions
    real = prepare(RunOptions(suite=str(suite), engine="embedded", concurrency=(1, 2))).plan
    assert real.synthetic is None
    assert real.settings_sha256 != plan.settings_sha256
