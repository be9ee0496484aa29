from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from spec_eval import gate, sides
from spec_eval.errors import UsageError
from spec_eval.gate import CATEGORIES, PAIRED, Gate, Ruling, Verdict
from spec_eval.pairs import Conversation, Side, Tally
from spec_eval.rules import DEFAULT, read
from tests.factories import CELL, answered, failed
from tests.sides import AFTER, BEFORE, Histograms, run


def judged(tmp_path: Path, a: Histograms, b: Histograms, *rules: str, **changes: Sequence[str]) -> Gate:
    before, after = run(tmp_path, "base", a, **changes), run(tmp_path, "new", b, **changes)  # type: ignore[arg-type]
    return gate.judge(sides.load(before), sides.load(after), read(rules or DEFAULT))


def by_hand(steps: int, accepted: Sequence[int], baseline: Sequence[int]) -> Gate:
    """One prompt an entry, `steps` steps each, and so many acceptances."""
    before, after = (
        Side(
            name,
            {CELL: {}},
            {},
            tuple(
                Conversation(CELL, "chat", f"p{i}", "coding", Tally(steps, a, 9 * steps, (a,)), full=True)
                for i, a in enumerate(taken)
            ),
            len(taken),
            len(taken),
        )
        for name, taken in (("base", baseline), ("new", accepted))
    )
    return gate.judge(before, after, read(DEFAULT))


def first(found: Gate) -> Ruling:
    return found.rulings[0]


def test_the_same_run_again_passes_with_an_interval_of_no_width(tmp_path: Path) -> None:
    found = judged(tmp_path, BEFORE, BEFORE)
    assert found.verdict is Verdict.PASS
    assert (first(found).change, first(found).low, first(found).high) == (0.0, 0.0, 0.0)
    assert [one.text for one in found.rulings] == [*DEFAULT, CATEGORIES, PAIRED]
    assert {one.verdict for one in found.rulings} == {Verdict.PASS}


def test_a_loss_that_is_shown_fails(tmp_path: Path) -> None:
    one = first(found := judged(tmp_path, AFTER, BEFORE))
    # d = ln(1.5 / 2) = -0.2876821, SE = 0.0764719, t(19; 0.98) = 2.204701: bounds -0.456280 and -0.119084
    assert found.verdict is Verdict.FAIL
    assert (one.baseline, one.candidate, one.n) == (2.0, 1.5, 20)
    assert one.change == pytest.approx(-0.25)
    assert one.low == pytest.approx(-0.366363, abs=1e-5)
    assert one.high == pytest.approx(-0.112267, abs=1e-5)
    assert "a loss is shown: -25.0%, 98% bounds [-36.6%, -11.2%], 2% allowed, 20 pairs" in found.sentence()


def test_a_gain_passes(tmp_path: Path) -> None:
    assert judged(tmp_path, BEFORE, AFTER).verdict is Verdict.PASS


def test_what_the_data_cannot_tell_is_inconclusive_and_says_what_they_could(tmp_path: Path) -> None:
    # Acceptance of every second step, the other half of them in the candidate: no change, u = ±2/3 in turn.
    one = first(found := judged(tmp_path, BEFORE, [[0, 1], [1, 0]] * 10))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert one.change == pytest.approx(0.0)
    # SE = 2/3 sqrt(20/19) / sqrt(20) = 0.152944; shown from 1 - exp(-2.204701 SE), found from 1 - exp(-2.9 SE)
    assert one.shown_from == pytest.approx(0.286231, abs=1e-5)
    assert one.found_from == pytest.approx(0.358239, abs=1e-5)
    # 20 (2.9 · 0.152944 / 0.0202027)² = 9639.7
    assert one.pairs_needed == 9640
    assert "no loss shown, and none ruled out" in one.reason
    assert "measured loss from 28.6%, and show a true one of 35.8% in 8 of 10" in one.reason
    assert "with about 9640 pairs" in found.sentence()


