import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import rows
from spec_eval.prompts.build import conversations
from spec_eval.prompts.rows import Problem
from spec_eval.suite import PromptSpec

BOM = b"\xef\xbb\xbf"


def written(folder: Path, content: bytes, name: str = "tea.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def read(path: Path) -> list[dict[str, Any]]:
    found = [row for _, row in rows.read([path])]
    good = [row for row in found if not isinstance(row, Problem)]
    assert len(good) == len(found)
    return good


def refusal(path: Path) -> str:
    """Of a file that cannot be read at all."""
    with pytest.raises(UsageError) as caught:
        read(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def refused(path: Path) -> str:
    """Of a file some of whose lines are no rows: what reads on collects them, and refuses the file."""
    with pytest.raises(UsageError) as caught:
        list(conversations(rows.read([path]), PromptSpec(template="{q}"), "tea"))
    message = str(caught.value)
    assert message.startswith("tea: tea.jsonl: ")
    assert "\n" not in message
    return message


def test_marks_blank_lines_and_line_ends_are_read_over(tmp_path: Path) -> None:
    content = BOM + b'{"id": 1}\r\n\r\n  \n{"id": 2}\n\t{"id": 3}\r\n\n{"id": 4}'
    found = list(rows.read([written(tmp_path, content)]))
    assert [row for _, row in found] == [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}]
    assert [where for where, _ in found] == [f"tea.jsonl: line {n}" for n in (1, 4, 5, 7)]


def test_mark_on_a_line_of_its_own_is_a_blank_line(tmp_path: Path) -> None:
    assert read(written(tmp_path, BOM + b'\n{"id": 1}\n')) == [{"id": 1}]


def test_line_separators_inside_a_text_end_no_line(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d"
    content = json.dumps({"q": text}, ensure_ascii=False).encode() + b"\n"
    assert read(written(tmp_path, content)) == [{"q": text}]


def test_gzip_is_read_like_plain_text(tmp_path: Path) -> None:
    content = BOM + b'{"id": 1}\r\n{"id": 2}\n'
    assert read(written(tmp_path, gzip.compress(content), "tea.jsonl.gz")) == [{"id": 1}, {"id": 2}]


def test_files_are_read_in_the_given_order(tmp_path: Path) -> None:
    paths = [written(tmp_path, b'{"id": 2}\n', "b.jsonl"), written(tmp_path, b'{"id": 1}\n', "a.jsonl")]
    assert [row for _, row in rows.read(paths)] == [{"id": 2}, {"id": 1}]


def test_line_that_is_not_utf8_is_named_with_its_byte(tmp_path: Path) -> None:
    path = written(tmp_path, b'{"q": "a"}\n{"q": "\xe9"}\n')
    assert list(rows.read([path]))[1] == ("tea.jsonl: line 2", Problem("not UTF-8 at byte 8"))
    assert "line 2: not UTF-8 at byte 8" in refused(path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"q": 1,}', "not JSON"),
        (b"{'q': 1}", "not JSON"),
        (b'{"q": "torn', "not JSON"),
        (b"[1, 2]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"null", "not a JSON object"),
    ],
)
def test_line_that_is_no_json_object_is_named(tmp_path: Path, line: bytes, problem: str) -> None:
    path = written(tmp_path, b'{"q": "a"}\n\n' + line + b'\n{"q": "b"}\n')
    first, (where, found), last = rows.read([path])
    assert (first[1], last[1]) == ({"q": "a"}, {"q": "b"})
    assert where == "tea.jsonl: line 3"
    assert isinstance(found, Problem)
    assert found.text.startswith(problem)
    message = refused(path)
    assert f"line 3: {problem}" in message
    assert "line 1" not in message
    assert "line 4" not in message
    assert "mend or remove these rows" in message


def test_torn_last_line_refuses_the_file(tmp_path: Path) -> None:
    assert "line 2: not JSON" in refused(written(tmp_path, b'{"q": "a"}\n{"q": '))


def test_every_bad_line_is_told_at_once_and_many_are_counted(tmp_path: Path) -> None:
    message = refused(written(tmp_path, b"x\n" * 8))
    assert [f"line {n}: " in message for n in range(1, 9)] == [True] * 6 + [False] * 2
    assert "; and 2 more; mend or remove these rows" in message


def test_bad_lines_and_rows_that_cannot_be_asked_are_told_together(tmp_path: Path) -> None:
    message = refused(written(tmp_path, b'{"q": "a"}\nx\n{"q": " "}\n{"q": "\xe9"}\n'))
    assert "line 2: not JSON" in message
    assert "line 3: column 'q' is empty" in message
    assert "line 4: not UTF-8" in message


@pytest.mark.parametrize("damage", ["cut", "flipped", "plain"])
def test_damaged_gzip_is_refused(tmp_path: Path, damage: str) -> None:
    packed = gzip.compress(b"".join(b'{"id": %d}\n' % i for i in range(999)))
    broken = {
        "cut": packed[: len(packed) // 2],
        "flipped": packed[:40] + b"\xff" * 40 + packed[80:],
        "plain": b'{"id": 1}\n',
    }[damage]
    assert "copy the file again" in refusal(written(tmp_path, broken, "tea.jsonl.gz"))


def test_parquet_rows_come_whole_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "tea.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"id": list(range(40)), "q": [f"q{i}" for i in range(40)]}), path)
    found = list(rows.read([path]))
    assert [row for _, row in found] == [{"id": i, "q": f"q{i}"} for i in range(40)]
    assert found[16][0] == "tea.parquet: row 17"


def test_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    assert "not readable parquet" in refusal(written(tmp_path, b"PAR1 but not really", "tea.parquet"))


def test_first_pattern_that_matches_wins_and_its_files_are_sorted(tmp_path: Path) -> None:
    for name in ("z.parquet", "b.jsonl", "a.jsonl", "c.jsonl.gz"):
        written(tmp_path, b"", name)
    (tmp_path / "d.jsonl").mkdir()
    assert [p.name for p in rows.find(tmp_path, ("*.jsonl", "*.parquet"))] == ["a.jsonl", "b.jsonl"]
    assert [p.name for p in rows.find(tmp_path, ("*.csv", "*.parquet", "*.jsonl"))] == ["z.parquet"]


def test_pattern_may_name_a_folder(tmp_path: Path) -> None:
    (tmp_path / "tea").mkdir()
    path = written(tmp_path / "tea", b"", "tea.jsonl")
    assert rows.find(tmp_path, ("tea/tea.jsonl*", "*.jsonl")) == [path]


def test_missing_folder_is_an_environment_fault(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"no such folder.*tea\.jsonl"):
        rows.find(tmp_path / "nowhere", ("tea.jsonl",))


def test_file_in_place_of_the_folder_is_an_environment_fault(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no such folder"):
        rows.find(written(tmp_path, b""), ("tea.jsonl",))


def test_folder_without_the_rows_names_every_pattern(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"none of a\*\.jsonl, b\.parquet there"):
        rows.find(tmp_path, ("a*.jsonl", "b.parquet"))


@pytest.mark.parametrize("there", [True, False])
def test_suite_without_patterns_is_an_environment_fault(tmp_path: Path, there: bool) -> None:
    with pytest.raises(EnvironmentFault, match="--data-dir"):
        rows.find(tmp_path if there else tmp_path / "nowhere", ())


def test_hash_is_that_of_the_bytes(tmp_path: Path) -> None:
    content = BOM + b'{"id": 1}\r\n'
    assert rows.sha256(written(tmp_path, content)) == hashlib.sha256(content).hexdigest()


def test_no_problem_is_no_refusal() -> None:
    rows.refuse("x", [], "mend it")
    with pytest.raises(UsageError, match=r"^x: a; b; mend it$"):
        rows.refuse("x", ["a", "b"], "mend it")


def test_a_line_that_is_nested_too_deeply_or_counts_too_far_is_named(tmp_path: Path) -> None:
    deep = b'{"q": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    path = written(tmp_path, b'{"q": "a"}\n' + deep + b'\n{"q": ' + b"9" * 5000 + b"}\n")
    message = refused(path)
    assert message.startswith(
        "tea: tea.jsonl: line 2: not JSON (nested too deeply at column 1); tea.jsonl: line 3: not"
    )


def test_messages_that_are_nested_too_deeply_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"m": "[" * 100_000}).encode())
    with pytest.raises(UsageError, match=r"line 1: messages are not JSON \(nested too deeply\)"):
        list(conversations(rows.read([path]), PromptSpec(messages="m"), "tea"))


def test_rows_may_lie_under_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        odd.mkdir()
    except OSError:
        pytest.skip("this file system has no such names")
    table = pyarrow.table({"q": ["a", "b"]})
    with (odd / "tea.parquet").open("wb") as stream:
        pyarrow.parquet.write_table(table, stream)
    assert read(odd / "tea.parquet") == [{"q": "a"}, {"q": "b"}]
