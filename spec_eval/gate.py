"""A run against its baseline: is there a loss, is there none worth speaking of, or can these data not tell?

`docs/design/gate.md` gives the rule and its power. Closed form, no random numbers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from math import ceil, expm1, log1p

from spec_eval import stats
from spec_eval.compare import Comparison, compare
from spec_eval.errors import UsageError
from spec_eval.pairs import Conversation, Pairs, Side, Tally, pair, total, within
from spec_eval.rules import Rule
from spec_eval.stats import FEWEST_FOR_INTERVAL, Change

CONFIDENCE = 0.98  # of each one-sided bound
# 2.05 standard errors to the bound, and 0.84 more to be beyond it in 8 of 10 runs.
FOUND_IN_8_OF_10 = 2.9
# What is demanded whatever the rules are.
CATEGORIES = "figures in every category"
PAIRED = "pairs of 95% of conversations"


class Verdict(StrEnum):
    """Of a rule, and of the gate."""

    PASS = "pass"  # noqa: S105 # no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Ruling:
    """What became of one rule.

    reason: one clause for a person. baseline, candidate: the figure of either; null where there is none.
    change, low, high: relative for the acceptance length, else by difference; the bounds are one-sided, 98% each.
    n: conversations. chance: one-sided p-value of a loss, Holm-adjusted over the rules on categories.
    shown_from: the smallest measured loss that these data would have shown; found_from: the smallest true one that
    they show in 8 of 10 runs; pairs_needed: with which an unchanged drafter would pass in 8 of 10.
    """

    text: str
    verdict: Verdict
    reason: str
    n: int = 0
    baseline: float | None = None
    candidate: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    shown_from: float | None = None
    found_from: float | None = None
    pairs_needed: int | None = None


@dataclass(frozen=True)
class Gate:
    """rulings: one a rule, then what every gate demands; empty where the two may not be compared."""

    comparison: Comparison
    rulings: tuple[Ruling, ...]

    @property
    def verdict(self) -> Verdict:
        """Fail where any rule fails, else inconclusive where any is; pass only where all do."""
        if self.comparison.overall is None:
            return Verdict.NOT_COMPARABLE
        found = {ruling.verdict for ruling in self.rulings}
        return next((v for v in (Verdict.FAIL, Verdict.INCONCLUSIVE) if v in found), Verdict.PASS)

    def sentence(self) -> str:
        """The verdict, why, and what to do."""
        verdict = self.verdict
        if verdict is Verdict.NOT_COMPARABLE:
            return (
                f"not comparable: {self.comparison.comparability.sentence()}; "
                "measure again at the baseline's settings, or let a setting differ with --allow KEY"
            )
        found = [one for one in self.rulings if one.verdict is verdict]
        first = f"{verdict}: {found[0].text}: {found[0].reason}"
        if verdict is Verdict.PASS:
            return f"{first}; {len(found)} of {len(found)} rules hold"
        also = f"; also {', '.join(one.text for one in found[1:])}" if found[1:] else ""
        return f"{first}{also}; {self._remedy(found)}"

    def _remedy(self, found: Sequence[Ruling]) -> str:
        if self.verdict is Verdict.INCONCLUSIVE:
            few = any(one.pairs_needed is not None for one in found)
            return "measure more prompts, or allow more" if few else "measure all of the baseline's prompts, and enough"
        if any(one.candidate is not None and not one.text.startswith("coverage") for one in found):
            return "look at the drafter, or make a new baseline if the loss is meant"
        return "see `spec-eval report` of the run for what is missing"


def judge(baseline: Side, candidate: Side, rules: Sequence[Rule], *, allow: Iterable[str] = ()) -> Gate:
    """Settings first, then every rule; UsageError for a rule on a category that neither of the two has."""
    _require_places(rules, baseline.conversations, candidate.conversations)
    comparison = compare(baseline, candidate, allow=allow)
    if comparison.overall is None:
        return Gate(comparison, ())
    a, b = baseline.conversations, candidate.conversations
    rulings = _holm([_change(rule, a, b) if rule.relative else _floor(rule, a, candidate) for rule in rules], rules)
    return Gate(comparison, (*rulings, _categories(a, b), _paired(pair(a, b))))


def _require_places(rules: Sequence[Rule], a: Sequence[Conversation], b: Sequence[Conversation]) -> None:
    """A name that neither has is a slip in the rule; one that a single run lacks is for the verdict.

    A side without conversations cannot tell, and is refused by its settings.
    """
    if not a or not b:
        return
    categories = list(dict.fromkeys(one.category for one in (*a, *b)))
    cells = list(dict.fromkeys(one.cell_id for one in (*a, *b)))
    for rule in rules:
        if rule.place is not None and rule.place not in (*categories, *cells):
            raise UsageError(
                f"rule {rule.text!r}: no category and no cell of either run is called {rule.place!r}; "
                f"name one of the categories {', '.join(map(repr, categories))}, or cells {', '.join(map(repr, cells))}"
            )


def _change(rule: Rule, a: Sequence[Conversation], b: Sequence[Conversation]) -> Ruling:
    """The change that the pairs show; its verdict needs the other rules' chances too, so it is left to `_holm`."""
    left, right = within(a, b, rule.place)
    for side, name in ((right, "candidate"), (left, "baseline")):
        if not any(one.tally.steps for one in side):
            return Ruling(rule.text, Verdict.FAIL, f"no figure in the {name}: {_nothing(rule, side)}")
    pairs = pair(left, right)
    found = _of_pairs(rule, pairs)
    before, after = (_figure(rule, total(side)) for side in (pairs.before, pairs.after))
    ruling = Ruling(rule.text, Verdict.INCONCLUSIVE, "", baseline=_number(before), candidate=_number(after))
    if not pairs.enough:
        return replace(ruling, reason=_too_few(pairs))
    if found is None:
        return replace(ruling, verdict=Verdict.FAIL, reason=f"no figure to compare: {_nothing(rule, b)}")
    show = expm1 if rule.metric == "acceptance_length" else float
    ruling = replace(ruling, n=found.n, change=show(found.value))
    if found.n < FEWEST_FOR_INTERVAL or found.se is None:
        return replace(ruling, reason=f"{found.n} pairs are too few for a verdict, {FEWEST_FOR_INTERVAL} are the least")
    low, high = found.low(CONFIDENCE), found.high(CONFIDENCE)
    assert low is not None
    assert high is not None
    return replace(
        ruling,
        low=show(low),
        high=show(high),
        chance=found.chance(),
        shown_from=abs(show(found.value - high)),
        found_from=abs(show(-FOUND_IN_8_OF_10 * found.se)),
        pairs_needed=ceil(found.n * (FOUND_IN_8_OF_10 * found.se / _allowed(rule)) ** 2),
    )


