from typing import Any

import pytest

from spec_eval.errors import UsageError
from spec_eval.prompts.build import category_notes, check_spec, conversations
from spec_eval.prompts.conversation import Conversation
from spec_eval.suite import PromptSpec

SPEC = PromptSpec(template="{question}", id="id", category="kind")


def built(rows: list[dict[str, Any]], spec: PromptSpec = SPEC) -> list[Conversation]:
    return list(conversations(((f"line {n}", row) for n, row in enumerate(rows, 1)), spec, "tea.jsonl"))


def refusal(rows: list[dict[str, Any]], spec: PromptSpec = SPEC) -> str:
    with pytest.raises(UsageError) as caught:
        built(rows, spec)
    return str(caught.value)


def row(name: object = "a", question: object = "Why?", **more: object) -> dict[str, Any]:
    return {"id": name, "question": question, "kind": "qa", **more}


def asked(conversation: Conversation) -> str:
    ((message,),) = conversation.turns
    assert message["role"] == "user"
    return message["content"]


def test_row_becomes_one_user_turn() -> None:
    (conversation,) = built([row("a", "Why?", part="tea")], SPEC.model_copy(update={"subcategory": "part"}))
    assert conversation.turns == (({"role": "user", "content": "Why?"},),)
    assert (conversation.prompt_id, conversation.category, conversation.subcategory) == ("a", "qa", "tea")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (r"{question} in \boxed{}", r"Why? in \boxed{}"),
        ("{} { question } {{}} {question}", "{} { question } {{}} Why?"),
        ("{question}\n{kind}", "Why?\nqa"),
        ("{question}{question}", "Why?Why?"),
        (r"\1 \g<0> {question}", r"\1 \g<0> Why?"),
    ],
)
def test_only_columns_are_replaced_and_every_other_brace_stays(template: str, expected: str) -> None:
    (conversation,) = built([row()], SPEC.model_copy(update={"template": template}))
    assert asked(conversation) == expected


@pytest.mark.parametrize("text", ["{kind} stays", r"\boxed{1} \n \1", "{question}", " padded \n"])
def test_text_of_a_row_is_never_a_template(text: str) -> None:
    (conversation,) = built([row(question=text)])
    assert asked(conversation) == text


@pytest.mark.parametrize(
    "text",
    [
        "<<PLACEHOLDER: row 4 of the source>>",
        "[PLACEHOLDER]",
        " {{ placeholder }}\nThink first.",
        "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH",
    ],
)
def test_placeholder_is_refused_in_a_set_of_any_shape(text: str) -> None:
    assert "line 2: column 'question' is a placeholder" in refusal([row(), row("b", text)])
    turns = PromptSpec(turns="turns", id="id", category="kind")
    talk = [row(turns=["Why?"]), row("b", turns=["Why?", text])]
    assert "line 2: turn 2 is a placeholder" in refusal(talk, turns)
    messages = PromptSpec(messages="messages", id="id", category="kind")
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    assert "line 1: message 2 is a placeholder" in refusal([row(messages=said)], messages)


@pytest.mark.parametrize(
    "text", ["Placeholder names in Python?", "<placeholder> in Android: why?", "Why <<PLACEHOLDER>>?"]
)
def test_text_about_placeholders_is_asked(text: str) -> None:
    (conversation,) = built([row(question=text)])
    assert asked(conversation) == text


def test_duplicate_id_names_both_rows() -> None:
    message = refusal([row("a"), row("b"), row("a", "Where?")])
    assert "line 3: id 'a' is taken by line 1" in message


def test_number_and_its_text_are_the_same_id() -> None:
    assert "id '9' is taken by line 1" in refusal([row(9), row("9")])


def test_ids_that_are_numbers_become_text() -> None:
    assert [c.prompt_id for c in built([row(9), row(0), row("x")])] == ["9", "0", "x"]


@pytest.mark.parametrize("name", [None, "", True, 1.5, ["a"], {}])
def test_id_that_is_neither_text_nor_number_is_refused(name: object) -> None:
    assert "line 1: id column 'id'" in refusal([row(name)])


def test_without_an_id_column_the_place_in_the_file_names_a_row() -> None:
    spec = PromptSpec(template="{question}", category="kind")
    assert [c.prompt_id for c in built([row("z"), row("y")], spec)] == ["0", "1"]


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        ("", "column 'question' is empty"),
        (" \n\t", "column 'question' is empty"),
        (None, "column 'question' is NoneType, not text"),
        (7, "column 'question' is int, not text"),
        (["Why?"], "column 'question' is list, not text"),
    ],
)
def test_text_that_cannot_be_asked_is_refused(question: object, problem: str) -> None:
    assert f"line 2: {problem}" in refusal([row("a"), row("b", question)])


def test_missing_column_names_those_there_are() -> None:
    message = refusal([{"id": "a", "prompt": "Why?"}])
    assert "line 1: no column 'question', there are id, prompt" in message


def test_missing_id_column_is_refused() -> None:
    assert "no column 'id'" in refusal([{"question": "Why?"}])


def test_all_problems_are_told_in_one_line() -> None:
    message = refusal([row("a", ""), row(None), row("b"), row("b")])
    assert message.startswith("tea.jsonl: ")
    assert all(f"line {n}: " in message for n in (1, 2, 4))
    assert "line 3: " not in message
    assert "\n" not in message


@pytest.mark.parametrize("kind", [None, ""])
def test_row_without_a_category_is_kept_under_none(kind: object) -> None:
    assert built([row(kind=kind)])[0].category == "(none)"


def test_row_without_the_category_column_is_kept_under_none() -> None:
    assert built([{"id": "a", "question": "Why?"}])[0].category == "(none)"


def test_category_may_be_one_for_all() -> None:
    spec = PromptSpec(template="{question}", category_name="coding")
    assert {c.category for c in built([row("a"), row("b", kind="qa")], spec)} == {"coding"}


def test_categories_that_differ_only_by_case_or_space_are_kept_apart_and_told() -> None:
    found = [c.category for c in built([row("a", kind="Coding "), row("b", kind="coding"), row("c", kind="qa")])]
    assert found == ["Coding ", "coding", "qa"]
    (note,) = category_notes(found)
    assert "'Coding '" in note
    assert "'coding'" in note
    assert "qa" not in note
    assert category_notes(["coding", "coding", "qa"]) == []


@pytest.mark.parametrize("template", ["Tell me a joke", r"\boxed{}", "{ question }"])
def test_template_that_asks_for_no_column_is_refused(template: str) -> None:
    with pytest.raises(UsageError, match=r"tea\.toml: prompt\.template names no column"):
        check_spec(PromptSpec(template=template), "tea.toml")
