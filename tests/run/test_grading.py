from collections.abc import Callable
from dataclasses import replace

import pytest

from spec_eval.prompts import Conversation, PromptSet, mrcr
from spec_eval.prompts.conversation import Reference, index, index_sha256
from spec_eval.records import RequestRecord
from spec_eval.run.grading import grades
from spec_eval.store import Plan
from tests.factories import answered, cell, failed, from_histogram, not_sent, plan

COUNTERS = from_histogram((1, 1))


@pytest.fixture(autouse=True)
def _words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A length without a tokenizer: the letters of the answer."""
    monkeypatch.setattr(mrcr, "o200k_counter", lambda: lambda _conversation, reference: len(reference.answer))


def conversation(name: str, reference: Reference | None) -> Conversation:
    return Conversation(name, "8 needles", None, (({"role": "user", "content": f"{name}?"},),), reference)


def prompts(*conversations: Conversation, graded: bool = True) -> PromptSet:
    entries = index(conversations)
    return PromptSet(
        source="needles",
        revision=None,
        files={},
        sha256=index_sha256(entries),
        rows=len(entries),
        standin=False,
        entries=entries,
        notes=(),
        graded=graded,
        preparation=None,
        reread=lambda: iter(conversations),
    )


NEEDLE = conversation("a", Reference("Q7abcd", "Q7"))
PLAN = plan(cell([("a", "8 needles", 1)], cell_id="one"))


def answer(text: str | None, **changes: object) -> RequestRecord:
    return answered(COUNTERS, **{"cell_id": "one", "prompt_id": "a", "text": text, **changes})


def graded(*records: RequestRecord, of: Plan = PLAN, sets: dict[str, PromptSet] | None = None) -> list[float | None]:
    lines = list(grades(of, sets or {"one": prompts(NEEDLE)}, records))
    return [line["grade"] for line in lines]


def test_line_names_its_request_its_grade_and_its_length() -> None:
    (line,) = grades(PLAN, {"one": prompts(NEEDLE)}, (answer("Q7abxd", repeat=2),))
    request = {"cell_id": "one", "prompt_id": "a", "turn": 0, "repeat": 2}
    assert line == {"schema_version": 1, **request, "grade": 0.75, "o200k_tokens": 6}


@pytest.mark.parametrize(("text", "grade"), [("Q7abcd", 1.0), ("abcd", 0.0), ("", 0.0)])
def test_every_repeat_is_graded_for_itself(text: str, grade: float) -> None:
    assert graded(answer("Q7abcd", repeat=0), answer(text, repeat=1)) == [1.0, grade]


def test_no_answer_is_no_grade_and_not_zero() -> None:
    lost = {"cell_id": "one", "prompt_id": "a"}
    assert graded(failed(**lost), not_sent(**lost, repeat=1), answer(None, repeat=2)) == [None, None, None]


def test_answer_without_counters_is_graded_all_the_same() -> None:
    assert graded(replace(answer("Q7abcd"), counters=None, no_counters_reason="metrics null")) == [1.0]


def test_cells_are_graded_apart() -> None:
    two = plan(*(cell([("a", "8 needles", 1)], cell_id=name) for name in ("one", "two")))
    sets = {"one": prompts(NEEDLE), "two": prompts(NEEDLE)}
    records = (answer("Q7abxd", cell_id="two"), answer("Q7abcd"))
    assert graded(*records, of=two, sets=sets) == [1.0, 0.75]


def test_prompt_without_a_reference_has_no_line() -> None:
    sets = {"one": prompts(conversation("a", None))}
    assert graded(answer("Q7abcd"), sets=sets) == []


def test_records_of_no_prompt_have_no_line() -> None:
    assert graded(answer("Q7abcd", prompt_id="stray")) == []


def test_set_without_references_is_neither_read_nor_waits_for_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> Callable[..., int]:
        raise AssertionError("nothing is graded here")

    def unread() -> list[Conversation]:
        raise AssertionError("nothing is read again here")

    monkeypatch.setattr(mrcr, "o200k_counter", never)
    plain = replace(prompts(NEEDLE, graded=False), reread=unread)
    assert graded(answer("Q7abcd"), sets={"one": plain}) == []
