from pathlib import Path

import pytest

from spec_eval import hardware
from spec_eval.errors import UsageError


def test_shipped_profiles_have_the_gpus_that_their_names_say() -> None:
    shipped = {one.name: one.gpus for one in hardware.shipped_hardware()}
    assert shipped == {"1xgpu": 1, "4xb300": 4, "8xb200": 8, "8xh200": 8, "cpu": 0}


def test_a_profile_of_the_users_own_is_found_by_path(tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    path.write_text(
        'schema_version = 1\nname = "bench"\ndescription = "two cards"\ngpus = 2\n'
        '[engines.vllm]\nflags = { max-model-len = 4096 }\nenv = { A = "b" }\n'
    )
    found = hardware.find(str(path))
    assert (found.gpus, found.memory_gb) == (2, None)
    assert (found.engines["vllm"].flags, found.engines["vllm"].env) == ({"max-model-len": 4096}, {"A": "b"})


def test_an_unknown_profile_names_the_nearest_and_how_to_see_all() -> None:
    with pytest.raises(UsageError, match=r"no hardware '8xh20', did you mean '8xh200'\?; `spec-eval list hardware`"):
        hardware.find("8xh20")


def test_a_profile_with_a_wrong_number_of_gpus_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    path.write_text('schema_version = 1\nname = "bench"\ndescription = "x"\ngpus = -1\n')
    with pytest.raises(UsageError, match=r"bench\.toml: gpus: "):
        hardware.find(str(path))
