import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from spec_eval import suite
from spec_eval.errors import UsageError
from spec_eval.prompts import PromptSet, load
from spec_eval.prompts.speed_bench import PLACEHOLDERS, Masked, adapt, describe, source_name
from spec_eval.suite import SuiteFile

MASK = PLACEHOLDERS[0]
ROWS: list[dict[str, Any]] = [
    {"question_id": "a1", "category": "coding", "turns": ["Write a stack in C."]},
    {"question_id": "b2", "category": "writing", "turns": ["Tell a tale.", "Make it sad.", "Shorten it."]},
    {"question_id": "c3", "category": "coding", "turns": ["Sort three numbers."]},
]

SUITE = """schema_version = 1
name = "sb"
title = "SB"
[data]
file = "{file}"
licence = "CC0-1.0"
[prompt]
adapter = "speed-bench"
id = "question_id"
category = "category"
subcategory = "sub_category"
turns = "turns"
[sampling]
temperature = 0.0
max_tokens = 8
"""


def full(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    """With every column that is published."""
    return {
        "sub_category": None,
        "source": "https://huggingface.co/datasets/own/rows",
        "src_id": "1",
        "difficulty": None,
        "multiturn": len(row["turns"]) > 1,
        **row,
        **more,
    }


def as_messages(row: dict[str, Any]) -> dict[str, Any]:
    """As NVIDIA's scripts prepare it: user turns only, as messages."""
    rest = {name: value for name, value in full(row).items() if name != "turns"}
    return {**rest, "messages": [{"role": "user", "content": text} for text in row["turns"]]}


def suite_of(folder: Path, file: str) -> SuiteFile:
    path = folder / "sb.toml"
    path.write_text(SUITE.format(file=file), encoding="utf-8")
    return suite.read(path)


def loaded(folder: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl") -> PromptSet:
    folder.mkdir(exist_ok=True)
    path = folder / name
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return load(suite_of(folder, name))


def refusal(folder: Path, rows: list[dict[str, Any]]) -> str:
    with pytest.raises(UsageError) as caught:
        loaded(folder, rows)
    return str(caught.value)


def test_every_shape_gives_the_same_conversations(tmp_path: Path) -> None:
    published = loaded(tmp_path / "a", [full(row) for row in ROWS], "rows.parquet")
    jsonl = loaded(tmp_path / "b", [full(row) for row in ROWS])
    messages = loaded(tmp_path / "c", [as_messages(row) for row in ROWS])
    assert len({one.sha256 for one in (published, jsonl, messages)}) == 1
    assert list(published) == list(jsonl) == list(messages)
    assert [(e.prompt_id, e.category, e.turns) for e in messages.entries] == [
        ("a1", "coding", 1),
        ("b2", "writing", 3),
        ("c3", "coding", 1),
    ]


def test_each_turn_adds_one_message_of_the_user(tmp_path: Path) -> None:
    _, tale, _ = loaded(tmp_path, [as_messages(row) for row in ROWS])
    assert tale.turns == tuple(({"role": "user", "content": text},) for text in ROWS[1]["turns"])


def test_answers_that_were_prepared_along_are_not_sent(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "Hello?"},
        {"role": "assistant", "content": "CANNED"},
        {"role": "user", "content": "And now?"},
    ]
    (got,) = loaded(tmp_path, [{"question_id": "a", "category": "qa", "sub_category": "a", "messages": talk}])
    assert [turn[0]["content"] for turn in got.turns] == ["Hello?", "And now?"]


def test_length_of_turns_counts_and_not_the_column_multiturn(tmp_path: Path) -> None:
    got = loaded(tmp_path, [full(ROWS[1], multiturn=False), full(ROWS[0], multiturn=True)])
    assert [e.turns for e in got.entries] == [3, 1]


@pytest.mark.parametrize(
    "turns",
    [
        [MASK],
        [f"{MASK}\n\nAnswer the following question:\n{{question}}"],
        ["An honest first turn.", MASK],
        ["An honest first turn.", f"{MASK} and a template"],
        ["<<PLACEHOLDER: fetch row 17>>"],
    ],
)
@pytest.mark.parametrize("shape", [full, as_messages])
def test_placeholder_is_refused_wherever_it_stands(tmp_path: Path, turns: list[str], shape: Any) -> None:
    masked = {**ROWS[0], "question_id": "m", "turns": turns, "source": "https://huggingface.co/datasets/cais/hle"}
    message = refusal(tmp_path, [*(full(row) for row in ROWS), shape(masked)])
    assert "1 of 4 rows are placeholders (1 cais/hle (gated)): rows.jsonl: line 4; " in message
    assert "prepare" in message
    assert "--data-dir" in message


def test_placeholders_are_counted_by_source_most_first(tmp_path: Path) -> None:
    sources = ["https://huggingface.co/datasets/cais/hle"] * 2 + ["https://github.com/own/texts/blob/main/x.json"] * 3
    rows = [full({**ROWS[0], "question_id": f"m{i}", "turns": [MASK], "source": s}) for i, s in enumerate(sources)]
    rows.append(full({**ROWS[0], "question_id": "n", "turns": [MASK]}, source=None))
    message = refusal(tmp_path, [*rows, full(ROWS[0])])
    assert "6 of 7 rows are placeholders (3 own/texts, 2 cais/hle (gated), 1 unnamed source)" in message


def test_placeholders_are_told_beside_other_problems(tmp_path: Path) -> None:
    bad = [
        full({**ROWS[0], "turns": [MASK]}),
        full({**ROWS[1], "turns": []}),
        {**full(ROWS[1]), "question_id": "null", "turns": ["x", None]},
        full(ROWS[2]),
        full(ROWS[2]),
    ]
    message = refusal(tmp_path, bad)
    assert "1 of 5 rows are placeholders" in message
    assert "line 2: column 'turns' holds no turns" in message
    assert "line 3: turn 2 is None, not text" in message
    assert "line 5: id 'c3' is taken by rows.jsonl: line 4" in message


def test_of_many_placeholders_the_first_lines_are_named(tmp_path: Path) -> None:
    rows = [full({**ROWS[0], "question_id": f"m{i}", "turns": [MASK], "source": "own"}) for i in range(8)]
    lines = ", ".join(f"rows.jsonl: line {n}" for n in range(1, 7))
    assert f"8 of 8 rows are placeholders (8 own): {lines} and 2 more; " in refusal(tmp_path, rows)


def test_text_that_only_speaks_of_the_placeholder_is_no_placeholder(tmp_path: Path) -> None:
    text = f"What does this mean: {MASK}"
    (got,) = loaded(tmp_path, [full({**ROWS[0], "turns": [text]})])
    assert got.turns[0][0]["content"] == text


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("https://huggingface.co/datasets/cais/hle", "cais/hle"),
        ("https://huggingface.co/datasets/cais/hle/viewer/default", "cais/hle"),
        ("https://github.com/own/texts/blob/main/x.json", "own/texts"),
        ("gated/qa", "gated/qa"),
        ("own", "own"),
        ("", "unnamed source"),
        (None, "unnamed source"),
        (7, "unnamed source"),
    ],
)
def test_source_is_named_by_its_repository(source: object, name: str) -> None:
    assert source_name(source) == name


