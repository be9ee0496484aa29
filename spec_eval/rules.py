"""Rules of a gate, as text: `acceptance_length:-2%`, `position[1]:-3pp`, `acceptance_length[coding]>=3.5`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from spec_eval import toml

Metric = Literal["acceptance_length", "acceptance_rate", "position", "coverage"]
# Of the answers that have usable counters: below it a run is not whole, and no gate passes.
LEAST_COVERAGE = Fraction(95, 100)
COVERAGE = "coverage>=95%"
DEFAULT = ("acceptance_length:-2%", COVERAGE)
_CHANGES = {"acceptance_length": "%", "acceptance_rate": "pp", "position": "pp"}
_METRICS: dict[str, Metric] = {name: name for name in get_args(Metric)}
_RULE = re.compile(r"([^\[\]:>=]+?)(?:\[([^\[\]]+)\])?\s*(:|>=)\s*(\S+)")
_CHANGE = re.compile(r"-(\d+(?:\.\d+)?)(%|pp)", re.ASCII)
_FLOOR = re.compile(r"(\d+(?:\.\d+)?)(%?)", re.ASCII)
_FORM = "write it as acceptance_length:-2%, acceptance_length[coding]:-5%, position[1]:-3pp or acceptance_length>=3.5"


@dataclass(frozen=True, slots=True)
class Rule:
    """One demand on a run.

    place: the category or cell that it is about; null for all of the run. position: 1 to k, of that metric alone.
    relative: whether it is about the change from the baseline. bound: the loss that is allowed, as a positive
    fraction, or the floor. Exact, so that nothing is rounded before comparing.
    """

    text: str
    metric: Metric
    place: str | None
    position: int | None
    relative: bool
    bound: Fraction


def parse(text: str) -> Rule:
    """One rule; ValueError, with the right form, where it is none."""
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"rule {text!r}: {_FORM}")
    name, inside, sign, bound = found.groups()
    metric = _METRICS.get(name)
    if metric is None:
        raise ValueError(f"rule {text!r}: no figure {name!r}{toml.nearest(name, _METRICS)}; {_FORM}")
    position, place = None, inside
    if metric == "position":
        if inside is None or not re.fullmatch(r"[1-9]\d{0,3}", inside, re.ASCII):
            raise ValueError(f"rule {text!r}: a position has a number from 1 up; write it as position[1]{sign}{bound}")
        position, place = int(inside), None
    elif metric == "coverage" and inside is not None:
        raise ValueError(f"rule {text!r}: coverage is of the whole run; write it as {COVERAGE}")
    relative = sign == ":"
    value = _allowance(text, metric, bound) if relative else _floor(text, metric, bound)
    return Rule(text.strip(), metric, place, position, relative, value)


def _allowance(text: str, metric: Metric, bound: str) -> Fraction:
    if metric == "coverage":
        raise ValueError(f"rule {text!r}: coverage has a floor; write it as {COVERAGE}")
    unit = _CHANGES[metric]
    found = _CHANGE.fullmatch(bound)
    if found is None or found[2] != unit or not 0 < Fraction(found[1]) < 100:
        raise ValueError(f"rule {text!r}: an allowed loss is more than 0, as {text.partition(':')[0].strip()}:-2{unit}")
    return Fraction(found[1]) / 100


def _floor(text: str, metric: Metric, bound: str) -> Fraction:
    head = text.partition(">=")[0].strip()
    found = _FLOOR.fullmatch(bound)
    if metric == "acceptance_length":
        if found is None or found[2]:
            raise ValueError(f"rule {text!r}: a length is a number, as {head}>=3.5")
        return Fraction(found[1])
    if found is None or not found[2] or Fraction(found[1]) > 100:
        raise ValueError(f"rule {text!r}: a share is a percentage, as {head}>=60%")
    share = Fraction(found[1]) / 100
    if metric == "coverage" and share < LEAST_COVERAGE:
        raise ValueError(f"rule {text!r}: below 95% nothing passes; write it as {COVERAGE} or higher")
    return share


def read(texts: Iterable[str]) -> tuple[Rule, ...]:
    """Several rules, each once; the floor of the coverage is added where none of them names one."""
    found = tuple(dict.fromkeys(parse(text) for text in texts))
    if any(rule.metric == "coverage" for rule in found):
        return found
    return (*found, parse(COVERAGE))
