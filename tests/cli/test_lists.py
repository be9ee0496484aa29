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
        "source": "shipped with spec-eval",
        "revision": None,
        "licence": "Apache-2.0",
        "gated": False,
    }
    assert rows["humaneval"]["source"] == "openai/openai_humaneval"
    assert rows["humaneval"]["rows"] == 164
    assert len(rows["humaneval"]["revision"]) == 40


def test_suites_as_text_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    names = [line.partition(":")[0] for line in listed(["suites"], capsys).splitlines()]
    assert names == sorted(names)
    assert "smoke" in names


def test_engines_include_the_embedded_one(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in json.loads(listed(["engines", "--format", "json"], capsys))}
    assert {"llamacpp", "embedded"} <= rows.keys()
    assert all(row["counters"] for row in rows.values())
