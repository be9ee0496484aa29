import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spec_eval.engines import ENGINES
from spec_eval.engines.endpoint import Endpoint
from spec_eval.errors import EnvironmentFault
from spec_eval.probe import Probe, probe
from tests.llamacpp_server import LlamaCppServer, Reply, quick_waits

JSON = "application/json"


def ask(server: LlamaCppServer, *, model: str | None = None, key: str | None = None) -> Probe:
    return probe(Endpoint(server.root, key), ENGINES["llamacpp"], model=model, k=None)


def test_a_good_server_is_known_after_one_small_request() -> None:
    with LlamaCppServer() as server:
        found = ask(server)
    assert (found.model, found.identity.models, found.identity.version) == ("tiny", ("tiny",), "b4242-cafe")
    assert (found.identity.speculative, found.identity.context) == (True, 512)
    # printf '{{ messages }}' | sha256sum
    assert found.identity.chat_template_sha256 == "f24189f08c85a1eb19a737306c3a13e85462ee33d964f28108d64a2485fa2171"
    (request,) = server.asks
    assert request.body["max_tokens"] <= 64
    assert request.body["model"] == "tiny"


def test_pages_that_a_build_does_not_have_are_not_needed() -> None:
    missing = (501, JSON, '{"error":{"message":"not enabled"}}')
    with LlamaCppServer(pages={"/props": missing, "/slots": missing}) as server:
        found = ask(server)
    assert (found.identity.version, found.identity.speculative, found.model) == (None, None, "tiny")


@pytest.mark.parametrize("reply", [Reply(timings=False), Reply(timings=False, usage=False)])
def test_answers_without_counters_name_the_remedy(reply: Reply) -> None:
    with LlamaCppServer(lambda _: reply) as server, pytest.raises(EnvironmentFault, match="no counters") as caught:
        ask(server)
    assert ENGINES["llamacpp"].remedy in str(caught.value)


def test_a_server_that_does_not_draft_names_the_remedy() -> None:
    plain = Reply(steps=((0, 0),) * 5)
    server = LlamaCppServer(lambda _: plain, speculative=False)
    with server, pytest.raises(EnvironmentFault, match="does not draft") as caught:
        ask(server)
    assert ENGINES["llamacpp"].remedy in str(caught.value)


def test_counters_that_contradict_themselves_are_told_by_name() -> None:
    server = LlamaCppServer(lambda _: Reply(steps=((1, 3),)))
    with server, pytest.raises(EnvironmentFault, match=r"contradict themselves \(accepted > "):
        ask(server)


def test_one_of_several_models_must_be_chosen() -> None:
    with LlamaCppServer(models=("a", "b")) as server:
        with pytest.raises(EnvironmentFault, match="serves a, b; choose one with --model"):
            ask(server)
        assert server.asks == []
        assert ask(server, model="b").model == "b"
        with pytest.raises(EnvironmentFault, match="does not serve 'c' but a, b"):
            ask(server, model="c")


def test_a_server_without_models_is_told() -> None:
    with LlamaCppServer(models=()) as server, pytest.raises(EnvironmentFault, match="no model"):
        ask(server)


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ((401, JSON, '{"error":"Unauthorized"}'), r"/v1/models: key refused \(http 401\); .*--api-key-env"),
        ((403, JSON, '{"error":"sk-secret"}'), r"/v1/models: key refused \(http 403\)"),
        ((404, "text/plain", "404 page not found"), "/v1/models: http 404: 404 page not found"),
        ((502, "text/html", "<h1>502 Bad Gateway</h1>" + "x" * 9000), "/v1/models: http 502: <h1>502 Bad Gateway"),
        ((200, "text/html", "<html><title>Grafana</title></html>"), "/v1/models: not JSON but .*Grafana"),
        ((200, JSON, ""), "/v1/models: not JSON but"),
        ((200, JSON, '["tiny"]'), "/v1/models: no list of models"),
        ((200, JSON, '{"data":[{"name":"tiny"}]}'), "/v1/models: no list of models"),
        ((200, JSON, '{"object":"error","message":"loading"}'), "/v1/models: no list of models"),
    ],
)
def test_a_list_of_models_that_is_none_ends_in_one_line_before_anything_is_sent(
    page: tuple[int, str, str], message: str
) -> None:
    with LlamaCppServer(pages={"/v1/models": page}) as server:
        with pytest.raises(EnvironmentFault, match=message) as caught:
            ask(server, key="sk-secret")
        assert server.asks == []
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(plain=b""), "the first request failed: empty body"),
        (Reply(plain=b'{"object":"error","message":"not with streaming","code":400}'), "server error: not with stream"),
        (Reply(status=401, plain=b'{"error":"Unauthorized"}'), "http 401: key refused"),
        (Reply(status=502, plain=b"<h1>502 Bad Gateway</h1>", content_type="text/html"), "http 502: <h1>502 Bad Gat"),
        (Reply(status=500, plain=b'{"error":{"message":"no KV cache"}}'), "http 500: no KV cache"),
        (Reply(stream=b'data: {"choices":[{"ind'), r"stream ended before \[DONE\]"),
    ],
)
def test_a_first_request_that_fails_is_told_in_one_line(
    reply: Reply, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_waits(monkeypatch)
    with LlamaCppServer(lambda _: reply) as server, pytest.raises(EnvironmentFault, match=message) as caught:
        ask(server)
    assert "\n" not in str(caught.value)


def test_nobody_at_the_port_says_so() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EnvironmentFault, match=f"no answer from http://127.0.0.1:{port}/v1/models .*refused"):
        probe(Endpoint(f"http://127.0.0.1:{port}"), ENGINES["llamacpp"], model=None, k=None)


@contextmanager
def speaking(answer: bytes) -> Iterator[int]:
    """A port that sends `answer` to whoever comes, for as long as the block lasts."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)

        def serve() -> None:
            for _ in range(100):
                if over.is_set():
                    return
                try:
                    connection, _address = listener.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join(5)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_a_port_that_speaks_something_else_is_a_fault_of_the_place(answer: bytes) -> None:
    with speaking(answer) as port, pytest.raises(EnvironmentFault, match=f"127.0.0.1:{port}/v1/models"):
        probe(Endpoint(f"http://127.0.0.1:{port}"), ENGINES["llamacpp"], model=None, k=None)


def test_odd_pages_beside_the_models_are_passed_over_or_told_never_a_crash() -> None:
    odd = {
        "/props": (200, JSON, json.dumps({"chat_template": 7, "build_info": None})),
        "/slots": (200, JSON, json.dumps([None, {"speculative": "yes"}])),
    }
    with LlamaCppServer(pages=odd) as server:
        found = ask(server)
    assert (found.identity.chat_template_sha256, found.identity.speculative) == (None, None)
