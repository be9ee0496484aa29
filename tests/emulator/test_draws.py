from pathlib import Path

import pytest

from spec_eval import profiles
from spec_eval.emulator.draws import DECK, Deck, Row, random_steps
from spec_eval.errors import UsageError

ROW = Row("small", (4000, 3000, 2000, 1000))


def test_shares_become_whole_numbers_of_steps() -> None:
    row = Row.of(profiles.find("glm-5.3-dflash2-preview:basic-t0:HumanEval"))
    # from the card: 83.49 68.30 56.05 46.44 39.08 33.36 28.84 25.18
    assert row.histogram == (1651, 1519, 1225, 961, 736, 572, 452, 366, 2518)
    assert (sum(row.histogram), row.k) == (DECK, 8)


def test_shares_of_a_file_are_rounded_to_four_decimals(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("schema_version = 1\npositions = [0.66666, 0.1]\n")
    assert Row.of(profiles.find(str(path))).histogram == (3333, 5667, 1000)


@pytest.mark.parametrize(("hands", "sizes"), [(80, {125}), (50, {200}), (3, {3333, 3334}), (1, {10_000})])
def test_hands_are_the_whole_deck_dealt_evenly(hands: int, sizes: set[int]) -> None:
    deck = Deck(ROW, hands, seed=3)
    assert {len(hand) for hand in deck.hands} == sizes
    cards = [card for hand in deck.hands for card in hand]
    assert [cards.count(j) for j in range(4)] == [4000, 3000, 2000, 1000]


def test_identity_keeps_its_hand_and_a_new_one_takes_the_next_round_and_round() -> None:
    deck = Deck(ROW, 3, seed=0)
    dealt = [deck.hand(who) for who in ("a", "b", "a", "c", "d", "b", "e")]
    one, two, three = deck.hands
    assert dealt == [one, two, one, three, one, two, two]


def test_seed_shuffles() -> None:
    assert Deck(ROW, 80, seed=1).hands == Deck(ROW, 80, seed=1).hands
    assert Deck(ROW, 80, seed=1).hands != Deck(ROW, 80, seed=2).hands


@pytest.mark.parametrize("hands", [0, 10_001])
def test_hands_without_a_step_are_refused(hands: int) -> None:
    with pytest.raises(UsageError, match="give from 1 to 10000"):
        Deck(ROW, hands, seed=0)


def test_random_steps_depend_on_seed_content_and_sent_seed_alone() -> None:
    one = random_steps(ROW, 0, "content", 5, 100)
    assert random_steps(ROW, 0, "content", 5, 100) == one
    others = [
        random_steps(ROW, 1, "content", 5, 100),
        random_steps(ROW, 0, "other", 5, 100),
        random_steps(ROW, 0, "content", None, 100),
    ]
    assert one not in others
    assert len({*others}) == 3


def test_random_steps_follow_the_shares() -> None:
    steps = [j for n in range(400) for j in random_steps(ROW, 0, str(n), None, 100)]
    lengths = [len(random_steps(ROW, 0, str(n), None, 100)) for n in range(400)]
    assert (min(lengths) >= 50, max(lengths) <= 150) == (True, True)
    # about 40,000 steps: a share's standard error is at most 0.25 points
    for j, share in enumerate((0.4, 0.3, 0.2, 0.1)):
        assert steps.count(j) / len(steps) == pytest.approx(share, abs=0.01)
