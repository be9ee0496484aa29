import json

import pytest

from spec_eval import jsontext


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


def test_what_only_equals_a_version_is_none() -> None:
    assert jsontext.is_version(1, 1)
    assert not any(jsontext.is_version(other, 1) for other in (True, 1.0, "1", None, 2, 0))
