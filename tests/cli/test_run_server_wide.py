"""The whole way over a server whose answers carry no counters, and over one that says it drafts trees."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spec_eval.run import serving
from tests.factories import DATA
from tests.llamacpp_server import Ask, LlamaCppServer, Reply, write_suite

Shown = tuple[int, str, str]
BARE = Reply(timings=False, steps=((4, 2), (4, 0), (3, 3)))


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)


def run(
    face: Callable[..., Shown],
    tmp_path: Path,
    server: LlamaCppServer,
    *more: object,
    engine: str = "scrape",
    prompts: int = 4,
) -> Shown:
    suite = write_suite(tmp_path / "suite", prompts=prompts)
    return face("run", suite, "--engine", engine, "--base-url", server.url, "--out", tmp_path / "results", *more)


def test_totals_of_the_server_make_one_labelled_row(face: Callable[..., Shown], tmp_path: Path) -> None:
    with LlamaCppServer(lambda _: BARE) as server:
        code, out, err = run(face, tmp_path, server)
    assert code == 0, err
    folder = Path(out.strip())
    document: dict[str, Any] = json.loads(face("report", folder, "--format", "json")[1])
    (row,) = document["rows"]
    # four answers of three steps each, the probe's own not among them: S 12, D 44, A 20
    assert (row["category"], row["steps"], row["drafted"], row["accepted"], row["k"]) == ("server-wide", 12, 44, 20, 3)
    assert row["acceptance_length"] == {"value": pytest.approx(1 + 20 / 12), "low": None, "high": None}
    assert row["acceptance_rate"] == pytest.approx(20 / 44)
    # of three steps two accepted at least one and two, one accepted three
    assert row["positions"] == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    assert (row["acceptance_length_request_mean"], row["positions_request_mean"], row["coverage"]) == (None, None, None)
    assert row["requests"]["no_counters_by"] == {"server-wide counters only": 4}
    assert document["overall"] == row
    (told,) = document["runs"]
    assert told["labels"] == ["server-wide"]
    assert told["settings"]["pair"]["prefix_caching"] is None
    assert {w["code"] for w in document["warnings"]} == {"server_wide"}
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["server_wide"] == {"steps": 12, "drafted": 44, "accepted": 20, "positions": [8, 8, 4]}
    (line,) = csv.DictReader(io.StringIO(face("report", folder, "--format", "csv")[1]))
    assert (line["row"], line["labels"], line["steps"], line["position_3"]) == (
        "server-wide",
        "server-wide",
        "12",
        str(1 / 3),
    )
    table = face("report", folder)[1]
    assert "(server-wide)" in table.splitlines()[0]
    assert "| server-wide, all prompts, incl. other traffic | 2.6667 | — | — | 45.45% | 12 |" in table
    assert "up to 3 draft tokens a step, 3.6667 on average" in table
    assert "none by request" in table
    assert table.count("| server-wide, all prompts, incl. other traffic ") == 3


def test_totals_that_are_not_there_are_told_before_the_data_are_sent(
    face: Callable[..., Shown], tmp_path: Path
) -> None:
    averages = (DATA / "sglang" / "metrics.txt").read_text(encoding="utf-8")
    for page in ((404, "text/plain", "no"), (200, "text/plain", averages), (200, "text/plain", "<html>")):
        with LlamaCppServer(lambda _: BARE, pages={"/metrics": page}) as server:
            code, out, err = run(face, tmp_path, server)
            assert server.asks == []
        assert (code, out, err.count("\n")) == (4, "", 1)
        for word in ("--speculative-config", "--disable-log-stats", "llama-server with --metrics", "running averages"):
            assert word in err


def test_restart_in_between_leaves_no_figure(face: Callable[..., Shown], tmp_path: Path) -> None:
    with LlamaCppServer() as server:

        def forget(ask: Ask) -> Reply:
            if ask.number == 4:
                server.counted.clear()
            return BARE

        server.behaviour = forget
        server.counted += [(4, 4)] * 100
        code, out, err = run(face, tmp_path, server)
    assert code == 3
    assert "no verification step was measured" in err
    assert "restarted" in (Path(out.strip()) / "report.md").read_text(encoding="utf-8")


def test_sessions_of_a_resumed_run_are_added(face: Callable[..., Shown], tmp_path: Path) -> None:
    """Two of four fail first, and are asked again."""
    bad = Reply(status=500, plain=b"{}")
    with LlamaCppServer(lambda ask: bad if ask.number in (3, 4) else BARE) as server:
        code, out, _ = run(face, tmp_path, server, "--concurrency", 1)
        assert code == 5
        code, _, err = face("run", "--resume", out.strip())
    assert code == 0, err
    document = json.loads(face("report", out.strip(), "--format", "json")[1])
    assert (document["overall"]["steps"], document["overall"]["requests"]["ok"]) == (12, 4)


def test_doctor_is_content_with_totals(face: Callable[..., Shown]) -> None:
    with LlamaCppServer(lambda _: BARE) as server:
        code, out, err = face("doctor", "--engine", "scrape", "--base-url", server.url)
    assert (code, err) == (0, "")
    assert "PASS  server's totals: 3 steps counted for that answer" in out.splitlines()
    assert "WARN  counters, streamed: server-wide only" in out


def test_recorded_answers_have_no_totals(face: Callable[..., Shown], tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text("{}\n", encoding="utf-8")
    code, _, err = face("import", "captures", path, "--engine", "scrape")
    assert code == 2
    assert "recorded answers have none" in err


def sglang(info: str) -> LlamaCppServer:
    stream = (DATA / "sglang" / "chat.stream.txt").read_bytes()
    pages = {
        "/server_info": (200, "application/json", (DATA / "sglang" / info).read_text(encoding="utf-8")),
        "/metrics": (200, "text/plain", (DATA / "sglang" / "metrics.txt").read_text(encoding="utf-8")),
    }
    return LlamaCppServer(lambda _: Reply(stream=stream), pages=pages)


def test_nominal_drafts_are_told_in_every_format(face: Callable[..., Shown], tmp_path: Path) -> None:
    with sglang("server-info.json") as server:
        code, out, err = run(face, tmp_path, server, engine="sglang")
        assert all(ask.body["return_spec_tokens_details"] is True for ask in server.asks)
    assert code == 0, err
    document = json.loads(face("report", out.strip(), "--format", "json")[1])
    (told,) = document["runs"]
    assert (told["labels"], told["k"], told["k_flag"]) == (["nominal drafts"], 4, "speculative_num_draft_tokens 5")
    assert "nominal_drafts" in {w["code"] for w in document["warnings"]}
    assert document["overall"]["acceptance_length"]["value"] == pytest.approx(1 + 16 / 14)
    assert told["reconciliation"]["status"] == "not available"
    text = face("report", out.strip())[1]
    assert "(nominal drafts)" in text.splitlines()[0]
    assert "4 draft tokens a step (server flag: speculative\\_num\\_draft\\_tokens 5)" in text
    assert "`nominal_drafts`" in text
    lines = list(csv.DictReader(io.StringIO(face("report", out.strip(), "--format", "csv")[1])))
    assert {line["labels"] for line in lines} == {"nominal drafts"}


def test_positions_of_trees_are_refused(face: Callable[..., Shown], tmp_path: Path) -> None:
    with sglang("server-info-tree.json") as server:
        code, out, err = run(face, tmp_path, server, engine="sglang")
    assert code == 0, err
    document = json.loads(face("report", out.strip(), "--format", "json")[1])
    assert document["overall"]["positions"] is None
    assert document["runs"][0]["labels"] == ["nominal drafts", "tree drafts"]
    assert "tree_drafts" in {w["code"] for w in document["warnings"]}
    text = face("report", out.strip())[1]
    assert "**positions**: refused: drafts are trees" in text


def test_inferred_counters_are_told_in_every_format(face: Callable[..., Shown], tmp_path: Path) -> None:
    body = json.loads((DATA / "trtllm" / "chat-average-only.json").read_text(encoding="utf-8"))
    path = tmp_path / "some.jsonl"
    path.write_text(json.dumps({"request_id": "a", "response": body}) + "\n", encoding="utf-8")
    code, out, err = face("import", "captures", path, "--engine", "trtllm", "--k", 4, "--out", tmp_path / "results")
    assert code == 0, err
    document = json.loads(face("report", out.strip(), "--format", "json")[1])
    assert document["overall"]["acceptance_length"]["value"] == pytest.approx(2.5)
    assert (document["overall"]["inferred"], document["overall"]["positions"]) == (True, None)
    assert document["runs"][0]["labels"] == ["imported", "inferred"]
    assert "inferred" in {w["code"] for w in document["warnings"]}
    text = face("report", out.strip())[1]
    assert "(imported) (inferred)" in text.splitlines()[0]
    assert "**AL**: inferred" in text
    assert "**positions**: not reported" in text
    assert ",imported; inferred," in face("report", out.strip(), "--format", "csv")[1]


def test_native_bodies_of_sglang_can_be_imported(face: Callable[..., Shown], tmp_path: Path) -> None:
    names = ("generate.json", "generate-legacy.json")
    bodies = [json.loads((DATA / "sglang" / name).read_text(encoding="utf-8")) for name in names]
    path = tmp_path / "some.jsonl"
    path.write_text(
        "".join(json.dumps({"request_id": i, "response": body}) + "\n" for i, body in enumerate(bodies)),
        encoding="utf-8",
    )
    code, out, err = face("import", "captures", path, "--engine", "sglang", "--out", tmp_path / "results")
    assert code == 0, err
    overall = json.loads(face("report", out.strip(), "--format", "json")[1])["overall"]
    # S 14 + 20, A 16 + 13, D 56 + 60; one of the two has no histogram
    assert (overall["steps"], overall["accepted"], overall["drafted"], overall["positions"]) == (34, 29, 116, None)
    assert overall["requests"]["length"] == 1
