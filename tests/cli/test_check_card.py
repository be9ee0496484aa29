import json
from pathlib import Path

import pytest

from spec_eval.cli import main

HEADS = "Set\tAL\tAcceptance rate\tPos 0\tPos 1\n"
GOOD = "one\t2.30\t65%\t80%\t50%\n"
BAD = "two\t2.90\t65%\t80%\t50%\n"


def checked(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    path = tmp_path / "card.md"
    path.write_text(text, encoding="utf-8")
    return run([str(path), *more], capsys)


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["check-card", *arguments])
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_a_card_that_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = checked(HEADS + GOOD, tmp_path, capsys)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "table at line 1, 2 drafts a step",
        "  line 2  one: holds",
        "not stated: draft revision, target revision, engine version, hardware, thinking mode, max tokens, "
        "temperature, prompts per row, pooled or mean",
        "1 holds, 0 cannot be true, 0 not enough printed to check",
    ]


def test_notes_leave_the_exit_code_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = checked(f"num_speculative_tokens 4\n\n{HEADS}{GOOD}", tmp_path, capsys)
    assert (code, err) == (0, "")
    assert "note, line 1: num_speculative_tokens 4 means 4 drafts a step, the tables have 2" in out.splitlines()


def test_an_impossible_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = checked(HEADS + GOOD + BAD, tmp_path, capsys)
    assert code == 1
    assert err.splitlines() == [
        f"spec-eval: {tmp_path / 'card.md'}: 1 of 2 rows cannot be true (two); measure or copy them again"
    ]
    assert "  line 3  two: cannot be true" in out.splitlines()


def test_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(
        f"num_speculative_tokens 4\n\n{HEADS}{BAD}\tn/a\t\t80%\t–\n", tmp_path, capsys, "--format", "json"
    )
    found = json.loads(out)
    assert code == 1
    (table,) = found["tables"]
    assert (found["schema_version"], found["file"], table["line"], table["k"]) == (1, "card.md", 3, 2)
    two, empty = table["rows"]
    # 1 + 0.8 + 0.5 = 2.3, within 0.01; 1.9 / 2 = 95%
    assert two == {
        "line": 4,
        "label": "two",
        "group": None,
        "verdict": "cannot be true",
        "reasons": [
            "1 + the sum of positions is 2.3000 (2.2900 to 2.3100 before rounding), printed is 2.90",
            "(acceptance length − 1) / 2 is 95% (94.75% to 95.25% before rounding), printed rate is 65%",
        ],
        "k": 2,
        "acceptance_length": 2.9,
        "acceptance_rate": 0.65,
        "positions": [0.8, 0.5],
    }
    assert (empty["label"], empty["verdict"], empty["positions"]) == ("", "not enough printed to check", [0.8, None])
    assert (empty["acceptance_length"], empty["acceptance_rate"]) == (None, None)
    assert found["counts"] == {"holds": 0, "cannot be true": 1, "not enough printed to check": 1}
    assert found["draft_tokens"] == [{"line": 1, "setting": "num_speculative_tokens 4", "k": 4}]
    assert [note["code"] for note in found["notes"]] == ["draft_tokens"]
    assert "hardware" in found["missing"]


def test_no_table_is_one_line_and_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = checked("# words\n", tmp_path, capsys)
    assert (code, out) == (3, "")
    assert len(err.splitlines()) == 1


def test_no_table_is_valid_json_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = checked("# words\n\nnum_speculative_tokens 4\n", tmp_path, capsys, "--format", "json")
    assert code == 3
    assert err.splitlines() == [
        f"spec-eval: {tmp_path / 'card.md'}: no table of acceptance lengths, rates or positions; "
        "tables are read with | or tabs between cells"
    ]
    found = json.loads(out)
    assert (found["schema_version"], found["file"], found["tables"], found["notes"]) == (1, "card.md", [], [])
    assert found["counts"] == {"holds": 0, "cannot be true": 0, "not enough printed to check": 0}
    assert found["draft_tokens"] == [{"line": 3, "setting": "num_speculative_tokens 4", "k": 4}]


def test_nothing_that_could_be_checked_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = checked("Set\tAL\none\t2.30\n", tmp_path, capsys)
    assert code == 3
    assert "  line 2  one: not enough printed to check" in out.splitlines()
    assert len(err.splitlines()) == 1


def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run([str(tmp_path / "none.md")], capsys)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_a_label_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = checked(HEADS + BAD.replace("two", "a\x1b[31mb"), tmp_path, capsys)
    assert code == 1
    assert "\x1b" not in out + err
