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
