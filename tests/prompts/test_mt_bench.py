import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval import suite
from spec_eval.errors import UsageError
from spec_eval.prompts import PromptSet, load
from spec_eval.prompts.mt_bench import adapt

FASTCHAT = [
    {"question_id": 81, "category": "writing", "turns": ["Compose a post.", "Rewrite it."]},
    {"question_id": 82, "category": "math", "turns": ["What is 2 + 2?", "And doubled?"], "reference": ["4", "8"]},
]
HUB = [
    {"prompt_id": row["question_id"], "category": row["category"], "prompt": row["turns"], "reference": []}
    for row in FASTCHAT
]


def loaded(folder: Path, rows: list[dict[str, Any]], *, first_turn_only: bool = False) -> PromptSet:
    folder.mkdir(exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    shipped = suite.find("mt-bench")
    data = {"file": "rows.jsonl", "licence": "CC0-1.0"}
    own = shipped.simple.model_copy(update={"data": shipped.simple.data.model_validate(data)})
    file = shipped.model_copy(update={"suite": own, "path": folder / "mt.toml"})
    return load(file, first_turn_only=first_turn_only)


def test_both_shapes_give_the_same_conversations(tmp_path: Path) -> None:
    one, other = loaded(tmp_path / "a", FASTCHAT), loaded(tmp_path / "b", HUB)
    assert one.sha256 == other.sha256
    assert list(one) == list(other)
    assert [(e.prompt_id, e.category, e.turns) for e in one.entries] == [("81", "writing", 2), ("82", "math", 2)]


def test_both_turns_are_the_users_without_a_system_prompt(tmp_path: Path) -> None:
    first, _ = loaded(tmp_path, HUB)
    assert first.turns == (
        ({"role": "user", "content": "Compose a post."},),
        ({"role": "user", "content": "Rewrite it."},),
    )


def test_row_that_has_turns_already_stays_as_it_is() -> None:
    row = {"turns": ["a"], "prompt": ["b"], "question_id": 1}
    assert adapt(row) is row


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"category": "math", "prompt": ["a", "b"]}, "id column 'question_id' is None"),
        ({"category": "math", "prompt_id": 1, "prompt": []}, "column 'turns' holds no turns"),
        ({"category": "math", "prompt_id": 1, "prompt": ["a", " "]}, "turn 2 is empty"),
        ({"category": "math", "prompt_id": 1, "prompt": "text"}, "column 'turns' holds no turns"),
        ({"category": "math", "prompt_id": 1}, "no column 'turns'"),
    ],
)
def test_row_that_cannot_be_asked_is_refused(tmp_path: Path, row: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, [FASTCHAT[0], row])
    assert f"line 2: {problem}" in str(caught.value)


def test_first_turns_only_are_one_request_each(tmp_path: Path) -> None:
    assert [e.turns for e in loaded(tmp_path, HUB, first_turn_only=True).entries] == [1, 1]
