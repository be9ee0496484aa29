import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.factories import failed
from tests.sides import AFTER, BEFORE, run

Shown = tuple[int, str, str]


def test_text_begins_with_what_differs_and_ends_with_figures(tmp_path: Path, face: Callable[..., Shown]) -> None:
    a = run(tmp_path, "a", BEFORE, settings={"concurrency": 1})
    b = run(tmp_path, "b", AFTER, settings={"concurrency": 8})
    code, out, err = face("compare", a, b, "--allow", "concurrency")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == ["A: a", "B: b", "allowed to differ: concurrency 1 against 8 (chat.t0.c1)"]
    assert any(line.startswith("unknown in both: ") and "top_p" in line for line in lines)
    (overall, shares) = (line.split() for line in lines if line.startswith("overall, pooled"))
    # by hand in test_compare
    assert overall[2:] == ["1.5000", "2.0000", "+33.33%", "[+13.61%,", "+56.48%]", "—", "20", "0", "higher"]
    assert shares[2:] == ["+50.00", "±24.01", "+50.00", "±24.01"]


def test_markdown_has_the_same_figures(tmp_path: Path, face: Callable[..., Shown]) -> None:
    a, b = run(tmp_path, "a", BEFORE), run(tmp_path, "b", AFTER)
    code, out, _ = face("compare", a, b, "--format", "md")
    assert code == 0
    assert "| overall, pooled | 1.5000 | 2.0000 | +33.33% | [+13.61%, +56.48%] | — | 20 | 0 | higher |" in out


def test_json_has_fractions(tmp_path: Path, face: Callable[..., Shown]) -> None:
    a, b = run(tmp_path, "a", BEFORE), run(tmp_path, "b", AFTER)
    code, out, _ = face("compare", a, b, "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert (found["schema_version"], found["comparable"], found["differences"]) == (1, True, [])
    # as the text prints them: by hand in test_compare
    assert found["overall"]["acceptance_length"]["change"] == {
        "value": pytest.approx(1 / 3),
        "low": pytest.approx(0.1361, abs=5e-5),
        "high": pytest.approx(0.5648, abs=5e-5),
    }
    assert (found["overall"]["pairs"], found["overall"]["left_out"], found["overall"]["state"]) == (20, 0, "higher")
    assert [row["category"] for row in found["rows"]] == ["coding"]
    assert found["a"]["settings"]["chat.t0.c1"]["temperature"] == 0.0


def test_settings_that_differ_end_in_3_and_are_all_named(tmp_path: Path, face: Callable[..., Shown]) -> None:
    a = run(tmp_path, "a", BEFORE, settings={"thinking": True})
    b = run(tmp_path, "b", AFTER, settings={"thinking": None, "temperature": 1.0, "max_tokens": 128})
    code, out, err = face("compare", a, b)
    assert (code, err.count("\n")) == (3, 1)
    assert (
        "not comparable: temperature 0.0 against 1.0 (chat.t0.c1); max_tokens 64 against 128 (chat.t0.c1); "
        "thinking yes against unknown (chat.t0.c1); measure again at equal settings" in err
    )
    assert "differs: thinking yes against unknown (chat.t0.c1)" in out.splitlines()
    assert "overall" not in out
    code, out, _ = face("compare", a, b, "--format", "json")
    found = json.loads(out)
    assert (code, found["comparable"], found["overall"], found["rows"]) == (3, False, None, [])
    assert [(d["key"], d["a"], d["b"]) for d in found["differences"]] == [
        ("temperature", 0.0, 1.0),
        ("max_tokens", 64, 128),
        ("thinking", True, None),
    ]


def test_two_descriptions_are_compared_by_their_settings(tmp_path: Path, face: Callable[..., Shown]) -> None:
    same = {"engine": "sglang", "top_p": None, "concurrency": 4}
    (tmp_path / "a.json").write_text(json.dumps(same | {"k": 5, "dataset_sha256": "aa", "thinking": False}))
    (tmp_path / "b.json").write_text(json.dumps(same | {"k": 3, "dataset_sha256": "bb", "thinking": None}))
    code, out, err = face("compare", tmp_path / "a.json", tmp_path / "b.json", "--format", "json")
    found = json.loads(out)
    assert (code, err.count("\n")) == (3, 1)
    assert [(d["key"], d["a"], d["b"]) for d in found["differences"]] == [
        ("k", 5, 3),
        ("thinking", False, None),
        ("dataset_sha256", "aa", "bb"),
    ]
    assert "top_p" in found["unknown_in_both"]
    assert {"name": "engine", "a": "sglang", "b": "sglang"} in found["facts"]
    assert "k 5 against 3; thinking no against unknown; dataset_sha256 aa against bb" in err
    # equal settings are still no figures
    code, _, err = face("compare", tmp_path / "a.json", tmp_path / "a.json")
    assert code == 3
    assert "a.json only describes a run: it has no counters" in err


def test_too_few_pairs_are_shown_without_a_verdict(tmp_path: Path, face: Callable[..., Shown]) -> None:
    a = run(tmp_path, "a", BEFORE, records=[failed(prompt_id="p20"), failed(prompt_id="p21")])
    b = run(tmp_path, "b", [*AFTER, [0, 1], [0, 1]])
    code, out, err = face("compare", a, b)
    assert (code, err.count("\n")) == (3, 1)
    assert "only 20 of 22 conversations" in err
    assert "+33.33%" in out
    assert "higher" not in out


def test_a_misspelt_key_is_a_usage_error(tmp_path: Path, face: Callable[..., Shown]) -> None:
    a = run(tmp_path, "a", BEFORE)
    code, out, err = face("compare", a, a, "--allow", "top-p")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "did you mean 'top_p'" in err


def test_a_name_cannot_steer_the_terminal(tmp_path: Path, face: Callable[..., Shown]) -> None:
    a = run(tmp_path, "a", BEFORE, categories=("co\x1b[31mding",), manifest={"engine_version": "b\x1b[2J1"})
    for form in ("text", "md", "json"):
        assert "\x1b" not in face("compare", a, a, "--format", form)[1]


def test_a_baseline_stands_in_for_its_run(tmp_path: Path, face: Callable[..., Shown]) -> None:
    a, b = run(tmp_path, "a", BEFORE), run(tmp_path, "b", AFTER)
    file = tmp_path / "baselines" / "base.json"
    assert face("baseline", a, "-o", file) == (0, "", "")
    assert face("compare", file, b) == face("compare", a, b)
    first = file.read_bytes()
    assert face("baseline", a, "-o", file)[0] == 0
    assert file.read_bytes() == first


def test_a_run_that_is_not_whole_is_no_baseline(tmp_path: Path, face: Callable[..., Shown]) -> None:
    a = run(tmp_path, "a", BEFORE, whole=False)
    code, out, err = face("baseline", a, "-o", tmp_path / "base.json")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "a is not whole" in err
    assert not (tmp_path / "base.json").exists()


def test_a_place_that_cannot_hold_it_is_one_line(tmp_path: Path, face: Callable[..., Shown]) -> None:
    a = run(tmp_path, "a", BEFORE)
    (tmp_path / "file").touch()
    code, out, err = face("baseline", a, "-o", tmp_path / "file" / "base.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cannot be written" in err
