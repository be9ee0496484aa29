"""Whole cards, played over HTTP to the shipped suites and printed in the cards' own styles, against the published text.

The data sets are made up, in the columns of the real ones: enough rows that each row of a card is one whole deck.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from spec_eval import cli
from spec_eval import run as running
from spec_eval.render.progress import Progress
from spec_eval.run import RunOptions, serving
from tests import cards_oracle as oracle
from tests.cards_oracle import DFLASH2, PREVIEW
from tests.emulator.server import EmulatorServer

CATEGORIES = (
    *("coding", "humanities", "math", "qa", "rag", "reasoning", "stem", "writing"),
    *("multilingual", "summarization", "roleplay"),
)
LONG_CELL = "mrcr-8needle-t0"
BINS = f"{PREVIEW}:mrcr-8needle-bins"
# Tokens of a prompt in each MRCR bin, and decks of 10,000 steps. Bins of equal decks would pool to 6.0450; these pool
# to the published total: (4 * 6.9190 + 5.8916 + 5.9500 + 3 * 5.8348 + 2 * 5.6294) / 11 = 68.2808 / 11 = 6.2073.
LONG = {8_000: 4, 12_000: 1, 24_000: 1, 48_000: 3, 100_000: 2}
# Of a deck that a bin plays. One hand, or two, would be longer than the suite's max_tokens.
HANDS = 4


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_qualitative(home: Path, each: int) -> None:
    rows = [
        {"question_id": f"{name}-{n}", "category": name, "sub_category": "s", "turns": [f"{name} question {n}"]}
        for name in CATEGORIES
        for n in range(each)
    ]
    write_lines(home / "speed_bench" / "qualitative.jsonl", rows)


def write_needles(home: Path, asked: Sequence[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    home.mkdir(parents=True)
    talks = [[{"role": "user", "content": "Write a poem."}, {"role": "user", "content": text}] for text in asked]
    for part in range(2):
        rows = [(json.dumps(talk), "ab poem", f"ab{n}") for n, talk in enumerate(talks) if n % 2 == part]
        columns = zip(*rows, strict=True)
        names = ("prompt", "answer", "random_string_to_prepend")
        pq.write_table(
            pa.table({name: list(values) for name, values in zip(names, columns, strict=True)}),
            home / f"8needle_{part}.parquet",
        )


def first_data(home: Path) -> Path:
    """Twenty prompts a row, as the suite's 4,096 tokens allow no hand of more than some 700 steps."""
    write_qualitative(home, 20)
    for name in ("1k", "2k", "8k", "16k", "32k"):
        rows = [
            {
                "question_id": f"{name}-{n}",
                "category": "low_entropy",
                "sub_category": "s",
                "turns": [f"Sort {name} {n}"],
            }
            for n in range(20)
        ]
        write_lines(home / "speed_bench" / f"throughput_{name}.jsonl", rows)
    return home


def second_data(home: Path) -> Path:
    """Two conversations of each row's kind."""
    write_qualitative(home, 2)
    sets: dict[str, list[dict[str, Any]]] = {
        "humaneval/HumanEval.jsonl": [{"task_id": f"h{n}", "prompt": f"def f{n}(): pass"} for n in range(2)],
        "gsm8k/test.jsonl": [{"question": f"How many are {n} apples?", "answer": "#### 1"} for n in range(2)],
        "math500/test.jsonl": [
            {"problem": f"Find x = {n}", "unique_id": f"m{n}", "subject": "Algebra"} for n in (1, 2)
        ],
        "mt_bench/question.jsonl": [{"question_id": 81, "category": "writing", "turns": ["Tell me.", "Go on."]}],
    }
    for name, rows in sets.items():
        write_lines(home / name, rows)
    write_needles(home / "mrcr" / "8needle", [f"The poem again, {n}?" for n in range(2)])
    return home


def long_data(home: Path) -> Path:
    """Four bytes are a token."""
    numbers = [(tokens, n) for tokens, decks in LONG.items() for n in range(HANDS * decks)]
    write_needles(home / "mrcr" / "8needle", [f"{n:03d} " * tokens for tokens, n in numbers])
    return home