def _holm(rulings: Sequence[Ruling], rules: Sequence[Rule]) -> list[Ruling]:
    """Verdicts on changes: those on categories share the chance of a false alarm that the others have alone."""
    chosen = [
        i for i, rule in enumerate(rules) if rule.relative and rule.place is not None and rulings[i].chance is not None
    ]
    chances = stats.holm([rulings[i].chance or 0.0 for i in chosen])
    adjusted = list(rulings)
    for i, chance in zip(chosen, chances, strict=True):
        adjusted[i] = replace(adjusted[i], chance=chance)
    return [_verdict(rule, one) if one.chance is not None else one for rule, one in zip(rules, adjusted, strict=True)]


def _verdict(rule: Rule, one: Ruling) -> Ruling:
    """`decide`, in words."""
    assert one.change is not None
    assert one.low is not None
    assert one.chance is not None
    unit = "%" if rule.metric == "acceptance_length" else "pp"

    def points(value: float | None) -> str:
        return f"{100 * (value or 0.0):.1f}{unit}"

    allowed = f"{float(100 * rule.bound):g}{unit} allowed"
    bounds = f"{_signed(one.change, unit)}, 98% bounds [{_signed(one.low, unit)}, {_signed(one.high, unit)}]"
    told = f"{bounds}, {allowed}, {one.n} pairs"
    verdict = decide(one.change, one.low, one.chance, float(rule.bound))
    if verdict is Verdict.FAIL:
        return replace(one, verdict=verdict, reason=f"a loss is shown: {told}")
    if verdict is Verdict.PASS:
        return replace(one, verdict=verdict, reason=told)
    shown = one.chance < 1 - CONFIDENCE
    what = "a loss is shown, but not that it is more than allowed" if shown else "no loss shown, and none ruled out"
    if not shown and one.high is not None and one.high < 0:
        what = "no loss shown, as several rules on categories share the chance of a false alarm"
    power = (
        f"these pairs would have shown a measured loss from {points(one.shown_from)}, and show a true one of "
        f"{points(one.found_from)} in 8 of 10 runs; with about {one.pairs_needed} pairs an unchanged drafter passes in "
        "8 of 10"
    )
    return replace(one, verdict=Verdict.INCONCLUSIVE, reason=f"{what}: {told}; {power}")


def decide(change: float, low: float, chance: float, allowed: float) -> Verdict:
    """The rule. `allowed` is the loss that may be, above 0; change and low are on its scale, and so below 0 for a loss.

    Fail: a loss is shown, and the estimate is beyond what is allowed. Pass: the bound leaves no such loss possible.
    """
    if chance < 1 - CONFIDENCE and change < -allowed:
        return Verdict.FAIL
    return Verdict.PASS if low > -allowed else Verdict.INCONCLUSIVE


