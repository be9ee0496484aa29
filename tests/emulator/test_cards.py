"""Several rows in one run: bins of prompt lengths, decks and draws."""

import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval import run as running
from spec_eval import tables
from spec_eval.records import RequestRecord
from spec_eval.render import json as json_render
from spec_eval.render.progress import Progress
from spec_eval.run import RunOptions, serving
from spec_eval.store import RunFolder
from tests.emulator.server import EmulatorServer
from tests.llamacpp_server import write_suite

BINS = ("0-8192", "8193-16384", "16385-32768", "32769-65536", "65537-131072")


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


def report(folder: RunFolder, by: Any = None) -> Any:
    return json.loads(json_render.render([tables.build(folder, by)]))


def start(suite: Path | str, server: EmulatorServer, out: Path, **more: Any) -> RunFolder:
    chosen = {"suite": str(suite), "engine": "vllm", "base_url": server.url, "out": out, **more}
    finished = running.start(RunOptions(**chosen), Progress())
    assert finished.shortfall is None
    return finished.folder


def test_total_of_the_bins_is_weighted_by_steps(tmp_path: Path) -> None:
    """Prompts of so many bytes, four to a token; of the first bin three decks, of the second two, of the others one."""
    sizes = {8_000: 12, 16_000: 8, 30_000: 4, 60_000: 4, 120_000: 4}
    suite = write_suite(tmp_path / "suite", prompts=0, concurrency=4)
    rows = [(f"{tokens}-{n}", f"{n:03d} " * tokens) for tokens, number in sizes.items() for n in range(number)]
    lines = [json.dumps({"id": name, "kind": "long", "question": text}) for name, text in rows]
    (suite.parent / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    suite.write_text(suite.read_text().replace("max_tokens = 32", "max_tokens = 32768"))
    with EmulatorServer(profile="glm-5.3-dflash2-preview:mrcr-8needle-bins", hands=4) as server:
        folder = start(suite, server, tmp_path / "results")
    found = report(folder, "bin")
    rows_by_bin = {row["category"]: row for row in found["rows"]}
    assert list(rows_by_bin) == list(BINS)
    assert [row["steps"] for row in rows_by_bin.values()] == [30_000, 20_000, 10_000, 10_000, 10_000]
    printed = (6.9190, 5.8916, 5.9500, 5.8348, 5.6294)
    lengths = [row["acceptance_length"]["value"] for row in rows_by_bin.values()]
    assert lengths == pytest.approx(printed, abs=1e-9)
    rates = [row["acceptance_rate"] * 100 for row in rows_by_bin.values()]
    assert rates == pytest.approx([73.99, 61.14, 61.88, 60.44, 57.87], abs=0.01)
    # (3 * 6.9190 + 2 * 5.8916 + 5.9500 + 5.8348 + 5.6294) / 8 = 49.9544 / 8; the mean of the rows is 6.0450
    assert found["overall"]["acceptance_length"]["value"] == pytest.approx(6.2443, abs=1e-9)


def played(like: str, tmp_path: Path, **more: Any) -> dict[str, tuple[Any, ...]]:
    suite = write_suite(tmp_path / "suite", prompts=12, concurrency=1)
    suite.write_text(suite.read_text().replace("max_tokens = 32", "max_tokens = 300"))
    with EmulatorServer(like=like, seed=5, **more) as server:
        folder = start(suite, server, tmp_path / like, engine=like)
    return {r.prompt_id: integers(r) for r in folder.records().records}


def integers(record: RequestRecord) -> tuple[Any, ...]:
    counters = record.counters
    assert counters is not None
    return (counters.steps, counters.accepted, counters.histogram, record.completion_tokens, record.prompt_tokens)


@pytest.mark.parametrize("deck", [True, False])
def test_same_profile_and_seed_give_the_same_integers_in_every_format(deck: bool, tmp_path: Path) -> None:
    one = played("vllm", tmp_path, deck=deck)
    assert played("sglang", tmp_path, deck=deck) == one
    assert played("trtllm", tmp_path, deck=deck) == one
    assert len({values[2] for values in one.values()}) > 6


def test_random_draws_do_not_depend_on_the_order_of_arrival(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", prompts=12)
    found = []
    for level in (1, 6):
        with EmulatorServer(deck=False) as server:
            folder = start(suite, server, tmp_path / "results", concurrency=(level,), max_tokens=2000)
        found.append({r.prompt_id: integers(r) for r in folder.records().records})
    assert found[0] == found[1]


def test_every_repeat_is_a_whole_deck(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", prompts=10, concurrency=3)
    with EmulatorServer(hands=10) as server:
        folder = start(suite, server, tmp_path / "results", repeats=2, max_tokens=32768)
    records = folder.records().records
    for repeat in (0, 1):
        mine = [r.counters for r in records if r.repeat == repeat]
        assert sum(c.steps for c in mine if c) == 10_000
        assert sum(c.accepted for c in mine if c) == 38_074  # AL 4.8074
    by_prompt = {(r.prompt_id, integers(r)) for r in records}
    assert len(by_prompt) == 10
