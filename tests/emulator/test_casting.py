import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval import doctor, probe, profiles, suite
from spec_eval.emulator import asks
from spec_eval.emulator.asks import BadAsk
from spec_eval.emulator.casting import Casting, cast
from spec_eval.errors import UsageError
from spec_eval.suite import CompoundSuite
from tests.llamacpp_server import write_suite

CARD = "glm-5.3-dflash2-preview"
HUMANEVAL, GSM8K = f"{CARD}:basic-t0:HumanEval", f"{CARD}:basic-t0:GSM8K"
BINS = f"{CARD}:mrcr-8needle-bins"


def compound(folder: Path, *cells: str, prompts: int = 6) -> str:
    write_suite(folder / "pair", prompts=prompts)
    text = 'schema_version = 1\nname = "own"\ntitle = "Own"\nsampling = { temperature = 0.0, max_tokens = 64 }\n'
    path = folder / "own.toml"
    path.write_text(text + "".join(f'[[cells]]\ntable = "T"\ntitle = "x"\n{cell}\n' for cell in cells))
    return str(path)


def cell(name: str, profile: str | None, *more: str) -> str:
    link = [f'profile = "{profile}"'] if profile else []
    return "\n".join([f'id = "{name}"', 'suite = "pair/pair.toml"', *link, *more])


def row(casting: Casting, text: str, temperature: float = 0.0) -> str:
    body = {"messages": [{"role": "user", "content": text}], "temperature": temperature, "max_tokens": 8}
    return casting.row(asks.parse(body, chat=True, context=10_000_000), 0).name


def test_one_row_is_played_for_every_prompt() -> None:
    found = cast(HUMANEVAL)
    assert row(found, "anything", 0.3) == HUMANEVAL
    assert (dict(found.hands), found.k) == ({HUMANEVAL: 80}, 8)
    assert dict(cast(HUMANEVAL, hands=50).hands) == {HUMANEVAL: 50}


@pytest.mark.parametrize(
    ("tokens", "label"),
    [(8192, "0-8192"), (8193, "8193-16384"), (16384, "8193-16384"), (131072, "65537-131072")],
)
def test_bins_are_cast_by_the_prompts_tokens_edges_included(tokens: int, label: str) -> None:
    # 3 around all messages, 4 for the one, a token for every four bytes
    assert row(cast(BINS), "x" * 4 * (tokens - 7)) == f"{BINS}:{label}"


def test_prompt_past_the_last_bin_has_no_row() -> None:
    with pytest.raises(BadAsk, match="no row for a prompt of 131073 tokens"):
        row(cast(BINS), "x" * 4 * (131073 - 7))


def test_suite_links_prompts_and_temperatures_to_rows_and_counts_the_hands(tmp_path: Path) -> None:
    own = compound(
        tmp_path,
        cell("cold", HUMANEVAL),
        cell("hot", f"{CARD}:basic-t1:GSM8K", "sampling = { temperature = 1.0 }", "repeats = 3"),
    )
    found = cast(CARD, suite_name=own)
    assert row(found, "Answer: Question number 3?") == HUMANEVAL
    assert row(found, "Answer: Question number 3?", 1.0) == f"{CARD}:basic-t1:GSM8K"
    # a repeat is a deck of its own
    assert dict(found.hands) == {HUMANEVAL: 6, f"{CARD}:basic-t1:GSM8K": 6}
    assert dict(cast(CARD, suite_name=own, limit=4).hands) == {HUMANEVAL: 4, f"{CARD}:basic-t1:GSM8K": 4}


def test_probes_are_answered_and_strangers_are_refused(tmp_path: Path) -> None:
    found = cast(CARD, suite_name=compound(tmp_path, cell("cold", HUMANEVAL)))
    for known in (probe.PROMPT, doctor.PROMPT):
        assert row(found, known) == HUMANEVAL
    with pytest.raises(BadAsk, match="no such first user text at any temperature"):
        row(found, "Who are you?")
    with pytest.raises(BadAsk, match=r"at temperature 0.5, only at \[0.0\]"):
        row(found, "Answer: Question number 3?", 0.5)


def test_prompts_of_two_cells_are_told_apart_by_the_runs_seeds(tmp_path: Path) -> None:
    own = compound(tmp_path, cell("a", HUMANEVAL), cell("b", GSM8K, "repeats = 2"))
    rows = [{"id": "other", "kind": "x", "question": "Question number 0?"}]
    (tmp_path / "more").mkdir()
    text = (tmp_path / "pair" / "pair.toml").read_text().replace('name = "pair"', 'name = "more"')
    (tmp_path / "more" / "pair.toml").write_text(text)
    (tmp_path / "more" / "rows.jsonl").write_text(json.dumps(rows[0]) + "\n")
    path = Path(own)
    path.write_text(path.read_text().replace("pair/pair.toml", "more/pair.toml", 1))
    found = cast(CARD, suite_name=own, run_seed=7)

    def played(seed: int | None) -> str:
        body = {"messages": [{"role": "user", "content": "Answer: Question number 0?"}], "temperature": 0.0}
        return found.row(asks.parse({**body, "seed": seed}, chat=True, context=1000), 0).name

    def sent(prompt: str, repeat: int) -> int:
        """The first 31 bits of the hash that docs/design/driver.md names."""
        return int(hashlib.sha256(f"7|{prompt}|0|{repeat}".encode()).hexdigest()[:8], 16) >> 1

    assert played(sent("other", 0)) == HUMANEVAL
    assert (played(sent("p0", 0)), played(sent("p0", 1))) == (GSM8K, GSM8K)
    for stranger in (None, 5):
        with pytest.raises(BadAsk, match="several rows have this first user text"):
            played(stranger)
    # one id under one seed for both is beyond telling
    with pytest.raises(UsageError, match="prompt 'p0' begins as one of"):
        cast(CARD, suite_name=compound(tmp_path, cell("a", HUMANEVAL), cell("b", GSM8K)), run_seed=7)


