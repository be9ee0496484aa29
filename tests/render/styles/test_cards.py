"""The published tables come out again from records that were dealt from their printed positions."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spec_eval import cli, suite
from spec_eval.records import RequestRecord
from spec_eval.store import Cell, RunFolder, Target
from spec_eval.store.plan import Member
from spec_eval.suite import CellSpec, CompoundSuite
from tests import cards_oracle as oracle
from tests.cards_oracle import DFLASH2, PREVIEW, Published
from tests.factories import answered, cell, from_histogram, plan, run_folder

REQUESTS = 80
LONG_REQUESTS = 50
# Steps of the MRCR bins: the first so heavy that the step-weighted mean of the bins is the published total.
BIN_STEPS = (34_840, 16_290, 16_290, 16_290, 16_290)
BIN_TOKENS = (8192, 8193, 20_000, 65_536, 131_072)


def table_of(card: str, spec: CellSpec) -> list[Published]:
    (name,) = [name for (of, name), heading in oracle.HEADINGS.items() if (of, heading) == (card, spec.table)]
    return oracle.published(card, name)


def dealt(row: Published, spec: CellSpec, category: str, hands: int) -> Iterator[RequestRecord]:
    for repeat in range(spec.repeats or 1):
        for number, hand in enumerate(oracle.deal(oracle.histogram(row), hands)):
            named = {"cell_id": spec.id, "dataset": spec.suite, "category": category}
            yield answered(from_histogram(hand), **named, prompt_id=f"{category}-{number}", repeat=repeat)


def long_context(row: Published, spec: CellSpec) -> Iterator[RequestRecord]:
    """800 requests' worth of bins; each bin accepts what its printed length says, to the nearest draft."""
    accepted = [
        round((float(length) - 1) * steps)
        for (length, _), steps in zip(oracle.MRCR_BINS.values(), BIN_STEPS, strict=True)
    ]
    deck = oracle.histogram(row, sum(BIN_STEPS))
    # The printed lengths are rounded: what they miss of the printed total, a handful of drafts, goes to the first bin.
    missed = sum(j * n for j, n in enumerate(deck)) - sum(accepted)
    assert abs(missed) < 10
    accepted[0] += missed
    for number, (counts, tokens) in enumerate(
        zip(oracle.into_bins(deck, BIN_STEPS, accepted), BIN_TOKENS, strict=True)
    ):
        for part, hand in enumerate(oracle.deal(counts, 10)):
            named = {"cell_id": spec.id, "dataset": spec.suite, "category": spec.title}
            yield answered(from_histogram(hand), **named, prompt_id=f"b{number}-{part}", prompt_tokens=tokens)


def records(card: str, spec: CellSpec) -> list[RequestRecord]:
    rows = table_of(card, spec)
    if spec.rows == "category":
        return [record for row in rows for record in dealt(row, spec, row.name, REQUESTS)]
    (row,) = [row for row in rows if row.name == spec.title]
    if spec.suite == "mrcr-8needle":
        return list(long_context(row, spec))
    return list(dealt(row, spec, "any", LONG_REQUESTS if spec.repeats else REQUESTS))


def planned(card: CompoundSuite, spec: CellSpec, of: list[RequestRecord]) -> Cell:
    # In the order of the data, which is not the card's.
    units = sorted({(record.prompt_id, record.category, 1) for record in of})
    return cell(
        units,
        cell_id=spec.id,
        dataset=spec.suite,
        member=spec.suite,
        title=spec.title,
        table=spec.table,
        rows=spec.rows,
        order=spec.order,
        sampling=spec.sampling.over(card.sampling),
        repeats=spec.repeats or 1,
    )


