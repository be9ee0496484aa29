import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from spec_eval import jsontext
from spec_eval.jsontext import Damaged, Row


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def test_values_are_those_of_the_standard_library() -> None:
    text = '{"a": [1, 2.5, null, true, "\\u00e9"], "b": {"c": {}}}'
    value = {"a": [1, 2.5, None, True, "é"], "b": {"c": {}}}
    assert jsontext.loads(text) == value
    assert jsontext.loads(text.encode()) == value


def test_many_shallow_brackets_are_no_depth() -> None:
    assert jsontext.loads("[" + ",".join(["[]"] * 5000) + "]") == [[]] * 5000
    assert jsontext.loads(json.dumps("[" * 5000)) == "[" * 5000


@pytest.mark.parametrize("wrap", ["{}", '{{"a": {}}}', '[1, {{"a": {}}}]'])
def test_depth_is_read_up_to_the_limit_and_not_beyond(wrap: str) -> None:
    extra = wrap.count("{{") + wrap.count("[")
    assert jsontext.loads(wrap.format(nested(200 - extra))) is not None
    for depth in (201 - extra, 999, 100_000):
        with pytest.raises(json.JSONDecodeError, match="nested too deeply"):
            jsontext.loads(wrap.format(nested(depth)))


@pytest.mark.parametrize("text", ["", "{", "nope", "1" * 5000, '{"a": ' + "9" * 5000 + "}", b"{", b"1" * 5000])
def test_all_that_cannot_be_read_is_one_error(text: str | bytes) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        jsontext.loads(text)
    assert caught.value.msg
    assert caught.value.colno >= 1


def test_bytes_of_another_encoding_are_told_as_that() -> None:
    with pytest.raises(UnicodeDecodeError):
        jsontext.loads(b'"caf\xe9"')


def test_half_a_surrogate_pair_is_kept() -> None:
    assert jsontext.loads('"\\ud800"') == "\ud800"
    assert jsontext.loads(b'"\\ud83d\\ude00"') == "\U0001f600"


def read(content: bytes) -> list[Row | Damaged]:
    return list(jsontext.lines(content.splitlines(keepends=True), "tea.jsonl"))


def test_lines_are_numbered_as_an_editor_does_and_blank_ones_are_none() -> None:
    assert read(b'\xef\xbb\xbf{"a": 1}\r\n\n  \n\t{"b": "\xc3\xa9"}\n{"c": 3}') == [
        Row("tea.jsonl: line 1", 1, {"a": 1}),
        Row("tea.jsonl: line 4", 4, {"b": "é"}),
        Row("tea.jsonl: line 5", 5, {"c": 3}),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nope\n", "not JSON (Expecting value at column 1)"),
        (b'{"a": 1} {"b": 2}\n', "not JSON (Extra data at column 10)"),
        (b'{"a": "\xe9"}\n', "not UTF-8 at byte 8"),
        (b'{"a": "\xed\xa0\x80"}\n', "not UTF-8 at byte 8"),  # half a surrogate pair, which only an escape can be
        (b"[1]\n", "not a JSON object"),
        (b"null", "not a JSON object"),
    ],
)
def test_damaged_line_stands_in_its_place(line: bytes, problem: str) -> None:
    first, damaged, *last = read(b'{"a": 1}\n' + line)
    assert (first, last) == (Row("tea.jsonl: line 1", 1, {"a": 1}), [])
    assert damaged == Damaged("tea.jsonl: line 2", 2, problem)


@pytest.mark.parametrize("line", [b'{"a": "to', b'{"a": "\xc3', b'{"a"'])
def test_file_that_ends_within_a_line_is_torn(line: bytes) -> None:
    (damaged,) = read(line)
    assert isinstance(damaged, Damaged)
    assert damaged.torn
    (damaged,) = read(line + b"\n")
    assert isinstance(damaged, Damaged)
    assert not damaged.torn


@pytest.mark.parametrize(
    ("line", "unfinished"), [(b"{", True), (b'{"a": 1,', True), (b"[ ", True), (b'{"a": "to', False), (b"{a", False)]
)
def test_line_that_could_go_on_is_unfinished(line: bytes, unfinished: bool) -> None:
    (damaged,) = read(line + b"\n")
    assert isinstance(damaged, Damaged)
    assert damaged.unfinished is unfinished


def test_lines_are_taken_one_at_a_time() -> None:
    taken = []

    def source() -> Iterator[bytes]:
        for number in range(10**9):
            taken.append(number)
            yield b'{"n": %d}\n' % number

    found = jsontext.lines(source(), "endless.jsonl")
    assert [next(found), next(found)] == [
        Row("endless.jsonl: line 1", 1, {"n": 0}),
        Row("endless.jsonl: line 2", 2, {"n": 1}),
    ]
    assert taken == [0, 1]


def test_file_is_named_without_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "tea.jsonl"
    path.write_bytes(b"{}\n")
    assert list(jsontext.read_lines(path)) == [Row("tea.jsonl: line 1", 1, {})]
    with pytest.raises(FileNotFoundError):
        list(jsontext.read_lines(tmp_path / "none.jsonl"))


def test_what_only_equals_a_version_is_none() -> None:
    assert jsontext.is_version(1, 1)
    assert not any(jsontext.is_version(other, 1) for other in (True, 1.0, "1", None, 2, 0))
