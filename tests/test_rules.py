from fractions import Fraction
from pathlib import Path

import pytest

from spec_eval.errors import UsageError
from spec_eval.rules import DEFAULT, Rule, parse, read
from spec_eval.suite import find
from tests.llamacpp_server import write_suite


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("acceptance_length:-2%", ("acceptance_length", None, None, True, Fraction(2, 100))),
        ("acceptance_length[coding]:-5%", ("acceptance_length", "coding", None, True, Fraction(5, 100))),
        (
            "acceptance_length[basic t=0 / MATH]: -0.5%",
            ("acceptance_length", "basic t=0 / MATH", None, True, Fraction(5, 1000)),
        ),
        ("position[1]:-3pp", ("position", None, 1, True, Fraction(3, 100))),
        ("acceptance_rate:-3pp", ("acceptance_rate", None, None, True, Fraction(3, 100))),
        ("acceptance_length>=3.5", ("acceptance_length", None, None, False, Fraction(7, 2))),
        ("acceptance_length[coding]>=3", ("acceptance_length", "coding", None, False, Fraction(3))),
        ("position[12] >= 60%", ("position", None, 12, False, Fraction(60, 100))),
        ("coverage>=99.5%", ("coverage", None, None, False, Fraction(995, 1000))),
    ],
)
def test_rules_that_are(text: str, expected: tuple[object, ...]) -> None:
    rule = parse(f" {text} ")
    assert rule == Rule(text, *expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "write it as acceptance_length:-2%"),
        ("acceptance_length", "write it as acceptance_length:-2%"),
        ("acceptance_length=3.5", "write it as acceptance_length:-2%"),
        ("acceptance_length>3.5", "write it as acceptance_length:-2%"),
        ("acceptance_lenght:-2%", "did you mean 'acceptance_length'"),
        ("acceptance_length:2%", "as acceptance_length:-2%"),
        ("acceptance_length:-2", "as acceptance_length:-2%"),
        ("acceptance_length:-2pp", "as acceptance_length:-2%"),
        ("acceptance_length:-0%", "more than 0"),
        ("acceptance_length:-100%", "more than 0"),
        ("acceptance_length[coding]:2%", "as acceptance_length[coding]:-2%"),
        ("acceptance_length>=350%", "as acceptance_length>=3.5"),
        ("acceptance_length>=nan", "as acceptance_length>=3.5"),
        ("acceptance_rate:-3%", "as acceptance_rate:-2pp"),
        ("acceptance_rate>=0.6", "as acceptance_rate>=60%"),
        ("position:-3pp", "as position[1]:-3pp"),
        ("position[0]:-3pp", "as position[1]:-3pp"),
        ("position[coding]>=60%", "as position[1]>=60%"),
        ("position[1]>=160%", "as position[1]>=60%"),
        ("coverage:-3pp", "as coverage>=95%"),
        ("coverage>=94.9%", "below 95% nothing passes"),
        ("coverage[coding]>=95%", "as coverage>=95%"),
        ("acceptance_length>=３", "as acceptance_length>=3.5"),
    ],
)
def test_what_is_no_rule_is_told_the_right_form(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match="rule") as refused:
        parse(text)
    assert hint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_coverage_is_demanded_in_any_case() -> None:
    assert [rule.text for rule in read(DEFAULT)] == ["acceptance_length:-2%", "coverage>=95%"]
    assert [rule.text for rule in read(["position[1]:-3pp"])] == ["position[1]:-3pp", "coverage>=95%"]
    assert [rule.text for rule in read(["coverage>=99%", "coverage>=99%"])] == ["coverage>=99%"]


def test_a_suite_holds_its_rules_and_refuses_what_is_none(tmp_path: Path) -> None:
    path = write_suite(tmp_path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('title = "Pair"', 'title = "Pair"\ngate = ["acceptance_length:-3%"]'))
    assert find(str(path)).simple.gate == ("acceptance_length:-3%",)
    path.write_text(text.replace('title = "Pair"', 'title = "Pair"\ngate = ["acceptance_length:3%"]'))
    with pytest.raises(UsageError, match=r"pair\.toml: gate\.0: .*as acceptance_length:-2%"):
        find(str(path))
