"""A card's tables in one call, on stand-in rows, against a server of our own."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spec_eval import cli
from spec_eval.run import serving
from spec_eval.store import RunFolder
from tests.llamacpp_server import Ask, LlamaCppServer, Reply, quick_waits

PROBE = "Repeat after me"
SIZES = ("1k", "2k", "8k", "16k", "32k")
# In the order of the data; the card's is another one.
CATEGORIES = ("writing", "coding", "stem", "humanities", "math", "multilingual", "qa", "rag", "roleplay", "reasoning")
CARD_ORDER = ["coding", "stem", "humanities", "math", "multilingual", "qa", "rag", "roleplay", "reasoning"]
CARD_ORDER += ["summarization", "writing"]
CONTEXT = 2000
Shown = tuple[int, str, str]


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two low-entropy rows and another one a size, longer than the context at 32k; a conversation a category."""
    home = tmp_path / "data" / "speed_bench_standin"
    home.mkdir(parents=True)
    for size in SIZES:
        text = "long " * 3000 if size == "32k" else f"short {size}"
        rows = [("low_entropy", "0"), ("high_entropy", "1"), ("low_entropy", "2")]
        written(home / f"throughput_{size}.jsonl", [(f"{size}-{n}", tier, [f"{text} {n}"]) for tier, n in rows])
    talks = [(f"q-{name}", name, [f"{name} question"]) for name in CATEGORIES]
    talks.append(("q-summarization", "summarization", ["summarization question", "shorter", "shorter still"]))
    written(home / "qualitative.jsonl", talks)
    return tmp_path / "data"


