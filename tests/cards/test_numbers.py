from fractions import Fraction

import pytest

from spec_eval.cards.numbers import plain, printed, read_cell


@pytest.mark.parametrize(
    ("text", "percent", "low", "high"),
    [
        # Half a unit of the last digit to either side, worked out by hand.
        ("80.58%", True, Fraction(80575, 100000), Fraction(80585, 100000)),
        ("80.58", True, Fraction(80575, 100000), Fraction(80585, 100000)),
        ("0.8058", False, Fraction(80575, 100000), Fraction(80585, 100000)),
        ("0.81", False, Fraction(805, 1000), Fraction(815, 1000)),
        (".81", False, Fraction(805, 1000), Fraction(815, 1000)),
        ("81%", True, Fraction(805, 1000), Fraction(815, 1000)),
        ("4.7400", False, Fraction(473995, 100000), Fraction(474005, 100000)),
        ("5", False, Fraction(9, 2), Fraction(11, 2)),
        ("−0.1", False, Fraction(-15, 100), Fraction(-5, 100)),
    ],
)
def test_printed_digits_leave_an_interval(text: str, percent: bool, low: Fraction, high: Fraction) -> None:
    figure = printed(read_cell(text), percent=percent)
    assert figure is not None
    assert (figure.low, figure.high) == (low, high)


@pytest.mark.parametrize("text", ["", "-", "–", "—", "---", "n/a", "N/A", "na", "None", "…", "  "])
def test_nothing_is_no_data_and_no_trouble(text: str) -> None:
    cell = read_cell(text)
    assert (cell.number, cell.trouble) == (None, None)


@pytest.mark.parametrize("text", ["NaN", "inf", "3.10x", "~3.1", "3.1 ± 0.1", "1e3", "3.1²", "1 234", "٣", "9" * 50])
def test_other_text_is_not_read(text: str) -> None:
    cell = read_cell(text)
    assert cell.number is None
    assert cell.trouble


@pytest.mark.parametrize("text", ["3,10", "1,234.5", "80,58%", "1.234,5"])
def test_a_comma_is_refused_by_name(text: str) -> None:
    cell = read_cell(text)
    assert cell.number is None
    assert "comma" in str(cell.trouble)


@pytest.mark.parametrize("text", ["3.10*", "3.10 †", "3.10[^2]", "$3.10$"])
def test_marks_of_a_footnote_and_of_formulas_are_passed_over(text: str) -> None:
    assert str(read_cell(text).number) == "3.10"


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("**3.10**", "3.10"),
        ("`3.10`", "3.10"),
        ("_3.10_", "3.10"),
        ("<b>3.10</b>", "3.10"),
        ("80.0\\%", "80.0%"),
        ("80&#37;", "80%"),
        ("3.10&nbsp;", "3.10"),
        ("[GSM8K](https://example.org)", "GSM8K"),
        # A raised figure is no digit, so it stays visible and the cell is not read.
        ("3.10<sup>1</sup>", "3.10<sup>1</sup>"),
        ("~~3.10~~", "~~3.10~~"),
    ],
)
def test_markup_is_taken_off(markdown: str, shown: str) -> None:
    assert plain(markdown) == shown
