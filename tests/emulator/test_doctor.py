"""What `doctor` says of an emulated server, whole and with each of its faults; at most five requests in any case."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from spec_eval import cli, doctor, engines
from spec_eval.doctor import Examination, Finding, Status, examine
from spec_eval.drivers.chat import Timeouts
from spec_eval.engines.endpoint import Endpoint
from tests.emulator.server import EmulatorServer
from tests.llamacpp_server import LlamaCppServer

ENGINES = ("vllm", "sglang", "trtllm")
SHORT = Timeouts(connect=5.0, first_token=0.5, between_chunks=0.4)


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_SETTLE_S", 0.1)


def examined(*faults: str, like: str = "vllm", model: str | None = None, k: int | None = None) -> Examination:
    with EmulatorServer(like=like, fault=faults) as server:
        found = examine(Endpoint.at(server.url), engines.find(like), model=model, k=k)
        assert server.emulator.requests <= 5
    for one in found.findings:
        assert "\n" not in f"{one.message}{one.remedy}"
        assert one.status is Status.PASS or one.remedy
    return found


def finding(found: Examination, check: str) -> Finding:
    (one,) = [f for f in found.findings if f.check == check]
    return one


def statuses(found: Examination) -> dict[str, Status]:
    return {f.check: f.status for f in found.findings if f.status is not Status.PASS}


# Of every emulated server that is whole. It is never told to hand over cached tokens, but TensorRT-LLM does so anyway.
WHOLE = {
    "vllm": {"acceptance": Status.WARN, "prefix cache": Status.WARN},
    "sglang": {"acceptance": Status.WARN, "prefix cache": Status.WARN, "server's totals": Status.WARN},
    "trtllm": {"acceptance": Status.WARN, "server's totals": Status.WARN},
}


@pytest.mark.parametrize("like", ENGINES)
def test_a_whole_server_has_no_failure_in_any_format(like: str) -> None:
    found = examined(like=like, k=8)
    assert statuses(found) == WHOLE[like]
    assert finding(found, "acceptance").message.startswith(f"synthetic: an emulator of {like} played")
    assert finding(found, "draft length").message.startswith("k = 8 draft tokens a step")
    assert (found.model, found.k, found.status) == ("emulated-model", 8, Status.WARN)


@pytest.mark.parametrize(
    ("fault", "said", "remedy"),
    [
        ("500", "http 500: emulated: internal server error", "see the server's log"),
        ("error-body", "server error: emulated: the engine died", "see the server's log"),
        ("html", "not an event stream but text/html", "give the server's own address as --base-url"),
        ("cut", "connection lost", "see the server's log"),
        ("429", "http 429: emulated: too many requests", "take other load off the server"),
        ("refuse", "no connection", "start the server again"),
    ],
)
def test_no_usable_answer_is_the_failure_and_ends_it(fault: str, said: str, remedy: str) -> None:
    found = examined(fault)
    assert statuses(found) == {"acceptance": Status.WARN, "answers": Status.FAIL}
    assert finding(found, "answers").message.startswith(said)
    assert str(finding(found, "answers").remedy).startswith(remedy)


def test_a_wait_that_the_server_asks_for_is_not_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    real = asyncio.sleep

    async def noted(delay: float, result: Any = None) -> Any:
        waits.append(delay)
        return await real(delay, result)

    monkeypatch.setattr(asyncio, "sleep", noted)
    found = examined("429:first=1:seconds=600")
    assert finding(found, "answers").status is Status.FAIL
    assert 600 not in waits
    assert max(waits, default=0) <= 1


def test_a_silent_server_fails_within_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_TIMEOUTS", SHORT)
    found = examined("hang")
    assert finding(found, "answers").message.startswith("timeout: silent for too long (first token 0.5 s")
    assert "still loads" in str(finding(found, "answers").remedy)


def test_time_that_is_up_fails_and_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LIMIT_S", 0.3)
    found = examined("hang")
    assert statuses(found) == {"acceptance": Status.WARN, "time": Status.FAIL}
    assert finding(found, "server").status is Status.PASS
    assert finding(found, "time").message.startswith("the answers took longer than 0.3 s in all")


def test_missing_counters_fail_with_the_flag() -> None:
    found = examined("null-counters")
    for check in ("counters, streamed", "counters, not streamed"):
        assert finding(found, check).status is Status.FAIL
        assert "--per-request-spec-decode-metrics" in str(finding(found, check).remedy)
    assert finding(found, "server's totals").status is Status.WARN
    assert "steps for that answer, which does not tell of them" in finding(found, "server's totals").message


def test_counters_that_only_the_stream_has_are_enough() -> None:
    found = examined("null-counters:every=2")
    assert statuses(found) == WHOLE["vllm"]
    assert finding(found, "counters, not streamed").message == "none: metrics null; runs stream, and are not affected"


def test_missing_usage_fails_as_the_chunk_holds_the_counters() -> None:
    found = examined("no-usage")
    assert finding(found, "answers").status is Status.WARN
    assert finding(found, "answers").message == "streamed, without the server's count of tokens"
    assert finding(found, "counters, streamed").status is Status.FAIL
    assert "no usage chunk" in finding(found, "counters, streamed").message
    assert finding(found, "counters, streamed").remedy == "mend the usage chunk first, as said above"


def test_totals_that_began_anew_fail_with_the_likely_reason() -> None:
    found = examined("counter-reset")
    assert statuses(found) == {**WHOLE["vllm"], "server's totals": Status.FAIL}
    assert "likely a restart" in finding(found, "server's totals").message


@pytest.mark.parametrize("fault", ["two-engines", "loop"])
def test_what_an_examination_cannot_see_or_need_not_mind(fault: str) -> None:
    found = examined(fault)
    assert statuses(found) == WHOLE["vllm"]
    assert finding(found, "server's totals").message.endswith("every position equal the answer's")


def test_adaptive_verification_is_warned_of() -> None:
    found = examined("adaptive")
    assert statuses(found) == {**WHOLE["vllm"], "verification": Status.WARN, "server's totals": Status.WARN}
    assert "unknown drafted" in finding(found, "counters, streamed").message


def test_thinking_that_does_not_show_is_warned_of() -> None:
    found = examined("no-thinking")
    assert statuses(found) == {**WHOLE["vllm"], "thinking switch": Status.WARN}


def test_another_model_fails_where_one_was_asked_for() -> None:
    found = examined("wrong-model", model="emulated-model")
    assert statuses(found) == {"server": Status.FAIL}
    assert finding(found, "server").message.endswith("does not serve 'emulated-model' but another-model")
    assert examined("wrong-model").model == "another-model"


def test_the_page_names_every_check_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "design" / "doctor.md").read_text(encoding="utf-8")
    table = page.partition("| check | status |")[2].partition("\n\n")[0]
    named = {line.split("|")[1].strip(" `") for line in table.splitlines()[2:]} - {""}
    with LlamaCppServer(speculative=False) as idle:
        seen = {f.check for f in examine(Endpoint.at(idle.root), engines.find("llamacpp"), model=None, k=4).findings}
    seen |= {f.check for f in examined("adaptive").findings}
    monkeypatch.setattr(doctor, "_LIMIT_S", 0.3)
    seen |= {f.check for f in examined("hang").findings}
    assert named == seen


def test_another_draft_length_fails() -> None:
    assert statuses(examined(k=5)) == {**WHOLE["vllm"], "draft length": Status.FAIL}


def test_server_that_does_not_listen_yet_is_the_one_finding() -> None:
    found = examined("slow-start:seconds=1000")
    assert statuses(found) == {"server": Status.FAIL}
    assert finding(found, "server").remedy == "start the server or mend --base-url"


def test_verb_prints_a_line_a_finding_and_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmulatorServer(fault=("html",)) as server:
        monkeypatch.setattr(sys, "argv", ["spec-eval", "doctor", "--engine", "vllm", "--base-url", server.url])
        with pytest.raises(SystemExit) as left:
            cli.main()
    shown = capsys.readouterr()
    assert left.value.code == 1
    lines = [line for line in shown.out.splitlines() if line.startswith(("PASS", "WARN", "FAIL"))]
    assert [line.partition(":")[0] for line in lines] == ["PASS  server", "WARN  acceptance", "FAIL  answers"]
    assert lines[2].endswith("; give the server's own address as --base-url; something else answers there")
    assert len(shown.err.splitlines()) == 1
