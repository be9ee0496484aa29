from typing import Any

import pytest

from spec_eval.emulator.asks import Ask, BadAsk, identity, parse

HI = [{"role": "user", "content": "hi"}]


def chat(**body: Any) -> Ask:
    return parse({"messages": HI, **body}, chat=True, context=1000)


def test_prompt_tokens_are_a_quarter_of_the_bytes_and_the_templates_own() -> None:
    # 3 around, 4 a message; 5 bytes are 2 tokens, "é" is 2 bytes and so 1
    messages = [{"role": "user", "content": "12345"}, {"role": "assistant", "content": "é"}]
    assert chat(messages=messages).prompt_tokens == (3 + 4 + 2 + 4 + 1,)
    assert parse({"prompt": "12345"}, chat=False, context=100).prompt_tokens == (2,)


def test_limit_is_the_room_of_a_chat_and_sixteen_of_a_completion_where_none_is_given() -> None:
    assert chat().max_tokens == 1000 - 8
    assert chat(max_tokens=5).max_tokens == 5
    assert chat(max_completion_tokens=6, max_tokens=5).max_tokens == 6
    assert parse({"prompt": "x"}, chat=False, context=100).max_tokens == 16


def test_content_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    assert chat(messages=[{"role": "user", "content": parts}]).contents == chat().contents


def test_first_user_text_is_not_the_systems() -> None:
    messages = [{"role": "system", "content": "be brief"}, *HI, {"role": "user", "content": "more"}]
    assert chat(messages=messages).first_user == "hi"


def test_identity_is_of_row_and_messages_alone() -> None:
    one = identity("row", chat(seed=1, cache_salt="a", temperature=0.5).contents[0])
    assert identity("row", chat(seed=2, cache_salt="b").contents[0]) == one
    assert identity("other", chat().contents[0]) != one
    assert identity("row", chat(messages=[{"role": "user", "content": "ho"}]).contents[0]) != one


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"max_tokens": 993}, "maximum context length is 1000 tokens.*993 output tokens.*8 input tokens"),
        ({"messages": [{"role": "user", "content": "x" * 4000}]}, "maximum context length"),
        ({"messages": "hi"}, "messages must be a list"),
        ({"max_tokens": -1}, "max_tokens must be at least 1, got -1"),
    ],
)
def test_what_does_not_fit_is_refused(body: dict[str, Any], words: str) -> None:
    with pytest.raises(BadAsk, match=words):
        chat(**body)