def written(path: Path, rows: list[tuple[str, str, list[str]]]) -> None:
    lines = [json.dumps({"question_id": name, "category": kind, "turns": turns}) for name, kind, turns in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


class Face:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path) -> None:
        self._monkeypatch, self._capsys, self._home = monkeypatch, capsys, home

    def __call__(self, *argv: object) -> Shown:
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["spec-eval", *map(str, argv)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = self._capsys.readouterr()
        assert isinstance(left.value.code, int)
        return int(left.value.code), captured.out, captured.err

    def run(self, server: LlamaCppServer, *more: object, suite: str = "card-dflash2") -> Shown:
        at = ("--engine", "llamacpp", "--base-url", server.url, "--k", 4, "--drafter", "eagle")
        places = ("--data-dir", self._home / "data", "--out", self._home / "results")
        return self("run", suite, *at, *places, *more)

    def document(self, out: str, *more: str) -> Any:
        return json.loads(self("report", out.strip(), "--format", "json", "--partial", *more)[1])


@pytest.fixture
def face(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Face:
    assert data.is_dir()
    return Face(monkeypatch, capsys, tmp_path)


def behaviour(ask: Ask) -> Reply:
    """S 1, D 4 an answer; it accepts 3 where it is about 8k, else 1."""
    return Reply(steps=((4, 3 if "8k" in ask.prompt else 1),), text="fine")


def card_server(**more: Any) -> LlamaCppServer:
    return LlamaCppServer(more.pop("behaviour", behaviour), context=CONTEXT, **more)


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("|")]


def test_card_is_run_whole_and_its_tables_stand_as_on_the_card(face: Face) -> None:
    with card_server() as server:
        # 4096 tokens of answer would never fit into this context; llama.cpp cuts them short
        code, out, err = face.run(server)
        asked = Counter(ask.prompt for ask in server.asks if PROBE not in ask.prompt)
    assert code == 0
    # four sizes x two low-entropy rows x three repeats, eleven categories, two later turns
    assert sum(asked.values()) == 4 * 2 * 3 + 11 + 2
    assert {asked[f"short {size} {n}"] for size in SIZES[:4] for n in (0, 2)} == {3}
    assert not [prompt for prompt in asked if prompt.endswith(" 1")]

    document = face.document(out)
    rows = document["rows"]
    assert [(row["table"], row["title"]) for row in rows[:5]] == [
        ("Low entropy, by context length", size) for size in SIZES
    ]
    assert [row["category"] for row in rows[:5]] == [None] * 5
    assert [row["category"] for row in rows[5:]] == CARD_ORDER
    assert {row["table"] for row in rows[5:]} == {"Qualitative, by category"}
    lengths = [row["acceptance_length"] and row["acceptance_length"]["value"] for row in rows[:5]]
    assert lengths == [2.0, 2.0, 4.0, 2.0, None]
    assert [row["requests"]["planned"] for row in rows[:5]] == [6] * 5
    assert [row["requests"]["planned"] for row in rows[5:]] == [3 if c == "summarization" else 1 for c in CARD_ORDER]

    long = rows[4]
    assert (long["coverage"], long["steps"], long["positions"]) == (None, 0, None)
    assert long["requests"]["not_sent_by"] == {"oversized": 6}
    assert document["overall"]["requests"]["not_sent_by"] == {"oversized": 6}
    assert document["overall"]["coverage"] == 1.0

    report = (Path(out.strip()) / "report.md").read_text(encoding="utf-8")
    headings = [line for line in report.splitlines() if line.startswith("### ")]
    assert headings == ["### Low entropy, by context length", "### Qualitative, by category"]
    table = cells(report)
    assert ["32k (stand-in)", "—", "—", "—", "—", "0"] in table
    assert ["8k (stand-in)", "4.0000", "—", "4.0000", "75.00%", "6"] in table
    acceptance = [row[0].removesuffix(" (stand-in)") for row in table if len(row) == 6]
    assert [name for name in acceptance if name in CARD_ORDER] == CARD_ORDER
    assert "| nan" not in report.lower()
    assert "6 oversized" in err


def test_header_tells_what_the_card_leaves_open_and_that_rows_are_made_up(face: Face) -> None:
    with card_server() as server:
        code, out, err = face.run(server, "--limit", 1, "--repeats", 1, "--concurrency", 2)
    assert code == 0
    lines = err.splitlines()
    assert "card-dflash2: eagle (stand-in rows)" in lines
    assert any(
        line == "not stated by the card: thinking; which 50 prompts of the low-entropy tier; top_p, top_k; seeds"
        for line in lines
    )
    assert "our choice of selection: first 50 low-entropy rows" in lines
    (overrides,) = (line for line in lines if line.startswith("overrides: "))
    assert "limit in conversations a cell = 1" in overrides
    assert any(line.startswith("standin_data: ") for line in lines)
    assert "speed-bench" not in (Path(out.strip()) / "report.md").read_text(encoding="utf-8").lower()

    document = face.document(out)
    (run,) = document["runs"]
    assert run["standin"] is True
    assert run["not_stated"] == ["thinking", "which 50 prompts of the low-entropy tier", "top_p, top_k", "seeds"]
    assert run["choices"] == {"selection": "first 50 low-entropy rows"}
    assert run["overrides"] == {"limit": 1, "repeats": 1, "concurrency": [2]}
    assert [row["dataset"] for row in document["rows"][:5]] == [f"stand-in-throughput-{size}" for size in SIZES]
    assert {row["dataset"] for row in document["rows"][5:]} == {"stand-in-qualitative"}
    csv = face("report", out.strip(), "--format", "csv", "--partial")[1]
    assert csv.splitlines()[0].endswith(",synthetic,standin")
    assert all(line.endswith(",,True") for line in csv.splitlines()[1:])


def test_limit_counts_conversations_of_every_cell(face: Face) -> None:
    with card_server() as server:
        _, out, _ = face.run(server, "--limit", 2, "--repeats", 1)
    units = {cell.title: cell.prompts.units for cell in RunFolder(Path(out.strip())).plan().cells}
    assert {title: len(chosen) for title, chosen in units.items()} == {**dict.fromkeys(SIZES, 2), "qualitative": 2}


def test_rows_by_turn_and_by_bin(face: Face) -> None:
    with card_server() as server:
        _, out, _ = face.run(server, "--repeats", 1)
    turns = [row for row in face.document(out, "--by", "turn")["rows"] if row["dataset"] == "stand-in-qualitative"]
    assert [(row["category"], row["requests"]["planned"], row["requests"]["ok"]) for row in turns] == [
        ("turn 1", 11, 11),
        ("turn 2", 1, 1),
        ("turn 3", 1, 1),
    ]
    bins = face.document(out, "--by", "bin")["rows"]
    short = {row["category"]: row["requests"]["sent"] for row in bins if row["title"] == "8k"}
    assert short == {"0-8192": 2, "8193-16384": 0, "16385-32768": 0, "32769-65536": 0, "65537-131072": 0}
    # oversized prompts stand in the bin of their counted length: 3001 words
    long = {row["category"]: row["requests"]["not_sent_by"] for row in bins if row["title"] == "32k"}
    assert long["0-8192"] == {"oversized": 2}
    assert sum(row["requests"]["planned"] for row in bins) == 5 * 2 + 13


def test_official_bins_need_lengths_that_only_graded_runs_have(face: Face) -> None:
    with card_server() as server:
        _, out, _ = face.run(server, "--repeats", 1)
    code, shown, err = face("report", out.strip(), "--by", "official-bin")
    assert (code, shown, err.count("\n")) == (2, "", 1)
    assert "o200k" in err


def test_interrupted_card_goes_on_in_the_cell_where_it_stopped(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_waits(monkeypatch)
    with card_server(die_after=10) as server:
        code, out, err = face.run(server, "--concurrency", 1)
    assert code == 5
    folder = RunFolder(Path(out.strip()))
    assert f"--resume {folder.path}" in err.splitlines()[-1]
    assert not folder.is_whole
    settled = [r for r in folder.records().records if r.settled]
    first, second = (cell.cell_id for cell in folder.plan().cells[:2])
    done = Counter(r.cell_id for r in settled)
    # ten answers, one of them the probe's: a whole cell of six and a half
    assert done == {first: 6, second: 3}
    with card_server() as server:
        code, again, _ = face("run", "--resume", folder.path, "--base-url", server.url)
        asked = Counter(ask.prompt.split()[1] for ask in server.asks if ask.prompt.startswith("short "))
    assert (code, again) == (0, out)
    assert asked == {"2k": 3, "8k": 6, "16k": 6}
    whole = face.document(out)
    assert whole["overall"]["requests"]["ok"] == 4 * 6 + 13
    assert not [w for w in whole["warnings"] if w["code"] == "measured_twice"]


def test_repeats_are_of_one_conversation_and_have_seeds_of_their_own(face: Face) -> None:
    with card_server() as server:
        _, out, _ = face.run(server, "--limit", 1)
        seeds = [ask.body["seed"] for ask in server.asks if ask.prompt == "short 1k 0"]
    assert len(set(seeds)) == len(seeds) == 3
    row = face.document(out)["rows"][0]
    assert (row["requests"]["measured"], row["conversations"]) == (3, 1)


# Conversations of several turns, seen from the command line.


def talk(reply: Callable[[Ask], Reply]) -> Callable[[Ask], Reply]:
    return lambda ask: reply(ask) if len(ask.body["messages"]) > 1 or "summarization" in ask.prompt else Reply()


def qualitative(face: Face, server: LlamaCppServer, *more: object) -> Shown:
    return face.run(server, *more, suite="speed-bench-qualitative")


def turns_of_the_talk(server: LlamaCppServer) -> list[list[dict[str, str]]]:
    found = [ask.body["messages"] for ask in server.asks]
    return [messages for messages in found if "summarization" in messages[0]["content"]]


@pytest.mark.parametrize("kept", [False, True])
def test_own_answers_go_back_and_reasoning_only_where_asked_for(face: Face, kept: bool) -> None:
    thoughtful = talk(lambda ask: Reply(text=f"answer to {ask.prompt}", reasoning="hm"))
    with card_server(behaviour=thoughtful) as server:
        code, out, _ = qualitative(face, server, *(["--reasoning-in-history"] if kept else []))
    assert code == 0
    first, second, third = turns_of_the_talk(server)
    reasoning = {"reasoning_content": "hm"} if kept else {}
    answers = [
        {"role": "assistant", "content": f"answer to {text}"} | reasoning
        for text in ("summarization question", "shorter")
    ]
    questions = [{"role": "user", "content": text} for text in ("summarization question", "shorter", "shorter still")]
    assert first == questions[:1]
    assert second == [questions[0], answers[0], questions[1]]
    assert third == [questions[0], answers[0], questions[1], answers[1], questions[2]]
    assert RunFolder(Path(out.strip())).plan().reasoning_in_history is kept


def test_turns_behind_a_failed_one_are_counted_as_not_sent(face: Face) -> None:
    broken = Reply(status=500, plain=b'{"error":{"message":"broken"}}')
    with card_server(behaviour=lambda ask: broken if ask.prompt == "shorter" else Reply()) as server:
        code, out, _ = qualitative(face, server, "--max-failures", "10%")
    assert code == 0
    requests = face.document(out)["overall"]["requests"]
    assert {name: requests[name] for name in ("planned", "sent", "not_sent", "ok", "failed")} == {
        "planned": 13,
        "sent": 12,
        "not_sent": 1,
        "ok": 11,
        "failed": 1,
    }
    assert requests["not_sent_by"] == {"earlier turn failed": 1}
    assert len(turns_of_the_talk(server)) == 2


def test_first_turns_only_plans_and_sends_no_other(face: Face) -> None:
    with card_server() as server:
        code, out, err = qualitative(face, server, "--first-turn-only")
    assert code == 0
    assert {len(ask.body["messages"]) for ask in server.asks} == {1}
    assert face.document(out)["overall"]["requests"]["planned"] == 11
    assert "first_turn_only = True" in err
