"""Results of `vllm bench serve`: one point an object, several where runs were appended to one file.

The tool scrapes the server's totals before and after, so a point covers all prompts and all other traffic. Its rate
is in percent, its positions are fractions. Where the fields are missing nothing was measured, which is not an AL of 1.
"""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from spec_eval.errors import UsageError
from spec_eval.importers import answers
from spec_eval.importers.answers import Imported
from spec_eval.prompts import rows
from spec_eval.records import MOST_DRAFTS, is_count
from spec_eval.store import Cell, Point
from spec_eval.suite import Sampling

_PREFIX = "spec_decode_"
_STEPS, _DRAFTED, _ACCEPTED = (f"{_PREFIX}{name}" for name in ("num_drafts", "draft_tokens", "accepted_tokens"))
_LENGTH, _RATE = (f"{_PREFIX}acceptance_{name}" for name in ("length", "rate"))
_POSITIONS = f"{_PREFIX}per_position_acceptance_rates"
_LOAD = (
    *(f"{kind}_{name}_ms" for name in ("ttft", "tpot", "itl") for kind in ("mean", "median")),
    *("output_throughput", "total_token_throughput", "request_throughput", "duration"),
)
_WANTED = "give the result file of `vllm bench serve --save-result`"
NO_METRICS = "no speculation metrics"
ZERO_DRAFTS = "zero drafts"
# What may lie between a ratio and the double that a tool computed for it.
_DOUBLE = Fraction(1, 10**9)
_LARGEST_EXPONENT = 100


class _NoNumber:
    """Stands for NaN and infinities, which are no JSON, until their field is known."""

    def __init__(self, word: str) -> None:
        self.word = word