def _signed(value: float | None, unit: str) -> str:
    return f"{100 * (value or 0.0):+.1f}{unit}"


def _allowed(rule: Rule) -> float:
    return -log1p(-float(rule.bound)) if rule.metric == "acceptance_length" else float(rule.bound)


def _of_pairs(rule: Rule, pairs: Pairs) -> Change | None:
    if rule.metric == "acceptance_length":
        return pairs.acceptance_length()
    if rule.metric == "acceptance_rate":
        return pairs.acceptance_rate()
    assert rule.position is not None
    return pairs.position(rule.position) if rule.position <= pairs.k else None


def _figure(rule: Rule, tally: Tally) -> Fraction | None:
    """Exactly, from integers; null where there is nothing to divide, or no such position."""
    if not tally.steps:
        return None
    if rule.metric == "acceptance_length":
        return Fraction(tally.steps + tally.accepted, tally.steps)
    if rule.metric == "acceptance_rate":
        return Fraction(tally.accepted, tally.drafted) if tally.drafted else None
    reached = tally.reached or ()
    return (
        Fraction(reached[rule.position - 1], tally.steps) if rule.position and rule.position <= len(reached) else None
    )


def _floor(rule: Rule, a: Sequence[Conversation], candidate: Side) -> Ruling:
    """Equal to the floor passes; integers are compared exactly, so there is no tolerance."""
    if rule.metric == "coverage":
        found = Fraction(candidate.measured, candidate.ok) if candidate.ok else None
        n, unit = candidate.ok, "answers"
        side: Sequence[Conversation] = candidate.conversations
    else:
        _, side = within(a, candidate.conversations, rule.place)
        found = _figure(rule, total(one.tally for one in side))
        n, unit = sum(one.tally.steps > 0 for one in side), "conversations"
    if found is None:
        return Ruling(rule.text, Verdict.FAIL, f"no figure in the candidate: {_nothing(rule, side)}", n=n)
    share = rule.metric != "acceptance_length"

    def show(value: Fraction) -> str:
        return f"{float(100 * value):.2f}%" if share else f"{float(value):.4f}"

    told = f"measured {show(found)}, threshold {show(rule.bound)}, tolerance 0, n = {n} {unit}"
    if found >= rule.bound:
        return Ruling(rule.text, Verdict.PASS, told, n=n, candidate=float(found))
    short = float(rule.bound - found)
    missing = f"{100 * short:.2g} points" if share else f"{short:.2g}"
    return Ruling(rule.text, Verdict.FAIL, f"{missing} below: {told}", n=n, candidate=float(found))


def _categories(a: Sequence[Conversation], b: Sequence[Conversation]) -> Ruling:
    """A category that has figures in the baseline and none in the candidate may hide any loss."""
    steps = {one.key: one.tally.steps for one in b}
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    for one in a:
        name = f"{one.cell_id} / {one.category}"
        before[name] = before.get(name, 0) + one.tally.steps
        after[name] = after.get(name, 0) + steps.get(one.key, 0)
    missing = [name for name, count in before.items() if count and not after[name]]
    if missing:
        return Ruling(CATEGORIES, Verdict.FAIL, f"no figure in the candidate for {', '.join(missing)}", n=len(before))
    there = sum(map(bool, before.values()))
    return Ruling(CATEGORIES, Verdict.PASS, f"{there} of {len(before)} have, as in the baseline", n=len(before))


def _nothing(rule: Rule, side: Sequence[Conversation]) -> str:
    """Why."""
    if rule.place is not None and not side:
        return f"no category and no cell is called {rule.place!r}"
    if not any(one.tally.steps for one in side):
        return "no verification step was measured"
    if rule.metric == "position":
        return f"position {rule.position} is not reported"
    return f"{rule.metric} is not known, as drafted tokens are not"


def _paired(pairs: Pairs) -> Ruling:
    """Nothing passes where too much is missing: it is seldom missing at random."""
    if not pairs.enough:
        return Ruling(PAIRED, Verdict.INCONCLUSIVE, _too_few(pairs), n=pairs.used)
    return Ruling(PAIRED, Verdict.PASS, f"{pairs.used} of {pairs.used + pairs.left_out}", n=pairs.used)


def _too_few(pairs: Pairs) -> str:
    return f"only {pairs.used} of {pairs.used + pairs.left_out} conversations were measured whole in both"


def _number(figure: Fraction | None) -> float | None:
    return None if figure is None else float(figure)
