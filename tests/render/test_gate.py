"""What a gate prints, whole."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spec_eval import gate, sides
from spec_eval.render import gate as rendered
from spec_eval.rules import read
from tests.sides import AFTER, BEFORE, run


@pytest.fixture
def found(tmp_path: Path) -> gate.Gate:
    """A loss that is shown, a floor that is met, and a rule that twenty prompts cannot judge."""
    a, b = run(tmp_path, "base", AFTER), run(tmp_path, "new", BEFORE)
    rules = read(["acceptance_length:-2%", "position[1]:-60pp", "acceptance_length>=1.5"])
    return gate.judge(sides.load(a), sides.load(b), rules)


def test_text_ends_with_one_sentence(found: gate.Gate) -> None:
    lines = rendered.text(found, "exit3").splitlines()
    assert lines[:3] == [
        "baseline (A): base",
        "candidate (B): new",
        "method: closed form, no seed; one-sided 98% bounds over pairs of conversations",
    ]
    table = [line.split() for line in lines if line.startswith(("acceptance_length", "position", "coverage"))]
    # by hand in test_gate
    assert table == [
        ["acceptance_length:-2%", "fail", "2.0000", "1.5000", "-25.00%", "[-36.64%,", "-11.23%]", "20"],
        [
            "position[1]:-60pp",
            "inconclusive",
            "100.00%",
            "50.00%",
            "-50.00",
            "pp",
            "[-75.29",
            "pp,",
            "-24.71",
            "pp]",
            "20",
        ],
        ["acceptance_length>=1.5", "pass", "—", "1.5000", "—", "—", "20"],
        ["coverage>=95%", "pass", "—", "100.00%", "—", "—", "20"],
    ]
    # categories are always shown
    assert any(line.startswith("chat.t0.c1 / coding") for line in lines)
    assert lines[-1] == (
        "fail: acceptance_length:-2%: a loss is shown: -25.0%, 98% bounds [-36.6%, -11.2%], 2% allowed, 20 pairs; "
        "look at the drafter, or make a new baseline if the loss is meant"
    )


def test_markdown_has_the_verdict_in_its_heading(found: gate.Gate) -> None:
    lines = rendered.render(found, "exit3").splitlines()
    assert lines[0] == "## gate: fail"
    assert r"| acceptance\_length:-2% | fail | 2.0000 | 1.5000 | -25.00% | [-36.64%, -11.23%] | 20 |" in lines
    assert lines[-1].startswith(r"fail: acceptance\_length:-2%: a loss is shown")


def test_json_has_fractions_and_nulls(found: gate.Gate) -> None:
    document = json.loads(json.dumps(rendered.document(found, "exit3"), allow_nan=False))
    assert (document["schema_version"], document["verdict"]) == (1, "fail")
    assert document["sentence"].startswith("fail: acceptance_length:-2%")
    length, position, floor = document["rules"][:3]
    assert (length["rule"], length["verdict"], length["baseline"], length["candidate"]) == (
        "acceptance_length:-2%",
        "fail",
        2.0,
        1.5,
    )
    # by hand in test_gate
    assert length["change"] == {
        "value": pytest.approx(-0.25),
        "low": pytest.approx(-0.3664, abs=5e-5),
        "high": pytest.approx(-0.1123, abs=5e-5),
    }
    assert position["change"]["value"] == pytest.approx(-0.5)
    assert (floor["verdict"], floor["change"], floor["chance"]) == ("pass", None, None)
    assert document["comparison"]["comparable"] is True


@pytest.mark.parametrize(
    ("option", "tag", "counts"),
    [("exit3", "error", "1 1 0"), ("fail", "failure", "2 0 0"), ("pass", "skipped", "1 0 1")],
)
def test_junit_has_a_case_a_rule(option: rendered.OnInconclusive, tag: str, counts: str, found: gate.Gate) -> None:
    root = ElementTree.fromstring(rendered.junit(found, option))
    (suite,) = root.findall("testsuite")
    assert (root.tag, suite.get("tests")) == ("testsuites", "6")
    assert " ".join(str(suite.get(name)) for name in ("failures", "errors", "skipped")) == counts
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases[:4]] == [
        "acceptance_length:-2%",
        "position[1]:-60pp",
        "acceptance_length>=1.5",
        "coverage>=95%",
    ]
    assert [child.tag for case in cases for child in case] == ["failure", tag, *["system-out"] * 4]
    assert {case.get("classname") for case in cases} == {"spec-eval.gate"}
    assert all(case.get("time") is None for case in cases)


def test_junit_stays_valid_whatever_a_name_holds(tmp_path: Path) -> None:
    a = run(tmp_path, "base", BEFORE, categories=('a<b>"&\x00\x1b\ufffe',))
    b = run(tmp_path, "new", [[0, 0]] * 20, categories=('a<b>"&\x00\x1b\ufffe',))
    text = rendered.junit(gate.judge(sides.load(a), sides.load(b), read([])), "exit3")
    messages = [str(e.get("message")) for e in ElementTree.fromstring(text).iter("failure")]
    assert any('a<b>"&' in message for message in messages)


def test_no_comparison_is_an_error_of_one_case(tmp_path: Path) -> None:
    a, b = run(tmp_path, "base", BEFORE), run(tmp_path, "new", BEFORE, settings={"k": 9})
    found = gate.judge(sides.load(a), sides.load(b), read([]))
    (case,) = ElementTree.fromstring(rendered.junit(found, "pass")).iter("testcase")
    assert (case.get("name"), [child.tag for child in case]) == ("comparable", ["error"])
    lines = rendered.text(found, "exit3").splitlines()
    assert "differs: k 3 against 9 (chat.t0.c1)" in lines
    assert lines[-1].startswith("not comparable: k 3 against 9 (chat.t0.c1); measure again")
    document = rendered.document(found, "exit3")
    assert (document["verdict"], document["rules"], document["comparison"]["comparable"]) == (
        "not comparable",
        [],
        False,
    )


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    a, b = run(tmp_path, "base", AFTER), run(tmp_path, "new", BEFORE)
    shown = []
    for _ in range(2):
        found = gate.judge(sides.load(a), sides.load(b), read([]))
        forms = [form(found, "exit3") for form in (rendered.text, rendered.render, rendered.junit)]
        shown.append([*forms, json.dumps(rendered.document(found, "exit3"))])
    assert shown[0] == shown[1]