def test_a_loss_within_the_allowance_is_no_fail_however_sure() -> None:
    # AL 2 to 1.97 in every prompt: -1.5%, without any noise
    found = by_hand(100, [97] * 20, [100] * 20)
    assert first(found).change == pytest.approx(-0.015)
    assert found.verdict is Verdict.PASS
    # AL 2 to 1.95: -2.5%
    assert by_hand(100, [95] * 20, [100] * 20).verdict is Verdict.FAIL


def test_a_shown_loss_that_may_be_within_the_allowance_is_inconclusive() -> None:
    # Half of the prompts lose 0.06 of 2, half nothing: -1.5%, SE = 0.015 sqrt(20/19) / sqrt(20) / 0.985 = 0.0034938;
    # bounds ln(0.985) ∓ 2.204701 SE = -0.022816 and -0.007411
    found = by_hand(100, [94, 100] * 10, [100] * 20)
    one = first(found)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert one.high == pytest.approx(-0.007383, abs=1e-4)
    assert one.low == pytest.approx(-0.022558, abs=1e-4)
    assert "a loss is shown, but not that it is more than allowed" in one.reason


def test_under_twenty_pairs_there_is_no_verdict(tmp_path: Path) -> None:
    found = judged(tmp_path, AFTER[:19], BEFORE[:19])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "19 pairs are too few for a verdict, 20 are the least" in found.sentence()
    assert first(judged(tmp_path / "more", AFTER, BEFORE)).verdict is Verdict.FAIL


def test_rules_on_positions_and_rates_are_in_points(tmp_path: Path) -> None:
    # position 1 and the rate fall from 100% to 50%; SE = 0.114708
    rules = ("position[1]:-60pp", "position[1]:-40pp", "acceptance_rate:-40pp", "position[2]:-1pp")
    sixty, forty, rate, absent = judged(tmp_path, AFTER, BEFORE, *rules).rulings[:4]
    assert (sixty.verdict, sixty.change) == (Verdict.INCONCLUSIVE, -0.5)
    assert sixty.low == pytest.approx(-0.5 - 2.204701 * 0.114708, abs=1e-5)
    assert (forty.verdict, rate.verdict) == (Verdict.FAIL, Verdict.FAIL)
    assert (absent.verdict, absent.reason) == (
        Verdict.FAIL,
        "no figure to compare: position 2 is not reported",
    )


@pytest.mark.parametrize(
    ("histogram", "rule", "verdict"),
    [
        # AL 1 + 25/10, exactly
        ([0, 2, 3, 3, 2], "acceptance_length>=3.5", Verdict.PASS),
        # AL 1 + 24961/10000
        ([0, 0, 5039, 4961], "acceptance_length>=3.5", Verdict.FAIL),
        # AL 1 + 29/10; in binary 2.9 is a little less
        ([0, 0, 1, 9], "acceptance_length>=3.9", Verdict.PASS),
        # AL 1 + 2.8966…
        ([0, 0, 31, 269], "acceptance_length>=3.9", Verdict.FAIL),
        # 6 of 10 steps accept one at least
        ([4, 3, 3], "position[1]>=60%", Verdict.PASS),
        ([4, 3, 3], "position[1]>=60.01%", Verdict.FAIL),
        ([4, 3, 3], "position[2]>=30%", Verdict.PASS),
        ([4, 3, 3], "position[3]>=0%", Verdict.FAIL),
        # 9 of 20 drafted
        ([4, 3, 3], "acceptance_rate>=45%", Verdict.PASS),
    ],
)
def test_floors_are_compared_exactly(histogram: list[int], rule: str, verdict: Verdict, tmp_path: Path) -> None:
    assert first(judged(tmp_path, [histogram], [histogram], rule)).verdict is verdict


def test_a_floor_that_fails_says_by_how_much(tmp_path: Path) -> None:
    low = [[0, 0, 5039, 4961]] * 20
    one = first(judged(tmp_path, low, low, "acceptance_length>=3.5"))
    assert one.reason == "0.0039 below: measured 3.4961, threshold 3.5000, tolerance 0, n = 20 conversations"
    one = first(judged(tmp_path / "more", BEFORE, BEFORE, "position[1]>=62.5%"))
    assert one.reason == "12 points below: measured 50.00%, threshold 62.50%, tolerance 0, n = 20 conversations"


