import hashlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from spec_eval import suite
from spec_eval.errors import UsageError
from spec_eval.prompts import Conversation, PromptSet, load
from spec_eval.prompts.conversation import Reference
from spec_eval.prompts.mrcr import grade, o200k_counter

TALK = [
    {"role": "user", "content": "Here are some examples."},
    {"role": "user", "content": "Write a poem about tea."},
    {"role": "assistant", "content": "Tea is warm."},
    {"role": "user", "content": "Give me the first poem about tea again, after XyZ12."},
]


def row(number: int = 0, **more: Any) -> dict[str, Any]:
    talk = [*TALK[:-1], {"role": "user", "content": f"{TALK[-1]['content']} ({number})"}]
    return {
        "prompt": json.dumps(talk),
        "answer": "XyZ12Tea is warm.",
        "random_string_to_prepend": "XyZ12",
        "n_needles": 8,
        "desired_msg_index": 2,
        "total_messages": len(talk),
        "n_chars": 100,
        "date_added": "2030-01-02",
        **more,
    }


def loaded(folder: Path, parts: list[list[dict[str, Any]]]) -> PromptSet:
    """As the shipped suite finds it, under a folder that calls itself a stand-in."""
    where = folder / "mrcr_standin" / "8needle"
    where.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(part), where / f"8needle_{number}.parquet")
    return load(suite.find("mrcr-8needle"), data_dir=folder)


def test_two_messages_of_the_user_stay_first(tmp_path: Path) -> None:
    (got,) = loaded(tmp_path, [[row()]])
    (turn,) = got.turns
    assert [m["role"] for m in turn] == ["user", "user", "assistant", "user"]
    assert list(turn[:3]) == TALK[:3]
    assert got.category == "8 needles"


def test_row_is_named_by_what_it_asks_wherever_it_stands(tmp_path: Path) -> None:
    one = loaded(tmp_path / "a", [[row(0), row(1)], [row(2)]])
    other = loaded(tmp_path / "b", [[row(2)], [row(1), row(0)]])
    names = [e.prompt_id for e in one.entries]
    assert [e.prompt_id for e in other.entries] == names[::-1]
    assert names[0] == hashlib.sha256(f"XyZ12|{row(0)['prompt']}".encode()).hexdigest()[:16]


def test_both_files_are_read_in_order_and_have_their_hashes(tmp_path: Path) -> None:
    got = loaded(tmp_path, [[row(0), row(1)], [row(2)]])
    assert [c.turns[0][-1]["content"][-3:] for c in got] == ["(0)", "(1)", "(2)"]
    assert list(got.files) == [f"mrcr_standin/8needle/8needle_{n}.parquet" for n in (0, 1)]


def test_references_are_kept_for_grading(tmp_path: Path) -> None:
    got = loaded(tmp_path, [[row()]])
    assert got.graded
    assert [c.reference for c in got] == [Reference("XyZ12Tea is warm.", "XyZ12")]


def test_made_up_rows_are_called_so(tmp_path: Path) -> None:
    got = loaded(tmp_path, [[row()]])
    assert got.standin
    assert got.source == "stand-in rows from 8needle_0.parquet"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"prompt": "not JSON"}, "messages are not JSON"),
        ({"prompt": "[]"}, "no messages"),
        ({"prompt": json.dumps(TALK[:3])}, "the last message is not the user's"),
        ({"prompt": json.dumps([{"role": "tool", "content": "x"}])}, "message 1 has no role"),
        ({"prompt": json.dumps([{"role": "user", "content": None}])}, "message 1 has no text"),
        ({"prompt": None}, "not an MRCR row"),
        ({"random_string_to_prepend": None}, "not an MRCR row"),
        ({"answer": None}, "not an MRCR row: no answer"),
    ],
)
def test_row_that_cannot_be_asked_or_graded_is_refused(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, [[row(0), row(1, **change)]])
    assert f"8needle_0.parquet: row 2: {problem}" in str(caught.value)


def test_equal_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is taken by 8needle_0\.parquet: row 1"):
        loaded(tmp_path, [[row(0)], [row(0)]])


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("XyZ12abcd", 1.0),
        ("XyZ12", 0.0),  # starts right, and then nothing matches
        ("abcd", 0.0),  # the right answer without its prefix
        (" XyZ12abcd", 0.0),
        ("xyz12abcd", 0.0),
        ("", 0.0),
        # "abxd" against "abcd": the blocks "ab" and "d" match, 2 x 3 of 8 letters
        ("XyZ12abxd", 0.75),
        # "bcd" against "abcd": 2 x 3 of 7
        ("XyZ12bcd", 6 / 7),
        # "abcdabcd" against "abcd": 2 x 4 of 12
        ("XyZ12abcdabcd", 2 / 3),
        # the prefix is taken off once: "XyZ12abcd" against "abcd", 2 x 4 of 13
        ("XyZ12XyZ12abcd", 8 / 13),
    ],
)
def test_grade_is_the_share_that_matches_behind_the_prefix(response: str, expected: float) -> None:
    assert grade(response, "XyZ12abcd", "XyZ12") == pytest.approx(expected)


def conversation(*texts: str) -> Conversation:
    return Conversation("a", "8 needles", None, (tuple({"role": "user", "content": text} for text in texts),))


def test_length_is_that_of_every_message_and_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Words:
        def encode(self, text: str, disallowed_special: tuple[str, ...]) -> list[str]:
            assert disallowed_special == ()
            return text.split()

    stub = types.ModuleType("tiktoken")
    stub.get_encoding = {"o200k_base": Words()}.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", stub)
    assert o200k_counter()(conversation("one two", "three <|endoftext|>"), Reference("four five six", "x")) == 7


def test_length_is_open_where_the_tokenizer_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert o200k_counter()(conversation("one"), Reference("a", "b")) is None


def test_length_is_open_where_its_vocabulary_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_name: str) -> None:
        raise OSError("no network")

    stub = types.ModuleType("tiktoken")
    stub.get_encoding = unreachable  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", stub)
    assert o200k_counter()(conversation("one"), Reference("a", "b")) is None
