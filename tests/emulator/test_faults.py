"""What a user sees of each fault, and what of the run is kept. Requests count from 1, and the first is the probe's."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from spec_eval import run as running
from spec_eval import tables
from spec_eval.drivers import chat
from spec_eval.emulator.faults import HEADER, REQUEST_FAULTS, SERVER_FAULTS, Fault, Faults, parse
from spec_eval.errors import EnvironmentFault, RunNotWhole, UsageError
from spec_eval.render import json as json_render
from spec_eval.render import words
from spec_eval.render.progress import Progress
from spec_eval.run import Finished, RunOptions, serving
from spec_eval.store import RunFolder
from tests.emulator.server import EmulatorServer
from tests.llamacpp_server import quick_waits, write_suite


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    monkeypatch.setattr(serving, "SETTLE_S", 0.0)
    return quick_waits(monkeypatch)


def start(server: EmulatorServer, tmp_path: Path, **more: Any) -> Finished:
    """Six prompts, one at a time."""
    suite = write_suite(tmp_path / "suite", prompts=6, concurrency=1)
    chosen = {"suite": str(suite), "engine": "vllm", "base_url": server.url, "out": tmp_path / "results", **more}
    return running.start(RunOptions(**chosen), Progress())


def document(folder: RunFolder) -> Any:
    return json.loads(json_render.render([tables.build(folder)]))


def requests(folder: RunFolder) -> Any:
    return document(folder)["overall"]["requests"]


def lost(folder: RunFolder) -> list[str]:
    return [r.prompt_id for r in folder.records().records if r.status == "failed"]


def test_too_many_requests_are_asked_again_and_lose_nothing(tmp_path: Path, waits: list[float]) -> None:
    with EmulatorServer(fault=("429:every=3:seconds=7",)) as server:
        finished = start(server, tmp_path)
    assert finished.shortfall is None
    assert requests(finished.folder)["measured"] == 6
    # 1 probe, 2 p0, 3 p1 refused, 4 p1, 5 p2, 6 p3 refused, 7 p3, 8 p4, 9 p5 refused, 10 p5
    attempts = {r.prompt_id: r.attempt for r in finished.folder.records().records}
    assert attempts == {"p0": 1, "p1": 2, "p2": 1, "p3": 2, "p4": 1, "p5": 2}
    assert waits.count(7.0) == 3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("500", "http 500"),
        ("error-body", "server error"),
        ("html", "not an event stream but text/html; charset=utf-8"),
        ("cut", "connection lost"),
    ],
)
def test_failed_requests_are_named_and_the_others_kept(fault: str, reason: str, tmp_path: Path) -> None:
    with EmulatorServer(fault=(f"{fault}:every=3",)) as server:
        finished = start(server, tmp_path)
    assert isinstance(finished.shortfall, RunNotWhole)
    assert "2 of 6 requests failed" in str(finished.shortfall)
    found = requests(finished.folder)
    assert found["failed_by"] == {reason: 2}
    assert found["measured"] == 4
    assert lost(finished.folder) == ["p1", "p4"]


def test_cut_streams_are_the_likely_cause_of_a_difference(tmp_path: Path) -> None:
    with EmulatorServer(fault=("cut:every=3",)) as server:
        finished = start(server, tmp_path)
    manifest = finished.folder.manifest()
    assert manifest is not None
    assert manifest.reconciliation.status == "differs"
    assert "2 failed half-way" in str(manifest.reconciliation.reason)


def test_silent_server_is_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "Timeouts", lambda: quick)
    with EmulatorServer(fault=("hang:every=4",)) as server:
        finished = start(server, tmp_path)
    assert requests(finished.folder)["failed_by"] == {"timeout": 1}
    assert lost(finished.folder) == ["p2"]


quick = chat.Timeouts(first_token=2.0, between_chunks=2.0)


def test_refusing_server_ends_the_run_and_a_new_one_goes_on(tmp_path: Path) -> None:
    with EmulatorServer(fault=("refuse:every=4",)) as server:
        finished = start(server, tmp_path)
        port = server.port
    assert isinstance(finished.shortfall, RunNotWhole)
    assert "the server is gone" in str(finished.shortfall)
    assert f"--resume {finished.folder.path}" in str(finished.shortfall)
    settled = [r.prompt_id for r in finished.folder.records().records if r.settled]
    assert settled == ["p0", "p1"]
    with EmulatorServer(port=port) as server:
        whole = running.resume(finished.folder.path, Progress())
    assert whole.shortfall is None
    assert requests(whole.folder)["measured"] == 6
    assert document(whole.folder)["runs"][0]["synthetic"] == server.settings.why


def test_server_that_does_not_listen_yet_leaves_nothing(tmp_path: Path) -> None:
    late = EmulatorServer(fault=("slow-start:seconds=1000",))
    with late as server, pytest.raises(EnvironmentFault, match=r"no answer from .*/v1/models .*refused"):
        start(server, tmp_path)
    assert not (tmp_path / "results").exists()


async def test_server_listens_when_its_slow_start_is_over(tmp_path: Path) -> None:
    with EmulatorServer(fault=("slow-start:seconds=0.001",)) as server:
        for _ in range(500):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
                continue
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"200"
            writer.close()
            return
    pytest.fail("it never listened")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("null-counters", "no metrics object"),
        ("no-usage", "no usage chunk, which would carry the counters"),
    ],
)
def test_answers_without_counters_lower_the_coverage(fault: str, reason: str, tmp_path: Path) -> None:
    with EmulatorServer(fault=(f"{fault}:every=3",)) as server:
        finished = start(server, tmp_path)
    assert "coverage 66.6% is below 95%: 4 of 6" in str(finished.shortfall)
    found = requests(finished.folder)
    assert (found["ok"], found["no_counters"], found["measured"]) == (6, 2, 4)
    (named,) = found["no_counters_by"]
    assert named.startswith(reason)


def test_server_without_counters_is_found_out_by_the_probe(tmp_path: Path) -> None:
    with EmulatorServer(fault=("null-counters",)) as server:
        with pytest.raises(EnvironmentFault, match=r"no counters in its answers .*though it does draft"):
            start(server, tmp_path)
        assert server.emulator.requests == 1
    assert list((tmp_path / "results").iterdir()) == []


def test_counter_that_begins_anew_is_a_restart(tmp_path: Path) -> None:
    # behind the seventh request, the last: the probe's steps are lost too
    with EmulatorServer(fault=("counter-reset:every=7",)) as server:
        finished = start(server, tmp_path)
    assert finished.shortfall is None
    manifest = finished.folder.manifest()
    assert manifest is not None
    assert manifest.reconciliation.status == "not available"
    assert "a counter went down" in str(manifest.reconciliation.reason)
    assert requests(finished.folder)["measured"] == 6


def test_two_engines_are_added_up(tmp_path: Path) -> None:
    with EmulatorServer(fault=("two-engines",)) as server:
        finished = start(server, tmp_path)
        each = [one.steps for one in server.emulator.totals.each]
    manifest = finished.folder.manifest()
    assert manifest is not None
    assert manifest.reconciliation.status == "exact"
    assert min(each) > 0
    page = (finished.folder.path / "metrics-after.prom").read_text(encoding="utf-8")
    drafts = [line for line in page.splitlines() if line.startswith("vllm:spec_decode_num_drafts_total")]
    assert [line.partition(",")[0].partition("{")[2] for line in drafts] == ['engine="0"', 'engine="1"']


def test_adaptive_server_is_labelled_and_has_no_rate(tmp_path: Path) -> None:
    with EmulatorServer(fault=("adaptive",)) as server:
        finished = start(server, tmp_path)
    shown = document(finished.folder)
    assert "adaptive" in shown["runs"][0]["labels"]
    assert (shown["overall"]["drafted"], shown["overall"]["acceptance_rate"]) == (None, None)
    assert shown["overall"]["acceptance_length"]["value"] > 1
    raw = [r.raw_counters for r in finished.folder.records().records]
    # the host counts what it scheduled: k for every step
    assert all(one["num_draft_tokens"] == 8 * one["num_spec_steps"] for one in raw)


def test_looping_answers_run_into_the_limit(tmp_path: Path) -> None:
    with EmulatorServer(fault=("loop:every=3",)) as server:
        finished = start(server, tmp_path, max_tokens=2048)
    records = {r.prompt_id: r for r in finished.folder.records().records}
    assert {name for name, r in records.items() if r.finish_reason == "length"} == {"p1", "p4"}
    text = str(records["p1"].text)
    assert text.startswith("and again and again, and again and again,")
    assert records["p1"].completion_tokens == 2048
    codes = {warning["code"] for warning in document(finished.folder)["warnings"]}
    assert {"looping_answers", "many_ended_by_length"} <= codes
    # most of its steps accept all eight, so it reads as a far better drafter than it is
    counters = records["p1"].counters
    assert counters is not None
    assert counters.histogram is not None
    assert counters.histogram[8] > counters.steps / 2


@pytest.mark.parametrize(("fault", "seen"), [((), "yes"), (("no-thinking",), "no")])
def test_thinking_that_a_server_ignores_is_seen_in_its_answers(
    fault: tuple[str, ...], seen: str, tmp_path: Path
) -> None:
    with EmulatorServer(fault=fault) as server:
        finished = start(server, tmp_path, thinking=True)
    header = dict(words.header(tables.build(finished.folder)))
    assert header["thinking"] == f"asked: on; reasoning seen in answers: {seen}"
    codes = [warning["code"] for warning in document(finished.folder)["warnings"]]
    assert ("thinking_not_seen" in codes) is (seen == "no")


def test_wrong_model_is_found_before_anything_is_sent(tmp_path: Path) -> None:
    with EmulatorServer(fault=("wrong-model",)) as server:
        with pytest.raises(EnvironmentFault, match=r"does not serve 'emulated-model' but another-model"):
            start(server, tmp_path, model="emulated-model")
        assert server.emulator.requests == 0


def ask(server: EmulatorServer, header: str) -> tuple[int, Any]:
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}).encode()
    headers = {"Content-Type": "application/json", HEADER: header}
    asked = urllib.request.Request(f"{server.url}/chat/completions", body, headers)
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_header_makes_one_request_fail() -> None:
    with EmulatorServer() as server:
        assert ask(server, "500")[0] == 500
        assert ask(server, "null-counters")[1]["metrics"] is None
        assert ask(server, "")[1]["metrics"]["speculative_decoding"]["num_spec_tokens"] == 8
        code, body = ask(server, "two-engines")
    assert code == 400
    assert "no fault 'two-engines' of a request" in body["error"]["message"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("429", Fault("429")),
        ("500:every=3", Fault("500", every=3)),
        ("cut:first=2", Fault("cut", first=2)),
        ("slow-start:seconds=0.5", Fault("slow-start", seconds=0.5)),
    ],
)
def test_fault_is_read(text: str, fault: Fault) -> None:
    assert parse(text) == fault


def test_fault_strikes_by_number() -> None:
    def struck(text: str) -> list[int]:
        return [number for number in range(1, 8) if Faults((parse(text),)).of(number, None)]

    assert struck("500") == [1, 2, 3, 4, 5, 6, 7]
    assert struck("500:every=3") == [3, 6]
    assert struck("500:first=2") == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cutt", "no fault 'cutt', did you mean 'cut'"),
        ("cut:every=0", "'every=0' is not every=N"),
        ("cut:sometimes", "'sometimes' is not every=N"),
        ("two-engines:every=2", "concerns the whole server"),
    ],
)
def test_fault_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(text)


def test_every_fault_is_on_the_page_about_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "design" / "emulator.md").read_text(encoding="utf-8")
    assert [name for name in (*REQUEST_FAULTS, *SERVER_FAULTS) if f"| `{name}` |" not in page] == []