def test_rows_by_category(tmp_path: Path) -> None:
    table = f"{CARD}:speed-bench-qualitative-t0"
    own = compound(tmp_path, cell("kinds", table, 'rows = "category"'))
    rows = [{"id": f"q{n}", "kind": ("math", "qa")[n % 2], "question": f"{n}?"} for n in range(5)]
    (tmp_path / "pair" / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    found = cast(CARD, suite_name=own)
    assert dict(found.hands) == {f"{table}:math": 3, f"{table}:qa": 2}
    assert row(found, "Answer: 3?") == f"{table}:qa"


def test_bins_in_a_cell_leave_too_long_prompts_out(tmp_path: Path) -> None:
    own = compound(tmp_path, cell("long", BINS))
    sizes = {"a": 10, "b": 9_000, "c": 120_000}
    rows = [{"id": name, "kind": "x", "question": name * 4 * size} for name, size in sizes.items()]
    (tmp_path / "pair" / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    found = cast(CARD, suite_name=own, context=100_000)
    assert dict(found.hands) == {f"{BINS}:0-8192": 1, f"{BINS}:8193-16384": 1}


def test_cell_may_play_another_row(tmp_path: Path) -> None:
    own = compound(tmp_path, cell("cold", HUMANEVAL))
    assert dict(cast(CARD, suite_name=own, links={"cold": GSM8K}).hands) == {GSM8K: 6}
    assert dict(cast(CARD, suite_name=own, links={"cold": BINS}).hands) == {f"{BINS}:0-8192": 6}


@pytest.mark.parametrize(
    ("cells", "more", "message"),
    [
        (
            [cell("a", HUMANEVAL), cell("b", GSM8K)],
            {},
            "prompt 'p0' begins as one of .*HumanEval at temperature 0 does",
        ),
        ([cell("a", None)], {}, "cell 'a' has no `profile`; add one, or give --cast a=PROFILE"),
        (
            [cell("a", "glm-5.3-dflash2:speed-bench-qualitative:qa")],
            {},
            "plays glm-5.3-dflash2:.*, not glm-5.3-dflash2-p",
        ),
        ([cell("a", f"{CARD}:basic-t0:HumanEvil")], {}, "no profile '.*HumanEvil', did you mean"),
        ([cell("a", f"{CARD}:basic-t0")], {}, "has a row for each kind of prompt"),
        ([cell("a", f"{CARD}:speed-bench-qualitative-t0", 'rows = "category"')], {}, "cell 'a': .* has no row 'even'"),
        ([cell("a", HUMANEVAL)], {"links": {"b": GSM8K}}, "--cast b: no cell of .*; known: a"),
    ],
)
def test_links_that_cannot_be_are_told(tmp_path: Path, cells: list[str], more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cast(CARD, suite_name=compound(tmp_path, *cells), **more)


@pytest.mark.parametrize(
    ("profile", "more", "message"),
    [
        (CARD, {}, "is a whole card; give --suite"),
        (f"{CARD}w", {}, "no table 'glm-5.3-dflash2-previeww' of a published card"),
        (f"{CARD}:basic-t0", {}, "give one of them, as .*:HumanEval, or --suite"),
        (HUMANEVAL, {"limit": 3}, "belong to a whole card"),
        (CARD, {"suite_name": "humaneval"}, "has no cells"),
        ("gone.toml", {}, "gone.toml"),
    ],
)
def test_profiles_that_cannot_be_are_told(profile: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cast(profile, **more)


def test_card_and_suite_that_do_not_go_together_are_told_before_data_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"plays glm-5.3-dflash2:.*, not glm-5.3-dflash2-preview; mend --profile or"):
        cast(CARD, suite_name="card-dflash2", data_dir=tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["card-dflash2-preview", "card-dflash2"])
def test_every_row_of_a_shipped_card_is_linked_once(name: str) -> None:
    card = suite.find(name).suite
    assert isinstance(card, CompoundSuite)
    linked = []
    for spec in card.cells:
        assert spec.profile is not None
        if spec.rows == "category":
            table = profiles.table(spec.profile)
            assert set(spec.order) == set(table)
            linked += [one.name for one in table.values()]
        else:
            linked.append(profiles.find(spec.profile).name)
    cards = {one.partition(":")[0] for one in linked}
    assert len(cards) == 1
    assert sorted(linked) == sorted(one for one in profiles.published() if one.partition(":")[0] in cards)