def test_a_floor_counts_what_the_report_counts(tmp_path: Path) -> None:
    # one conversation fails in the baseline: it is left out of the pairs, not out of the candidate's own figure
    base = run(tmp_path, "base", BEFORE, records=[failed(prompt_id="p20")])
    new = run(tmp_path, "new", [*BEFORE, [0, 19]])
    found = gate.judge(sides.load(base), sides.load(new), read(["acceptance_length>=1.7"]))
    # 10 of 20 and 19 of 19 steps accept: 1 + 29/39 = 1.7436
    assert (first(found).verdict, first(found).n) == (Verdict.PASS, 21)
    assert first(found).candidate == pytest.approx(1 + 29 / 39)


def test_missing_counters_never_pass(tmp_path: Path) -> None:
    base = run(tmp_path, "base", [*BEFORE, [0, 1], [0, 1]])
    new = run(tmp_path, "new", BEFORE, records=[answered(None, prompt_id=f"p{i}") for i in (20, 21)])
    found = gate.judge(sides.load(base), sides.load(new), read(["acceptance_length>=1"]))
    length, coverage, categories, paired = found.rulings
    assert (length.verdict, categories.verdict) == (Verdict.PASS, Verdict.PASS)
    assert (coverage.verdict, paired.verdict) == (Verdict.FAIL, Verdict.INCONCLUSIVE)
    # 20 of 22
    assert coverage.reason == "4.1 points below: measured 90.91%, threshold 95.00%, tolerance 0, n = 22 answers"
    assert "spec-eval report" in found.sentence()


def test_a_category_without_figures_in_the_candidate_fails(tmp_path: Path) -> None:
    base = run(tmp_path, "base", [*BEFORE, [0, 1]], categories=("coding",) * 20 + ("math",))
    new = run(tmp_path, "new", [*BEFORE, [0, 0]], categories=("coding",) * 20 + ("math",))
    left, right = sides.load(base), sides.load(new)
    found = gate.judge(left, right, read(DEFAULT))
    assert found.verdict is Verdict.FAIL
    assert [(one.text, one.reason) for one in found.rulings if one.verdict is Verdict.FAIL] == [
        (CATEGORIES, f"no figure in the candidate for {CELL} / math")
    ]
    # one that neither has is nobody's loss
    assert gate.judge(right, right, read(DEFAULT)).verdict is Verdict.PASS
    named = gate.judge(left, right, read(["acceptance_length[math]:-2%", "acceptance_length[math]>=1"])).rulings[:2]
    assert {one.reason for one in named} == {"no figure in the candidate: no verification step was measured"}
    assert {one.verdict for one in named} == {Verdict.FAIL}


