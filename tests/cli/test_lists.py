import json

import pytest

from spec_eval import cli


def listed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as left:
        cli.main(["list", *argv])
    assert left.value.code == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_suites_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in json.loads(listed(["suites", "--format", "json"], capsys))}
    assert {"smoke", "humaneval"} <= rows.keys()
    assert rows["smoke"] | {"description": ""} == {
        "name": "smoke",
        "description": "",
        "rows": 24,
        "turns": "one",
        "source": "shipped with spec-eval",
        "revision": None,
        "licence": "Apache-2.0",
        "gated": False,
        "on_this_machine": True,
    }
    assert rows["humaneval"]["source"] == "openai/openai_humaneval"
    assert rows["humaneval"]["rows"] == 164
    assert len(rows["humaneval"]["revision"]) == 40
    assert rows["humaneval"]["on_this_machine"] in (True, False)
    assert (rows["mt-bench"]["turns"], rows["humaneval"]["turns"]) == ("several", "one")


def test_compound_suites_name_their_cells_and_no_data(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in json.loads(listed(["suites", "--format", "json"], capsys))}
    assert rows["card-dflash2"].keys() == {"name", "description", "cells"}
    sizes = ", ".join(f"speed-bench-throughput-{size}" for size in ("1k", "2k", "8k", "16k", "32k"))
    assert rows["card-dflash2"]["cells"] == f"6 cells of {sizes}, speed-bench-qualitative"
    assert rows["card-dflash2-preview"]["cells"] == (
        "11 cells of humaneval, gsm8k, math500, mt-bench, speed-bench-qualitative, mrcr-8needle"
    )


def test_suites_as_text_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    lines = listed(["suites"], capsys).splitlines()
    names = [line.partition(":")[0] for line in lines]
    assert names == sorted(names)
    assert "smoke" in names
    (smoke,) = (line for line in lines if line.startswith("smoke: "))
    assert smoke.endswith(
        "; rows 24; turns one; shipped with spec-eval; licence Apache-2.0; not gated; on this machine"
    )


def test_engines_include_the_embedded_one(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in json.loads(listed(["engines", "--format", "json"], capsys))}
    assert {"llamacpp", "embedded"} <= rows.keys()
    assert all(row["counters"] for row in rows.values())


def test_engines_tell_which_drafters_they_can_be_started_with(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in json.loads(listed(["engines", "--format", "json"], capsys))}
    assert rows["sglang"]["drafters"] == ["dflash2", "dspark", "mtp", "eagle3", "draft-model", "ngram"]
    assert rows["sglang"]["start"] == "`serve` starts it"
    assert (rows["trtllm"]["drafters"], rows["trtllm"]["start"]) == (None, "start it yourself")
    text = listed(["engines"], capsys)
    assert "`serve` starts it; drafters ngram, draft-model" in text


def test_recipes_as_json_and_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in json.loads(listed(["recipes", "--format", "json"], capsys))}
    assert rows["glm-5.3-dflash2"] | {"description": ""} == {
        "name": "glm-5.3-dflash2",
        "description": "",
        "target": "GLM-5.3",
        "variants": {"fp8": "zai-org/GLM-5.3-FP8", "bf16": "zai-org/GLM-5.3"},
        "drafter": "dflash2",
        "draft_model": "AlayaNeW/GLM-5.3-DFlash2",
        "k": 8,
        "block": 12,
        "adaptive": None,
        "engines": {
            "vllm": {"hardware": ["8xh200", "8xb200", "4xb300"], "k": None, "from_card": ["8xh200"]},
            "sglang": {"hardware": ["8xh200", "8xb200", "4xb300"], "k": 7, "from_card": ["8xh200"]},
        },
        "commands_of": "model card AlayaNeW/GLM-5.3-DFlash2",
    }
    assert rows["glm-5.3-dflash2-preview-adaptive"]["adaptive"] is True
    assert (rows["eagle3"]["target"], rows["eagle3"]["draft_model"]) == ("any, with --model", "any, with --draft")
    lines = {line.partition(":")[0]: line for line in listed(["recipes"], capsys).splitlines()}
    assert lines.keys() == rows.keys()
    assert "sglang at k 7 on 8xh200 (the card's command), 8xb200, 4xb300" in lines["glm-5.3-dflash2"]
    assert "vllm on any hardware that it knows" in lines["ngram"]


def test_hardware_as_json_and_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in json.loads(listed(["hardware", "--format", "json"], capsys))}
    assert {name: row["gpus"] for name, row in rows.items()} == {
        "1xgpu": 1,
        "4xb300": 4,
        "8xb200": 8,
        "8xh200": 8,
        "cpu": 0,
    }
    assert "4xb300: four NVIDIA B300; gpus 4; memory gb 288" in listed(["hardware"], capsys)
