import csv
from pathlib import Path

import pytest

from spec_eval.cards.checks import Drafts, Judged, Verdict, fits, judge
from spec_eval.cards.numbers import Printed, printed, read_cell
from spec_eval.cards.tables import Row

PUBLISHED = Path(__file__).parents[2] / "profiles" / "published.csv"
ANY = Drafts()


def figure(text: str, *, share: bool = True) -> Printed | None:
    return printed(read_cell(text), percent=share and "%" in text)


def row(length: str, rate: str = "", *positions: str, drafts: int | None = None) -> Row:
    return Row(1, "x", figure(length, share=False), figure(rate), tuple(figure(p) for p in positions), drafts)


def reasons(judged: Judged) -> str:
    assert judged.verdict is Verdict.IMPOSSIBLE
    return "\n".join(judged.reasons)


@pytest.mark.parametrize(
    "printed_row",
    [
        # 1 + 0.8 + 0.5 = 2.3; 1.3 / 2 = 65%
        row("2.30", "65%", "80%", "50%"),
        row("2.3", "0.65", "0.80", "0.50"),
        # 1 + 0.81 + 0.52 = 2.33, and 2.3 may have been anything from 2.25 to 2.35
        row("2.3", "", "0.81", "0.52"),
        row("3.00", "100%", "100%", "100%"),
        # Equal positions are possible: whoever accepts one accepts two.
        row("2.00", "50%", "50%", "50%"),
    ],
)
def test_rows_that_hold(printed_row: Row) -> None:
    judged = judge(printed_row, ANY)
    assert (judged.verdict, judged.reasons, judged.k) == (Verdict.HOLDS, (), 2)


def test_a_drafter_that_never_hits_leaves_its_drafts_open() -> None:
    judged = judge(row("1.00", "0%", "0%", "0%"), ANY)
    assert (judged.verdict, judged.reasons, judged.k) == (Verdict.HOLDS, (), None)


def test_every_published_row_holds() -> None:
    with PUBLISHED.open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == 47
    for line in lines:
        rate = f"{line['acceptance_rate_pct']}%" if line["acceptance_rate_pct"] else ""
        positions = [f"{line[f'position_{i}_pct']}%" for i in range(1, 9)]
        judged = judge(row(line["acceptance_length"], rate, *positions), ANY)
        assert (judged.verdict, judged.reasons, judged.k) == (Verdict.HOLDS, (), 8)


def test_the_sum_at_the_edge_of_rounding() -> None:
    # 1 + 0.80 + 0.50 is from 2.29 to 2.31. 2.32 is from 2.315; 2.31 from 2.305.
    assert judge(row("2.31", "", "0.80", "0.50"), ANY).verdict is Verdict.HOLDS
    told = reasons(judge(row("2.32", "", "0.80", "0.50"), ANY))
    assert told == "1 + the sum of positions is 2.3000 (2.2900 to 2.3100 before rounding), printed is 2.32"
    assert judge(row("2.29", "", "0.80", "0.50"), ANY).verdict is Verdict.HOLDS
    assert judge(row("2.28", "", "0.80", "0.50"), ANY).verdict is Verdict.IMPOSSIBLE
    # Touching is enough: 1 + 0.81 + 0.53 is at most 2.35, and 2.4 at least that.
    assert judge(row("2.4", "", "0.81", "0.53"), ANY).verdict is Verdict.HOLDS


def test_a_sum_and_a_rate_that_do_not_add_up() -> None:
    # 1 + 0.85 + 0.66 + 0.50 + 0.38 = 3.39 and 2.39 / 4 = 59.75%; length and rate agree with each other.
    judged = judge(row("3.4000", "60.00%", "85.00%", "66.00%", "50.00%", "38.00%"), ANY)
    assert judged.reasons == (
        "1 + the sum of positions is 3.3900 (3.3898 to 3.3902 before rounding), printed is 3.4000",
        "the sum of positions / 4 is 59.75% (59.745% to 59.755% before rounding), printed rate is 60.00%",
    )


def test_a_rising_position() -> None:
    # 1 + 0.5 + 0.2 + 0.3 = 2.0, 1 / 3 = 33.33%
    judged = judge(row("2.00", "33.33%", "50%", "20%", "30%"), ANY)
    assert judged.reasons == ("position 3 (30%) is above position 2 (20%): a step that accepts 3 drafts accepts 2 too",)
    # 0.204 and 0.2 may be the same number before rounding.
    assert judge(row("1.90", "", "0.5", "0.2", "0.204"), ANY).verdict is Verdict.HOLDS


def test_shares_above_one_and_below_nothing() -> None:
    told = reasons(judge(row("5.2000", "105.00%", "100.00%", "100.00%", "100.00%", "120.00%"), ANY))
    assert "acceptance rate 105.00% is above 100%" in told
    assert "position 4 120.00% is above 100%" in told
    assert "acceptance length 5.2000 is above 5: 4 drafts and one token more" in told
    told = reasons(judge(row("", "", "0.5", "-0.2"), ANY))
    assert told == "position 2 -0.2 (-20%) is below 0%"