@pytest.mark.parametrize("rule", ["acceptance_length[poetry]:-2%", "acceptance_length[poetry]>=1"])
def test_a_category_that_nobody_has_is_a_slip_in_the_rule(rule: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        judged(tmp_path, BEFORE, BEFORE, "acceptance_length:-2%", rule, categories=("coding", "math"))
    assert str(refused.value) == (
        f"rule {rule!r}: no category and no cell of either run is called 'poetry'; "
        f"name one of the categories 'coding', 'math', or cells '{CELL}'"
    )


def test_a_misspelt_category_is_found_before_settings_are_looked_at(tmp_path: Path) -> None:
    a, b = run(tmp_path, "a", AFTER), run(tmp_path, "b", BEFORE, settings={"temperature": 1.0})
    with pytest.raises(UsageError, match="called 'codng'; name one of the categories 'coding', or"):
        gate.judge(sides.load(a), sides.load(b), read(["acceptance_length[codng]:-2%"]))


@pytest.mark.parametrize("rule", ["acceptance_length[math]:-2%", "acceptance_length[math]>=1"])
def test_a_category_of_one_run_alone_is_for_the_verdict(rule: str, tmp_path: Path) -> None:
    other = Conversation(CELL, "chat", "q0", "math", Tally(2, 1, 2, (1,)), full=True)
    both = sides.load(run(tmp_path, "a", BEFORE))
    more = replace(both, conversations=(*both.conversations, other))
    one = first(gate.judge(more, both, read([rule])))
    assert (one.verdict, one.reason) == (
        Verdict.FAIL,
        "no figure in the candidate: no category and no cell is called 'math'",
    )


def test_a_description_knows_no_category_and_is_refused_by_its_settings(tmp_path: Path) -> None:
    bare = tmp_path / "other.json"
    bare.write_text('{"k": 3}', encoding="utf-8")
    rules = read(["acceptance_length[poetry]:-2%"])
    found = gate.judge(sides.load(bare), sides.load(run(tmp_path, "b", BEFORE)), rules)
    assert found.verdict is Verdict.NOT_COMPARABLE


def test_a_cell_can_be_named_too(tmp_path: Path) -> None:
    one = first(judged(tmp_path, AFTER, BEFORE, f"acceptance_length[{CELL}]:-2%"))
    assert (one.verdict, one.n) == (Verdict.FAIL, 20)


def test_a_rate_without_drafted_counts_never_passes() -> None:
    unknown = tuple(Conversation(CELL, "chat", f"p{i}", "x", Tally(2, 1, None, (1,)), full=True) for i in range(20))
    side = Side("run", {CELL: {}}, {}, unknown, 20, 20)
    change, floor = gate.judge(side, side, read(["acceptance_rate:-3pp", "acceptance_rate>=1%"])).rulings[:2]
    assert (change.verdict, floor.verdict) == (Verdict.FAIL, Verdict.FAIL)
    assert "drafted tokens are not" in change.reason
    assert "drafted tokens are not" in floor.reason


def test_rules_on_categories_share_their_false_alarms(tmp_path: Path) -> None:
    # Ten steps a prompt, all accepted in the baseline. In x five prompts of twenty lose two: AL 2 to 1.95, sd of u
    # 0.0888523 / 1.95, so t = ln(1.95 / 2) / 0.0101887 = -2.484892, and p = 0.01122 with 19 degrees of freedom.
    # In y nothing changes.
    losses = [2, 0, 0, 0] * 5
    base, new = [[0, 10]] * 40, [histogram for n in losses for histogram in ([n, 10 - n], [0, 10])]
    x, y = "acceptance_length[x]:-1%", "acceptance_length[y]:-1%"
    alone = judged(tmp_path / "1", base, new, x, categories=("x", "y"))
    assert (first(alone).verdict, first(alone).n) == (Verdict.FAIL, 20)
    assert first(alone).chance == pytest.approx(0.01122, abs=1e-5)
    # Holm: the smaller of two counts twice, 0.02244; whatever is on the whole run does not join them.
    both = judged(tmp_path / "2", base, new, x, y, "acceptance_length:-50%", categories=("x", "y"))
    assert [one.verdict for one in both.rulings[:3]] == [Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.PASS]
    assert [one.chance for one in both.rulings[:2]] == [pytest.approx(0.02244, abs=2e-5), 1.0]


def test_nothing_is_judged_where_settings_differ(tmp_path: Path) -> None:
    a, b = run(tmp_path, "a", AFTER), run(tmp_path, "b", BEFORE, settings={"temperature": 1.0})
    found = gate.judge(sides.load(a), sides.load(b), read(DEFAULT))
    assert (found.verdict, found.rulings) == (Verdict.NOT_COMPARABLE, ())
    assert found.sentence().startswith("not comparable: temperature 0.0 against 1.0")
    assert gate.judge(sides.load(a), sides.load(b), read(DEFAULT), allow=["temperature"]).verdict is Verdict.FAIL


def test_told_acceptance_is_held_against_its_own_kind_only(tmp_path: Path) -> None:
    real = run(tmp_path, "real", BEFORE)
    told = [
        run(tmp_path, name, BEFORE, synthetic=f"rates of {card}")
        for name, card in (("t1", "x"), ("t2", "x"), ("t3", "y"))
    ]
    one, same, other = (sides.load(path) for path in told)
    assert gate.judge(one, same, read(DEFAULT)).verdict is Verdict.PASS
    assert gate.judge(one, other, read(DEFAULT)).verdict is Verdict.NOT_COMPARABLE
    assert gate.judge(sides.load(real), one, read(DEFAULT)).verdict is Verdict.NOT_COMPARABLE
