from collections.abc import Callable
from typing import Any

import pytest

from spec_eval import engines
from spec_eval.doctor import Examination, Finding, Status, examine
from spec_eval.engines.endpoint import Endpoint
from tests.llamacpp_server import Ask, LlamaCppServer, Reply

LLAMA = engines.find("llamacpp")


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spec_eval.doctor._SETTLE_S", 0.3)


def examined(
    behaviour: Callable[[Ask], Reply] = lambda _: Reply(), *, k: int | None = 4, **server: Any
) -> tuple[Examination, list[Ask]]:
    with LlamaCppServer(behaviour, **server) as running:
        return examine(Endpoint.at(running.root), LLAMA, model=None, k=k), running.asks


def finding(found: Examination, check: str) -> Finding:
    (one,) = [f for f in found.findings if f.check == check]
    assert one.status is Status.PASS or one.remedy
    return one


def status(found: Examination, check: str) -> Status:
    return finding(found, check).status


def test_a_good_server_passes_in_five_requests() -> None:
    found, asks = examined()
    assert len(asks) == 5
    assert found.model == "tiny"
    assert {f.status for f in found.findings} <= {Status.PASS, Status.WARN}
    for check in ("server", "answers", "counters, streamed", "draft length", "server's totals"):
        assert status(found, check) is Status.PASS
    # Three steps of (4, 2), (4, 0), (3, 3).
    assert "3 steps, 11 drafted, 5 accepted" in finding(found, "counters, streamed").message


def test_only_the_requests_that_may_find_a_prefix_ask_for_the_cache() -> None:
    _, asks = examined()
    assert [ask.body.get("cache_prompt") for ask in asks] == [False, None, False, False, None]
    assert [ask.body.get("stream") for ask in asks] == [True, False, True, True, True]
    switches = [ask.body.get("chat_template_kwargs", {}).get("enable_thinking") for ask in asks]
    assert switches == [None, None, True, False, None]


def test_nobody_there_is_the_one_finding() -> None:
    found = examine(Endpoint.at("http://127.0.0.1:9"), LLAMA, model=None, k=None)
    assert [(f.check, f.status) for f in found.findings] == [("server", Status.FAIL)]
    assert found.identity is None
    assert finding(found, "server").remedy == "start the server or mend --base-url"


def test_another_model_behind_the_port_is_the_one_finding() -> None:
    with LlamaCppServer() as server:
        found = examine(Endpoint.at(server.root), LLAMA, model="large", k=4)
        assert server.asks == []
    assert finding(found, "server").message.endswith("does not serve 'large' but tiny")


def test_a_server_that_cannot_answer_is_asked_once() -> None:
    found, asks = examined(lambda _: Reply(status=500, plain=b'{"error": {"message": "out of memory"}}'))
    assert len(asks) == 1
    assert finding(found, "answers").status is Status.FAIL
    assert "out of memory" in finding(found, "answers").message


def test_missing_counters_fail_and_the_servers_totals_tell_that_it_drafts() -> None:
    found, _ = examined(lambda _: Reply(timings=False))
    assert status(found, "counters, streamed") is Status.FAIL
    assert "the server counted 3 steps" in finding(found, "server's totals").message
    assert found.status is Status.FAIL


def test_a_server_that_does_not_draft_fails() -> None:
    found, _ = examined(lambda _: Reply(steps=((0, 0), (0, 0))), speculative=False)
    assert status(found, "counters, streamed") is Status.WARN
    assert finding(found, "drafter").message == "the server does not draft"


def test_contradictions_fail_under_their_name() -> None:
    found, _ = examined(k=2)
    assert finding(found, "counters, streamed").message == "they contradict themselves: drafted > k x steps"


def test_totals_that_differ_fail() -> None:
    found, _ = examined(lambda ask: Reply(counted=((4, 2), (4, 0), (3, 3), (4, 4))))
    assert status(found, "server's totals") is Status.FAIL
    assert "foreign traffic" in finding(found, "server's totals").message


def test_hidden_totals_are_no_failure() -> None:
    found, _ = examined(pages={"/metrics": (404, "text/plain", "off")})
    assert status(found, "server's totals") is Status.WARN
    assert finding(found, "server's totals").remedy == "start llama-server with --metrics"


def thinks(on: bool, off: bool) -> Callable[[Ask], Reply]:
    def reply(ask: Ask) -> Reply:
        asked = ask.body.get("chat_template_kwargs", {}).get("enable_thinking")
        return Reply(reasoning="hm" if (asked is True and on) or (asked is False and off) else "")

    return reply


def test_thinking_switch_is_obeyed_ignored_or_without_effect() -> None:
    obeyed, _ = examined(thinks(on=True, off=False))
    assert status(obeyed, "thinking switch") is Status.PASS
    ignored, _ = examined(thinks(on=True, off=True))
    assert finding(ignored, "thinking switch").message == "ignored: reasoning seen with it off"
    nothing, _ = examined(thinks(on=False, off=False))
    assert finding(nothing, "thinking switch").message == "no reasoning seen, with it on or off"


def test_a_server_that_knows_no_k_is_asked_for_it() -> None:
    found, _ = examined(k=None)
    assert finding(found, "draft length").remedy == "give --k, in draft tokens"
