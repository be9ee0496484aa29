import pytest

from spec_eval.pairs import Conversation, Pairs, Tally, conversations, grouped, pair
from spec_eval.records import SpecCounters
from tests.factories import CELL, answered, cell, failed, from_histogram, not_sent, plan


def talk(
    prompt: str, *, cell_id: str = "a", category: str = "x", full: bool = True, tally: Tally | None = None
) -> Conversation:
    return Conversation(cell_id, "chat", prompt, category, tally or Tally(1, 1, 1, (1,)), full)


def test_integers_are_summed_over_turns_and_repeats() -> None:
    of = plan(cell([("p0", "coding", 2)], repeats=2))
    records = [
        answered(from_histogram([1, 0, 2]), turn=turn, repeat=repeat) for turn in range(2) for repeat in range(2)
    ]
    (one,) = conversations(of, records)
    # S 3, A 4, D 6, at least one 2, at least two 2; four times
    assert one == Conversation(CELL, "chat", "p0", "coding", Tally(12, 16, 24, (8, 8)), full=True)


def test_only_a_prompt_with_every_turn_measured_is_full() -> None:
    of = plan(cell([(f"p{i}", "coding", 2) for i in range(5)]))
    good = from_histogram([1, 1])
    records = [
        *(answered(good, prompt_id=f"p{i}") for i in range(5)),
        answered(good, prompt_id="p0", turn=1),
        failed(prompt_id="p1", turn=1),
        not_sent(prompt_id="p2", turn=1),
        answered(None, prompt_id="p3", turn=1),
        answered(from_histogram([1, 1], steps=7), prompt_id="p4", turn=1),  # an identity is broken
    ]
    found = conversations(of, records)
    assert [(one.prompt_id, one.full) for one in found] == [("p0", True)] + [(f"p{i}", False) for i in range(1, 5)]
    assert [one.tally.steps for one in found] == [4, 2, 2, 2, 2]


def test_a_request_without_a_step_is_measured_and_adds_nothing() -> None:
    of = plan(cell([("p0", "coding", 2)]))
    nothing = SpecCounters(steps=0, accepted=0, drafted=None, histogram=None, k=1)
    (one,) = conversations(of, [answered(nothing), answered(from_histogram([1, 1]), turn=1)])
    assert one.full
    assert one.tally == Tally(2, 1, 2, (1,))


def test_what_one_request_does_not_tell_the_sum_does_not_know() -> None:
    of = plan(cell([("p0", "coding", 2)]))
    quiet = SpecCounters(steps=2, accepted=1, drafted=2, histogram=None, k=1)
    (one,) = conversations(of, [answered(quiet), answered(from_histogram([1, 1]), turn=1)])
    assert (one.tally.reached, one.tally.position(1)) == (None, None)
    assert Tally(1, 0, None) + Tally(1, 1, 1) == Tally(2, 1, None, ())


def test_positions_of_different_lengths_are_padded() -> None:
    joined = Tally(2, 3, 4, (2, 1)) + Tally(1, 1, 1, (1,))
    assert joined == Tally(3, 4, 5, (3, 1))
    assert (joined.position(2), joined.position(3)) == (1, 0)


def test_a_prompt_not_full_on_both_sides_is_left_out_of_both_and_counted() -> None:
    a = [talk("p0"), talk("p1", full=False), talk("p2"), talk("p3")]
    b = [talk("p0"), talk("p1"), talk("p2", full=False), talk("p4")]
    found = pair(a, b)
    assert (found.used, found.left_out, len(found.before), len(found.after)) == (1, 4, 1, 1)
    assert found.share == pytest.approx(0.2)
    assert not found.enough


@pytest.mark.parametrize(("used", "left_out", "enough"), [(19, 1, True), (18, 1, False), (95, 5, True), (0, 0, False)])
def test_ninety_five_in_a_hundred_must_be_paired(used: int, left_out: int, enough: bool) -> None:
    assert Pairs((), (), used, left_out).enough is enough


def test_cells_of_one_prompt_are_one_conversation_overall() -> None:
    a = [talk("p0", tally=Tally(2, 1, 4, (1,))), talk("p0", cell_id="b", tally=Tally(3, 3, 6, (3,)))]
    found = pair(a, a)
    assert (found.used, found.before) == (2, (Tally(5, 4, 10, (4,)),))


def test_groups_follow_the_first_side() -> None:
    a = [talk("p0", category="y"), talk("p1", category="x")]
    b = [talk("p0", category="other"), talk("p1", category="x")]
    found = dict(grouped(a, b, lambda one: (one.category,)))
    assert {name: pairs.used for name, pairs in found.items()} == {("y",): 1, ("x",): 1}
    assert list(found) == [("y",), ("x",)]


def test_no_position_beyond_the_shorter_draft() -> None:
    assert Pairs((Tally(1, 2, 2, (1, 1)),), (Tally(1, 1, 1, (1,)),), 1, 0).k == 1
    assert Pairs((), (), 0, 0).k == 0


def test_unknown_counts_give_no_change() -> None:
    known, unknown = Tally(1, 1, 1, (1,)), Tally(1, 1, None, None)
    pairs = Pairs((known,), (unknown,), 1, 0)
    assert (pairs.acceptance_rate(), pairs.position(1)) == (None, None)
    length = pairs.acceptance_length()
    assert length is not None
    assert length.value == 0.0
