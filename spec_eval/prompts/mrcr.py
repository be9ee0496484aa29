"""MRCR rows: a long conversation whose last message asks for one of its own earlier answers again.

The first two messages are both the user's; a chat template that insists on turns taking turns refuses them.
"""

import hashlib
from collections.abc import Callable
from difflib import SequenceMatcher

from spec_eval.prompts.conversation import Conversation, Reference
from spec_eval.prompts.rows import Row


def adapt(row: Row) -> Row:
    """The row with an `id` of its own: the data set has none, and rows move when it is filtered."""
    prompt, prefix = row.get("prompt"), row.get("random_string_to_prepend")
    if not isinstance(prompt, str) or not isinstance(prefix, str):
        raise ValueError("not an MRCR row: no prompt text or no random_string_to_prepend")
    return {**row, "id": hashlib.sha256(f"{prefix}|{prompt}".encode()).hexdigest()[:16]}


def reference(row: Row) -> Reference:
    """What the answer is compared with."""
    answer, prefix = row.get("answer"), row.get("random_string_to_prepend")
    if not isinstance(answer, str) or not isinstance(prefix, str):
        raise ValueError("not an MRCR row: no answer or no random_string_to_prepend")
    return Reference(answer, prefix)


def o200k_counter() -> Callable[[Conversation, Reference], int | None]:
    """Counts prompt and answer in o200k_base tokens; gives None where tiktoken or its vocabulary is not to be had."""
    try:
        import tiktoken

        encoding = tiktoken.get_encoding("o200k_base")
    except Exception:  # not installed, or its download failed: the length is optional
        return lambda *_: None

    def count(conversation: Conversation, expected: Reference) -> int:
        texts = [m["content"] for turn in conversation.turns for m in turn] + [expected.answer]
        return sum(len(encoding.encode(text, disallowed_special=())) for text in texts)

    return count


def grade(response: str, answer: str, prefix: str) -> float:
    """0 unless `response` starts with `prefix`; else how much of `answer` it matches, both without `prefix`.

    As openai/mrcr defines it: difflib's SequenceMatcher ratio.
    """
    if not response.startswith(prefix):
        return 0.0
    return SequenceMatcher(None, response.removeprefix(prefix), answer.removeprefix(prefix)).ratio()
