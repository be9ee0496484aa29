"""The real data sets, where this machine has them: SPEC_EVAL_DATA_DIR names the folder."""

import os
from collections import Counter
from pathlib import Path

import pytest

from spec_eval import suite
from spec_eval.prompts import PromptSet, load
from spec_eval.run.cells import lay_out
from spec_eval.run.options import RunOptions

FOLDER = os.environ.get("SPEC_EVAL_DATA_DIR")
pytestmark = pytest.mark.skipif(not FOLDER, reason="SPEC_EVAL_DATA_DIR names no folder with the real data sets")


def real(name: str) -> PromptSet:
    return load(suite.find(name), data_dir=Path(str(FOLDER)))


@pytest.mark.parametrize(
    ("name", "conversations", "requests"),
    [("humaneval", 164, 164), ("gsm8k", 1319, 1319), ("math500", 500, 500), ("mt-bench", 80, 160)],
)
def test_pinned_sets_have_their_rows_and_turns(name: str, conversations: int, requests: int) -> None:
    got = real(name)
    assert (len(got.entries), sum(e.turns for e in got.entries)) == (conversations, requests)
    assert not got.standin
    assert got.notes == ()  # every set's content is pinned


def test_prompts_are_those_that_drafters_are_evaluated_with() -> None:
    first = {name: next(iter(real(name))).turns[0][0]["content"] for name in ("humaneval", "gsm8k", "math500")}
    boxed = "\nPlease reason step by step, and put your final answer within \\boxed{}."
    assert first["gsm8k"].startswith("Janet’s ducks lay 16 eggs per day.")
    assert first["gsm8k"].endswith(boxed)
    assert first["math500"].endswith(boxed)
    assert first["humaneval"].startswith(
        "Write a solution to the following problem and make sure that it passes the tests:\n```python\n"
    )
    assert first["humaneval"].endswith("\n```")


def test_mt_bench_has_ten_questions_in_each_of_eight_categories() -> None:
    counts = Counter(e.category for e in real("mt-bench").entries)
    assert len(counts) == 8
    assert set(counts.values()) == {10}


def test_stand_in_of_speed_bench_is_called_so_everywhere() -> None:
    name = "speed-bench-qualitative"
    got = real(name)
    assert (len(got.entries), sum(e.turns for e in got.entries)) == (88, 144)
    assert Counter(e.category for e in got.entries).keys() == {
        *("coding", "humanities", "math", "multilingual", "qa", "rag"),
        *("reasoning", "roleplay", "stem", "summarization", "writing"),
    }
    assert got.standin
    (cell,) = lay_out(suite.find(name), RunOptions(suite=name, data_dir=Path(str(FOLDER)))).cells
    assert cell.prompts.standin
    for text in (got.source, cell.cell_id, cell.dataset, cell.title, cell.prompts.source):
        assert text.startswith("stand-in")
        assert "speed" not in text.lower()


@pytest.mark.parametrize("size", ["1k", "2k", "8k", "16k", "32k"])
def test_stand_ins_of_the_throughput_sets_have_three_tiers(size: str) -> None:
    got = real(f"speed-bench-throughput-{size}")
    assert got.standin
    assert {e.category for e in got.entries} == {"low_entropy", "mixed", "high_entropy"}


def test_stand_in_of_mrcr_is_graded_and_begins_with_two_users() -> None:
    got = real("mrcr-8needle")
    assert (got.standin, got.graded, len(got.entries)) == (True, True, 18)
    for conversation in got:
        assert [m["role"] for m in conversation.turns[0][:2]] == ["user", "user"]
        assert conversation.reference is not None
        assert conversation.reference.answer.startswith(conversation.reference.prefix)