def long_suite(home: Path) -> Path:
    """The long-context cell of the card's suite alone: with bins in it, the card's own row has no positions."""
    path = home / "long.toml"
    path.write_text(
        'schema_version = 1\nname = "long"\ntitle = "Long context"\n'
        "sampling = { temperature = 0.0, max_tokens = 32768, thinking = true }\nload = { concurrency = 4 }\n"
        f'[[cells]]\nid = "{LONG_CELL}"\nsuite = "mrcr-8needle"\ntitle = "8 needles"\n'
        'table = "Eight-needle long context, temperature 0"\n'
    )
    return path


def played(card: str, suite: str, home: Path, data: Callable[[Path], Path], **more: Any) -> Path:
    rows = data(home / "standin")  # the name says that these are not the real sets, whose rows are counted
    with EmulatorServer(profile=card, suite_name=suite, data_dir=rows, **more) as server:
        options = RunOptions(suite=suite, engine="vllm", base_url=server.url, data_dir=rows, out=home / "results")
        finished = running.start(options, Progress())
    assert finished.shortfall is None
    return finished.folder.path


@pytest.fixture(scope="module")
def patched() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "SETTLE_S", 0.0)
        yield


def spec_eval(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    capsys.readouterr()  # of the run before
    with pytest.raises(SystemExit) as left:
        cli.main([str(arg) for arg in argv])
    shown = capsys.readouterr()
    assert (left.value.code, shown.err) == (0, "")
    return shown.out


def checked(capsys: pytest.CaptureFixture[str], text: str, tmp_path: Path) -> str:
    (tmp_path / "card.md").write_text(text, encoding="utf-8")
    return spec_eval(capsys, "check-card", tmp_path / "card.md")


@pytest.mark.usefixtures("patched")
def test_first_card_comes_out_as_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = played(DFLASH2, "card-dflash2", tmp_path, first_data)
    text = spec_eval(capsys, "report", run, "--style", "dflash2")
    assert oracle.mismatches(text, DFLASH2) == []
    # 5 rows of 20 prompts, three times each; 11 rows of 20.
    assert "Requests: 300 planned, 300 sent, 300 ok, 0 failed, 300 measured." in text
    assert "Requests: 220 planned, 220 sent, 220 ok, 0 failed, 220 measured." in text
    assert "16 holds, 0 cannot be true, 0 not enough" in checked(capsys, text, tmp_path)


@pytest.fixture(scope="module")
def second_card(tmp_path_factory: pytest.TempPathFactory, patched: None) -> Path:
    return played(PREVIEW, "card-dflash2-preview", tmp_path_factory.mktemp("card"), second_data)


def test_second_card_comes_out_as_published(
    second_card: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = spec_eval(capsys, "report", second_card, "--style", "speculators")
    assert oracle.mismatches(text, PREVIEW) == []
    # 4 + 4 + 11 + 11 + 1 rows, and the short prompts of the last one again by length: one bin, four empty, the total.
    assert "33 holds, 0 cannot be true, 4 not enough" in checked(capsys, text, tmp_path)


def test_every_row_of_the_second_card_is_one_deck(second_card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(spec_eval(capsys, "report", second_card, "--format", "json"))["rows"]
    assert len(rows) == 31
    assert {row["steps"] for row in rows} == {10_000}


@pytest.mark.usefixtures("patched")
def test_bins_and_their_total_come_out_as_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = long_suite(tmp_path)
    run = played(PREVIEW, str(suite), tmp_path, long_data, links={LONG_CELL: BINS}, hands=HANDS)
    text = spec_eval(capsys, "report", run, "--style", "speculators")
    (bins, *_) = oracle.tables(text)[oracle.MRCR_BINS_HEADING]
    assert [row[0].partition(" (")[0] for row in bins.rows] == [*oracle.MRCR_BINS, oracle.MRCR_TOTAL]
    found = oracle.mismatches(text, PREVIEW, bins=True)
    assert [one for one in found if one.startswith(f"{oracle.MRCR_BINS_HEADING}: ")] == []
    assert "7 holds, 0 cannot be true, 0 not enough" in checked(capsys, text, tmp_path)