def test_a_length_below_one() -> None:
    assert "acceptance length 0.80 is below 1" in reasons(judge(row("0.80"), ANY))


@pytest.mark.parametrize(
    "printed_row",
    [row("2.30"), row("", "65%"), row("", "", "80%"), row("", "", "", ""), row("", "65%", "80%", "")],
)
def test_too_little_to_check(printed_row: Row) -> None:
    assert judge(printed_row, ANY).verdict is Verdict.UNCHECKED


def test_a_missing_position_lies_between_its_neighbours() -> None:
    # 1 + 0.8 + x + 0.4, each within 0.005, with x from 0.395 to 0.805: from 2.585 to 3.015
    for length, verdict in (
        ("2.60", Verdict.HOLDS),
        ("3.00", Verdict.HOLDS),
        ("2.50", Verdict.IMPOSSIBLE),
        ("3.10", Verdict.IMPOSSIBLE),
    ):
        assert judge(row(length, "", "0.80", "", "0.40"), ANY).verdict is verdict
    told = reasons(judge(row("3.10", "", "0.80", "", "0.40"), ANY))
    assert told == "1 + the sum of positions is 2.5850 to 3.0150, printed is 3.10"


def test_empty_cells_at_the_end_may_stand_for_shorter_drafts() -> None:
    # Two drafts of a table with four columns: 1.3 / 2 = 65%, and 1.3 / 4 = 32.5%
    assert judge(row("2.30", "65%", "80%", "50%", "", ""), ANY).k == 2
    assert judge(row("2.30", "32.5%", "80%", "50%", "0%", "0%"), ANY).k == 4
    assert judge(row("2.30", "50%", "80%", "50%", "", ""), ANY).verdict is Verdict.IMPOSSIBLE


def test_length_and_rate_without_positions() -> None:
    # 5.919 / 0.7399 = 8.0; 4.9 / 0.61 = 8.03, and no whole number is near enough.
    assert judge(row("6.9190", "73.99%"), ANY).k == 8
    told = reasons(judge(row("5.9000", "61.00%"), ANY))
    assert told == (
        "no whole number of drafts a step gives rate 61.00% with acceptance length 5.9000: "
        "(length − 1) / rate is 8.0327869"
    )


def test_the_rest_of_the_card_says_how_many_drafts() -> None:
    four = Drafts(candidates=(4,), other=False)
    # 2 / 4 = 50%; 40% would be five drafts.
    assert judge(row("3.00", "50.00%"), four).k == 4
    told = reasons(judge(row("3.00", "40.00%"), four))
    assert "(acceptance length − 1) / 4 is 50%" in told
    assert judge(row("3.00", "40.00%"), Drafts(candidates=(4,), other=True)).k == 5


def test_a_column_of_its_own_says_how_many_drafts() -> None:
    assert judge(row("2.30", "65%", drafts=2), ANY).verdict is Verdict.HOLDS
    assert judge(row("2.30", "65%", drafts=4), ANY).verdict is Verdict.IMPOSSIBLE
    assert judge(row("2.30", "65%", "80%", "50%", "", "", drafts=2), ANY).verdict is Verdict.HOLDS
    told = reasons(judge(row("2.40", "", "80%", "50%", "10%", drafts=2), ANY))
    assert "positions behind its own 2 drafts accept tokens" in told


def test_drafts_that_vary_in_length_allow_a_higher_rate_and_no_lower_one() -> None:
    # 1.3 / 4 = 32.5%: with fewer drafts than 4 in some steps the rate is higher, never lower.
    vary = Drafts(vary=True)
    assert judge(row("2.30", "40%", "60%", "40%", "20%", "10%"), vary).verdict is Verdict.HOLDS
    assert judge(row("2.30", "30%", "60%", "40%", "20%", "10%"), vary).verdict is Verdict.IMPOSSIBLE
    assert judge(row("2.30", "40%", "60%", "40%", "20%", "10%"), ANY).verdict is Verdict.IMPOSSIBLE


def test_one_position_column_may_be_the_first_of_several() -> None:
    assert judge(row("4.80", "", "83%"), ANY).verdict is Verdict.HOLDS
    assert "1 + the sum of positions is at least 1.8250" in reasons(judge(row("1.80", "", "83%"), ANY))
    alone = Drafts(candidates=(1,))
    assert judge(row("1.83", "", "83%"), alone).verdict is Verdict.HOLDS
    assert judge(row("4.80", "", "83%"), alone).verdict is Verdict.IMPOSSIBLE


def test_two_ways_of_counting_are_named() -> None:
    # 0.8 + 0.5 = 1.3: the target's own token is left out.
    assert "token that the target adds" in reasons(judge(row("1.30", "", "80%", "50%"), ANY))
    # 1 + 0.9 + 0.9 · 0.8 = 2.62: each position among those that came so far.
    assert "share of the steps that accepted the one before" in reasons(judge(row("2.62", "", "90%", "80%"), ANY))


def test_which_drafts_fit() -> None:
    assert [k for k in range(1, 20) if fits(row("6.9190", "73.99%"), k)] == [8]
    assert not fits(row("6.9190"), 8)