def run_of(where: Path, card: str, suite_name: str, **changes: Any) -> RunFolder:
    found = suite.find(suite_name).suite
    assert isinstance(found, CompoundSuite)
    by_cell = {spec.id: records(card, spec) for spec in found.cells}
    members = {spec.suite: Member(text=suite.find(spec.suite).text) for spec in found.cells}
    values: dict[str, Any] = {
        "target": Target(engine="vllm", model="zai-org/GLM-5.3", drafter=found.drafter, k=8),
        "suite_name": suite_name,
        "run_id": suite_name,
        "members": members,
        **changes,
    }
    of = plan(*(planned(found, spec, by_cell[spec.id]) for spec in found.cells), **values)
    return run_folder(where, of, [record for one in by_cell.values() for record in one])


@pytest.fixture(scope="module")
def first_card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("first"), DFLASH2, "card-dflash2").path


@pytest.fixture(scope="module")
def second_card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("second"), PREVIEW, "card-dflash2-preview").path


def report(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    with pytest.raises(SystemExit) as left:
        cli.main(["report", *map(str, argv)])
    shown = capsys.readouterr()
    assert (left.value.code, shown.err) == (0, "")
    return shown.out


def test_first_card_comes_out_as_published(first_card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = report(capsys, first_card, "--style", "dflash2")
    assert oracle.mismatches(text, DFLASH2) == []
    context = oracle.tables(text)["Low entropy, by context length"][0]
    assert context.columns == ("Context length", "AL", *(f"Pos {i}" for i in range(8)))
    assert oracle.tables(text)["Qualitative, by category"][0].columns[:2] == ("Category", "AL")
    assert text.count("Per-request mean of each of 3 repeats, then their equal-weight mean.") == 1
    assert text.count("Per-request mean, one run of each prompt.") == 1
    assert "Requests: 750 planned, 750 sent, 750 ok, 0 failed, 750 measured." in text


def test_second_card_comes_out_as_published(second_card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = report(capsys, second_card, "--style", "speculators")
    assert oracle.mismatches(text, PREVIEW, bins=True) == []
    basic, outcomes = oracle.tables(text)["Basic, temperature 0"]
    assert basic.columns[1:] == ("Acceptance length", "Acceptance rate", *(f"Pos {i}" for i in range(1, 9)))
    assert outcomes.rows[0][:5] == ("HumanEval", "80", "80", "0", "80")


def test_rows_of_the_two_temperatures_stand_in_the_orders_of_the_card(
    second_card: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = oracle.tables(report(capsys, second_card, "--style", "speculators"))
    cold, hot = ([row[0] for row in shown[f"Qualitative by category, temperature {t}"][0].rows] for t in (0, 1))
    assert cold[3:5] == ["qa", "rag"]
    assert hot[3:5] == ["multilingual", "qa"]
    assert sorted(cold) == sorted(hot)


def test_oracle_sees_a_wrong_digit_a_wrong_row_and_a_missing_table(
    first_card: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = report(capsys, first_card, "--style", "dflash2")
    wrong = text.replace("80.58", "80.59", 1)
    assert len(oracle.mismatches(wrong, DFLASH2)) == 1
    assert "1k" in oracle.mismatches(wrong, DFLASH2)[0]
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("| stem"))
    swapped = "\n".join([*lines[: first - 1], lines[first], lines[first - 1], *lines[first + 1 :]])
    assert ["rows" in one for one in oracle.mismatches(swapped, DFLASH2)] == [True]
    assert "no table" in oracle.mismatches(re.sub("### Qualitative.*", "", text), DFLASH2)[-1]
    assert len(oracle.mismatches(text, PREVIEW)) == 5


def test_what_is_printed_holds_where_a_published_card_is_checked(
    first_card: Path, second_card: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 5 + 11 rows; 4 + 4 + 11 + 11 + 1 and five bins with their total.
    for run, style, rows in ((first_card, "dflash2", 16), (second_card, "speculators", 37)):
        report(capsys, run, "--style", style, "-o", tmp_path / "card.md")
        with pytest.raises(SystemExit) as left:
            cli.main(["check-card", str(tmp_path / "card.md")])
        assert left.value.code == 0
        assert f"{rows} holds, 0 cannot be true" in capsys.readouterr().out
