import pytest

from spec_eval.records import RequestRecord
from spec_eval.signs import Silence, loops, silence
from tests.factories import answered, from_histogram, from_steps

PROSE = (
    "The harbour froze early that year, so the pilots walked out to the first marker and counted the boats that "
    "would have to wait. Nobody spoke of spring. By noon the wind had turned, and the ice began to sing."
)


@pytest.mark.parametrize(
    "text",
    [
        PROSE + " and so on" * 20,
        "x" * 120,
        PROSE + "\n" * 130,
        PROSE + ("def f(x):\n    return x + 1\n\n" * 6),
        PROSE[:150] * 4,
        "start " + "ab" * 60 + "a",  # cut in the middle of a round
    ],
)
def test_an_answer_that_ends_in_the_same_stretch_four_times_loops(text: str) -> None:
    assert loops(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        PROSE,
        "no, no, no, no",  # too short to be a loop
        "x" * 119,
        PROSE[:150] * 3,
        "and so on " * 20 + PROSE + PROSE[::-1],  # it found its way out again
        "".join(f"{i}. item\n" for i in range(60)),  # a list counts on
    ],
)
def test_other_answers_do_not(text: str) -> None:
    assert not loops(text)


def long_ones(counters_above: tuple[int, ...], *, prompts: int = 5) -> list[RequestRecord]:
    """Ten prompts of 100 to 1,000 tokens that accept, and longer ones with the given histogram."""
    short = [answered(from_histogram((20, 10, 10)), prompt_id=f"s{i}", prompt_tokens=100 * (i + 1)) for i in range(10)]
    above = [
        answered(from_histogram(counters_above), prompt_id=f"l{i}", prompt_tokens=9000 + i) for i in range(prompts)
    ]
    return [*above, *short]


def test_prompts_beyond_the_drafters_context_accept_nothing() -> None:
    # Half of the other steps accept nothing: 200 such steps in a row are no chance.
    assert silence(long_ones((40, 0, 0))) == Silence(prompt_tokens=9000, prompts=5, answers=0)


def test_one_accepted_draft_breaks_the_silence() -> None:
    assert silence(long_ones((39, 1, 0))) is None


def test_two_silent_prompts_or_few_steps_may_be_chance() -> None:
    assert silence(long_ones((40, 0, 0), prompts=2)) is None
    assert silence(long_ones((3, 0, 0))) is None  # 15 steps at odds of 1/2


def test_silent_prompts_of_about_one_length_are_not_blamed_on_length() -> None:
    records = [answered(from_histogram((20, 10, 10)), prompt_id=f"s{i}", prompt_tokens=100) for i in range(10)]
    records += [answered(from_histogram((40, 0, 0)), prompt_id=f"l{i}", prompt_tokens=120) for i in range(5)]
    assert silence(records) is None


def test_an_answer_may_go_silent_half_way() -> None:
    # 40 of 104 steps accept; then 64 do not, at odds of 64/104 each: 0.615 ** 64 is about 3e-14.
    counters = from_steps([(2, 1)] * 40 + [(2, 0)] * 64, k=2)
    assert silence([answered(counters)]) == Silence(prompt_tokens=None, prompts=0, answers=1)


def test_a_drafter_that_is_mostly_refused_is_not_silent() -> None:
    # 9 of 10 steps accept nothing: 64 more at the end are within chance (0.9 ** 64 is about 1e-3).
    counters = from_steps([*[(2, 1), *[(2, 0)] * 9] * 20, *[(2, 0)] * 64], k=2)
    assert silence([answered(counters)]) is None
    assert silence([answered(from_steps([(2, 1)] * 40 + [(2, 0)] * 63, k=2))]) is None


def test_nothing_is_said_where_everything_or_nothing_is_accepted() -> None:
    assert silence([]) is None
    for histogram in ((50, 0), (0, 50)):
        records = [answered(from_histogram(histogram), prompt_id=f"p{i}", prompt_tokens=i * 1000) for i in range(9)]
        assert silence(records) is None