def read(path: Path, *, k: int | None = None, nominal_drafts: bool = False) -> Imported:
    """Every object in `path`; UsageError where it holds none, or something else.

    nominal_drafts: the server verified fewer drafts than it counted, so `drafted` is not kept.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file; {_WANTED}")
    cells: list[Cell] = []
    points: dict[str, Point] = {}
    notes: list[str] = []
    models = set()
    digest = rows.sha256(path)
    for number, found in enumerate(_objects(path, notes), 1):
        missing: list[str] = []
        row = _without_nan(found, missing)
        where = f"{path}: object {number}"
        concurrency = _count(row, "max_concurrency") or None
        name = f"c={concurrency}" if concurrency else f"rate {row.get('request_rate', 'not told')}"
        cell_id = name if name not in points else f"{name}, point {number}"
        point = _point(row, where, k, missing)
        points[cell_id] = point.model_copy(update={"drafted": None}) if nominal_drafts else point
        cells.append(_cell(cell_id, path, digest, concurrency, points[cell_id].planned))
        notes += [f"{path.name}: {cell_id}: {text}: read as missing" for text in missing]
        models.add(model if isinstance(model := row.get("model_id"), str) else None)
    if not cells:
        raise UsageError(f"{path}: nothing in it; {_WANTED}")
    model = models.pop() if len(models) == 1 else None
    return Imported(
        cells=tuple(cells),
        records=(),
        set_aside=tuple(notes),
        points=points,
        model=model,
        tool="vllm bench serve",
    )


def _objects(path: Path, notes: list[str]) -> Iterator[dict[str, Any]]:
    """One after another, with white space or nothing in between; floats as they are printed.

    `notes` is told of one that is torn, which only the last can be: nothing can be read behind it. UsageError where
    there is something else than a result, or a comma between two.
    """
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8; {_WANTED}") from error
    decoder = json.JSONDecoder(parse_float=Decimal, parse_constant=_NoNumber)
    number = 0
    while text:
        number += 1
        try:
            found, end = decoder.raw_decode(text)
        except (ValueError, RecursionError) as error:
            if number == 1:
                raise UsageError(f"{path}: not JSON ({error}); {_WANTED}") from error
            if text.startswith(","):
                raise UsageError(
                    f"{path}: a comma behind object {number - 1}; write results one after another, without commas"
                ) from error
            notes.append(f"{path.name}: object {number} is torn ({error}): set aside with all that follows it")
            return
        if isinstance(found, list):
            raise UsageError(f"{path}: object {number} is a list; write results one after another, without brackets")
        if not isinstance(found, dict) or not {"completed", "num_prompts"} & found.keys():
            raise UsageError(f"{path}: object {number} is no result of `vllm bench serve`: it counts no requests")
        yield found
        text = text[end:].lstrip()


def _without_nan(found: Mapping[str, Any], missing: list[str]) -> dict[str, Any]:
    """Its fields with null for what is no number, also within a list; `missing` gets the name of each."""
    row = {}
    for name, value in found.items():
        values = value if isinstance(value, list) else [value]
        places = [f"{name}[{i}]" if isinstance(value, list) else name for i in range(len(values))]
        missing += [f"{p} is {v.word}" for p, v in zip(places, values, strict=True) if isinstance(v, _NoNumber)]
        clean = [None if isinstance(v, _NoNumber) else v for v in values]
        row[name] = clean if isinstance(value, list) else clean[0]
    return row


def _cell(cell_id: str, path: Path, digest: str, concurrency: int | None, planned: int) -> Cell:
    prompts = answers.prompt_ref(path.name, {path.name: digest}, ()).model_copy(update={"rows": planned})
    return Cell(
        cell_id=cell_id,
        dataset=path.stem,
        title=cell_id,
        rows="cell",
        sampling=Sampling(),
        concurrency=concurrency,
        repeats=1,
        prompts=prompts,
    )


def _point(row: Mapping[str, Any], where: str, k: int | None, missing: list[str]) -> Point:
    planned, ok, failed = _requests(row, where)
    load = {name: _load(row, name, missing) for name in _LOAD if name in row}
    told: dict[str, Any] = {"planned": planned, "ok": ok, "failed": failed, "load": load, "missing": tuple(missing)}
    if not any(name.startswith(_PREFIX) for name in row):
        return Point(**told, no_figure=NO_METRICS)
    counts = [_count(row, name) for name in (_STEPS, _DRAFTED, _ACCEPTED)]
    absent = [name for name, n in zip((_STEPS, _DRAFTED, _ACCEPTED), counts, strict=True) if n is None]
    if absent:
        return Point(**told, no_figure=f"no count in {', '.join(absent)}", broken=True)
    steps, drafted, accepted = (n or 0 for n in counts)
    if not steps:
        return Point(**told, no_figure=ZERO_DRAFTS)
    shares = _shares(row.get(_POSITIONS))
    if breach := _breach(row, steps, drafted, accepted, shares, k):
        return Point(**told, no_figure=breach, broken=True)
    positions = tuple(map(float, shares)) if shares else None
    if positions and k:
        positions += (0.0,) * (k - len(positions))
    return Point(**told, steps=steps, drafted=drafted, accepted=accepted, positions=positions)


def _requests(row: Mapping[str, Any], where: str) -> tuple[int, int, int]:
    """(planned, ok, failed); older files count no failures, and what did not complete has failed."""
    completed, failed, prompts = (_count(row, name) for name in ("completed", "failed", "num_prompts"))
    if completed is None:
        raise UsageError(f"{where}: completed is {row.get('completed')!r}, not a count; it is no usable result")
    if failed is None:
        failed = max(0, (prompts or 0) - completed)
    return max(prompts or 0, completed + failed), completed, failed


def _breach(
    row: Mapping[str, Any], steps: int, drafted: int, accepted: int, shares: list[Decimal] | None, k: int | None
) -> str | None:
    """Name of the first contradiction, or None; what is printed must agree to its last digit with the counts."""
    longest = k or (len(shares) if shares else None)
    checks = [
        (accepted <= drafted, "accepted > drafted"),
        (steps <= drafted, "steps > drafted"),
        (longest is None or drafted <= longest * steps, "drafted > k x steps"),
        (_agrees(row.get(_LENGTH), 1 + Fraction(accepted, steps)), f"{_LENGTH} is not 1 + accepted / steps"),
        (drafted == 0 or _agrees(row.get(_RATE), Fraction(100 * accepted, drafted)), f"{_RATE} is not the percentage"),
    ]
    if shares:
        slack = len(shares) * min(map(_half_digit, shares))  # all are printed to as many digits, zeros left out
        total = sum((Fraction(share) for share in shares), Fraction(0))
        checks += [
            (len(shares) <= MOST_DRAFTS, f"more than {MOST_DRAFTS} positions"),
            (k is None or not any(shares[k:]), "positions beyond k"),
            (all(0 <= share <= 1 for share in shares), "a position is no share"),
            (all(a >= b for a, b in pairwise(shares)), "positions rise"),
            (abs(total - Fraction(accepted, steps)) <= slack, "positions do not add up to accepted / steps"),
        ]
    return next((name for holds, name in checks if not holds), None)


def _agrees(printed: object, exact: Fraction) -> bool:
    """Whether a printed value is `exact` to its last digit; what is not there contradicts nothing."""
    number = _decimal(printed)
    return number is None or abs(Fraction(number) - exact) <= max(_half_digit(number), _DOUBLE * exact)


def _half_digit(printed: Decimal) -> Fraction:
    """Half a unit of its last printed digit, or what a double leaves out."""
    exponent = printed.as_tuple().exponent
    return max(Fraction(10) ** int(exponent) / 2, _DOUBLE)


def _shares(value: object) -> list[Decimal] | None:
    """Positions, or None where any is missing: the later ones would move up."""
    found = [_decimal(share) for share in value] if isinstance(value, list) else []
    return [share for share in found if share is not None] if found and None not in found else None


def _decimal(value: object) -> Decimal | None:
    """A number of sane size: exact fractions of others would fill the memory."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    number = Decimal(value)
    return number if number == 0 or abs(number.adjusted()) < _LARGEST_EXPONENT else None


def _count(row: Mapping[str, Any], name: str) -> int | None:
    value = row.get(name)
    return value if is_count(value) else None


def _load(row: Mapping[str, Any], name: str, missing: list[str]) -> float | None:
    """A time or a rate; `missing` is told of a negative one, which nothing can have taken."""
    number = _number(row.get(name))
    if number is None or number >= 0:
        return number
    missing.append(f"{name} is {row[name]}")
    return None


def _number(value: object) -> float | None:
    number = _decimal(value)
    return float(number) if number is not None else None
