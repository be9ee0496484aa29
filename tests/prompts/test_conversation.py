from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from spec_eval.prompts.conversation import Conversation, PromptSet, index, index_sha256


def conversation(prompt_id: str, category: str = "qa", *texts: str) -> Conversation:
    turns = tuple(({"role": "user", "content": text},) for text in (texts or (f"{prompt_id}?",)))
    return Conversation(prompt_id=prompt_id, category=category, subcategory=None, turns=turns)


def prompt_set(rows: list[Conversation], reread: Callable[[], Iterable[Conversation]] | None = None) -> PromptSet:
    entries = index(rows)
    return PromptSet(
        source="tea.jsonl",
        revision=None,
        files={},
        sha256=index_sha256(entries),
        rows=len(entries),
        standin=False,
        entries=entries,
        notes=(),
        graded=False,
        preparation=None,
        reread=reread or (lambda: iter(rows)),
    )


def ids(chosen: PromptSet) -> list[str]:
    return [entry.prompt_id for entry in chosen.entries]


# a has four rows, b two, c one, in this order.
MIXED = [conversation(name, name[0]) for name in ("a1", "a2", "b1", "a3", "c1", "b2", "a4")]


def test_index_keeps_order_and_turns_and_drops_texts() -> None:
    entries = index([conversation("x", "qa", "one", "two"), conversation("y")])
    assert [(e.prompt_id, e.category, e.turns) for e in entries] == [("x", "qa", 2), ("y", "qa", 1)]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, ["a1"]),
        (2, ["a1", "b1"]),
        (3, ["a1", "b1", "c1"]),
        (4, ["a1", "a2", "b1", "c1"]),
        (5, ["a1", "a2", "b1", "c1", "b2"]),
        (6, ["a1", "a2", "b1", "a3", "c1", "b2"]),
        (7, ["a1", "a2", "b1", "a3", "c1", "b2", "a4"]),
        (99, ["a1", "a2", "b1", "a3", "c1", "b2", "a4"]),
        (None, ["a1", "a2", "b1", "a3", "c1", "b2", "a4"]),
    ],
)
def test_limit_is_dealt_over_the_categories_and_keeps_row_order(limit: int | None, expected: list[str]) -> None:
    assert ids(prompt_set(MIXED).limited(limit)) == expected


def test_larger_limit_holds_every_prompt_of_a_smaller_one() -> None:
    chosen = [set(ids(prompt_set(MIXED).limited(n))) for n in range(1, 8)]
    assert all(small < large for small, large in pairwise(chosen))


def test_limit_leaves_the_hash_of_the_whole_set() -> None:
    whole = prompt_set(MIXED)
    assert whole.limited(2).sha256 == whole.sha256


def test_limited_set_gives_its_conversations_in_row_order() -> None:
    assert [c.prompt_id for c in prompt_set(MIXED).limited(4)] == ["a1", "a2", "b1", "c1"]


def test_only_chooses_by_name_and_keeps_row_order() -> None:
    chosen = prompt_set(MIXED).only(["b2", "a1", "unknown"])
    assert ids(chosen) == ["a1", "b2"]
    assert [c.prompt_id for c in chosen] == ["a1", "b2"]


def test_set_can_be_gone_through_again() -> None:
    whole = prompt_set(MIXED)
    assert list(whole) == list(whole) == MIXED


@pytest.mark.parametrize(
    "change",
    [
        lambda c: replace(c, category="other"),
        lambda c: replace(c, subcategory="part"),
        lambda c: replace(c, turns=(*c.turns, *c.turns)),
        lambda c: replace(c, turns=(({"role": "user", "content": "else"},),)),
        lambda c: replace(c, turns=(({"role": "system", "content": c.turns[0][0]["content"]},),)),
    ],
)
def test_data_that_changed_since_it_was_indexed_is_noticed(change: Callable[[Conversation], Conversation]) -> None:
    rows = list(MIXED)
    chosen = prompt_set(rows, lambda: iter(rows))
    rows[3] = change(rows[3])
    with pytest.raises(ValueError, match="prompt 'a3' changed while it was in use"):
        list(chosen)


def test_prompt_that_is_gone_since_it_was_indexed_is_noticed() -> None:
    rows = list(MIXED)
    chosen = prompt_set(rows, lambda: iter(rows))
    del rows[3]
    with pytest.raises(ValueError, match="a3"):
        list(chosen)


def test_change_of_a_prompt_that_was_not_chosen_is_no_matter() -> None:
    rows = list(MIXED)
    chosen = prompt_set(rows, lambda: iter(rows)).limited(2)
    rows[6] = conversation("a4", "a", "else")
    assert [c.prompt_id for c in chosen] == ["a1", "b1"]


def test_hash_tells_every_part_apart() -> None:
    one = conversation("x", "qa", "one", "two")
    others = [
        conversation("x", "qa", "one two"),
        conversation("x", "qa", "two", "one"),
        conversation("y", "qa", "one", "two"),
        conversation("x", "q", "aone", "two"),
        replace(one, turns=((*one.turns[0], *one.turns[1]),)),
    ]
    assert len({c.sha256 for c in [one, *others]}) == 6
    assert conversation("x", "qa", "one", "two").sha256 == one.sha256


def test_half_a_surrogate_pair_can_be_hashed() -> None:
    assert conversation("x", "qa", "\ud83d").sha256 != conversation("x", "qa", "?").sha256


def test_hash_of_a_set_depends_on_its_order() -> None:
    entries = index(MIXED)
    assert index_sha256(entries) != index_sha256(tuple(reversed(entries)))
    assert index_sha256(entries) == index_sha256(list(entries))


@pytest.mark.parametrize(
    ("categories", "first", "expected"),
    [
        ((), None, ["a1", "a2", "b1", "a3", "c1", "b2", "a4"]),
        (("b", "c"), None, ["b1", "c1", "b2"]),
        (("a",), 2, ["a1", "a2"]),
        ((), 1, ["a1", "b1", "c1"]),
        (("b", "z"), 9, ["b1", "b2"]),
        (("z",), None, []),
    ],
)
def test_selection_is_the_first_of_each_category_in_row_order(
    categories: tuple[str, ...], first: int | None, expected: list[str]
) -> None:
    whole = prompt_set(MIXED)
    chosen = whole.selected(categories, first)
    assert ids(chosen) == expected
    assert [c.prompt_id for c in chosen] == expected
    assert (chosen.sha256, chosen.rows) == (whole.sha256, 7)


def test_prompts_that_ask_the_same_are_duplicates_of_the_first_one() -> None:
    rows = [
        conversation("a", "qa", "Why?", "And then?"),
        conversation("b", "qa", "Why?"),  # one turn less is another conversation
        conversation("c", "writing", "Why?", "And then?"),
        conversation("d", "qa", "why?"),
        conversation("e", "qa", "Why?", "And then?"),
    ]
    chosen = prompt_set(rows)
    assert chosen.duplicates == ("c", "e")
    assert chosen.only(["b", "c", "d"]).duplicates == ()