def test_row_of_neither_shape_is_left_for_the_checks_that_follow(tmp_path: Path) -> None:
    assert adapt({"question_id": "a"}) == {"question_id": "a"}
    assert adapt({"messages": "text"}) == {"messages": "text"}
    assert "no column 'turns'" in refusal(tmp_path, [{"question_id": "a", "category": "qa"}])


def test_masked_row_names_its_source() -> None:
    with pytest.raises(Masked) as caught:
        adapt({"turns": [MASK], "source": "https://huggingface.co/datasets/own/rows"})
    assert caught.value.source == "own/rows"
    assert "1 of 9 rows are placeholders (1 own/rows)" in describe([("line 3", "own/rows")], 9)


def test_column_of_categories_that_no_row_fills_is_refused(tmp_path: Path) -> None:
    rows = [full({**row, "category": None}) for row in ROWS]
    assert "no row has a 'category'; mend prompt.category" in refusal(tmp_path, rows)


def test_rows_without_a_category_among_others_are_noted(tmp_path: Path) -> None:
    got = loaded(tmp_path, [*(full(row) for row in ROWS), full({**ROWS[0], "question_id": "d", "category": ""})])
    assert got.notes == ("1 rows have no category and are counted under (none)",)
    assert [e.category for e in got.entries] == ["coding", "writing", "coding", "(none)"]


def test_first_turns_only_drop_the_later_ones_and_change_the_hash(tmp_path: Path) -> None:
    whole = loaded(tmp_path, [full(row) for row in ROWS])
    first = load(suite_of(tmp_path, "rows.jsonl"), first_turn_only=True)
    assert [e.turns for e in first.entries] == [1, 1, 1]
    assert [c.turns[0][0]["content"] for c in first] == [row["turns"][0] for row in ROWS]
    assert first.sha256 != whole.sha256
