import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from spec_eval.engines.endpoint import Endpoint, Reply, head, key_from_environment
from spec_eval.engines.llamacpp import LlamaCpp
from spec_eval.errors import EnvironmentFault, UsageError

Routes = dict[str, tuple[int, bytes]]


@contextmanager
def serving(routes: Routes, seen: list[tuple[str, str | None]] | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if seen is not None:
                seen.append((self.path, self.headers["Authorization"]))
            status, body = routes.get(self.path, (404, b'{"error":"no such path"}'))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def talking(reply: bytes) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("https://host/models/a/v1", "https://host/models/a"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
    ],
)
def test_address_is_taken_with_or_without_v1(url: str, root: str) -> None:
    endpoint = Endpoint.at(url)
    assert endpoint.root == root
    assert endpoint.base_url == f"{root}/v1"


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "localhost/v1", "ftp://host/v1", "http://", "http://[::1/v1"])
def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--base-url"):
        Endpoint.at(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:80a/v1", "http://127.0.0.1:8000/a b/v1"])
def test_address_that_cannot_be_asked_is_no_traceback(url: str) -> None:
    with pytest.raises((UsageError, EnvironmentFault)):
        Endpoint.at(url).get("/v1/models")


@pytest.mark.parametrize("url", ["http://me:hunter2@host/v1", "ftp://me:hunter2@host/v1", "me:hunter2@host:8000/v1"])
def test_password_in_the_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Endpoint.at(url)
    assert "hunter2" not in str(caught.value)


def test_key_is_not_in_the_repr() -> None:
    assert "hunter2" not in repr(Endpoint.at("http://host", "hunter2"))


def test_key_is_sent_and_no_key_is_not() -> None:
    seen: list[tuple[str, str | None]] = []
    with serving({"/x": (200, b"ok")}, seen) as url:
        assert Endpoint.at(url, "secret").get("/x") == Reply(200, "ok")
        Endpoint.at(url).get("/x")
    assert seen == [("/x", "Bearer secret"), ("/x", None)]


def test_proxies_are_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    with serving({"/x": (200, b"ok")}) as url:
        assert Endpoint.at(url).get("/x").status == 200


def test_error_status_is_a_reply_of_its_own() -> None:
    with serving({"/x": (503, "lädt".encode())}) as url:
        assert Endpoint.at(url).get("/x") == Reply(503, "lädt")


def test_nobody_there_is_an_environment_fault() -> None:
    port = closed_port()
    with pytest.raises(EnvironmentFault, match=f"127.0.0.1:{port}/v1/models.*start the server or mend --base-url"):
        Endpoint.at(f"http://127.0.0.1:{port}/v1").models()


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"",
    ],
)
def test_server_that_speaks_no_http_is_an_environment_fault(reply: bytes) -> None:
    with talking(reply) as url, pytest.raises(EnvironmentFault):
        Endpoint.at(url).get("/v1/models")


@pytest.mark.parametrize("status", [401, 403])
def test_refused_key_names_the_option(status: int) -> None:
    with (
        serving({"/v1/models": (status, b"{}")}) as url,
        pytest.raises(EnvironmentFault, match=f"key refused .*{status}.*--api-key-env"),
    ):
        Endpoint.at(url).models()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((500, b"out of\nmemory"), "http 500: out of memory"),
        ((200, b"<html>hello</html>"), "not JSON but '<html>hello</html>'"),
        ((200, b"[]"), "no list of models"),
        ((200, b'{"data": [{"name": "a"}]}'), "no list of models"),
        ((200, b'{"data": [{"id": 7}]}'), "no list of models"),
    ],
)
def test_strange_list_of_models_is_named(reply: tuple[int, bytes], message: str) -> None:
    with serving({"/v1/models": reply}) as url, pytest.raises(EnvironmentFault) as caught:
        Endpoint.at(url).models()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_models_are_the_entries() -> None:
    with serving({"/v1/models": (200, b'{"data": [{"id": "a"}, {"id": "b"}]}')}) as url:
        assert Endpoint.at(url).models() == [{"id": "a"}, {"id": "b"}]


def test_head_is_one_short_line() -> None:
    assert head(" a\n b\t c ") == "a b c"
    assert head("x" * 12, length=10) == "x" * 10 + "…"
    assert head("x" * 10, length=10) == "x" * 10


def llamacpp_routes(**changes: object) -> Routes:
    # printf '{{ messages }}' | sha256sum gives the template's hash below.
    bodies: dict[str, object] = {
        "/v1/models": {"data": [{"id": "smol", "meta": {"n_ctx": 2048}}]},
        "/props": {"build_info": "b1-7e4c0a9", "chat_template": "{{ messages }}", "total_slots": 4},
        "/slots": [{"id": 0, "speculative": True}, {"id": 1, "speculative": True}],
        **changes,
    }
    return {path: (200, json.dumps(body).encode()) for path, body in bodies.items() if body is not None}


def test_llamacpp_tells_what_it_is() -> None:
    with serving(llamacpp_routes()) as url:
        identity = LlamaCpp().identify(Endpoint.at(url))
    assert identity.models == ("smol",)
    assert identity.version == "b1-7e4c0a9"
    assert identity.context == 2048
    assert identity.speculative is True
    assert identity.chat_template_sha256 == "f24189f08c85a1eb19a737306c3a13e85462ee33d964f28108d64a2485fa2171"
    assert identity.details["total_slots"] == 4


def test_llamacpp_without_a_drafter_says_so() -> None:
    with serving(llamacpp_routes(**{"/slots": [{"id": 0, "speculative": False}]})) as url:
        assert LlamaCpp().identify(Endpoint.at(url)).speculative is False


def test_llamacpp_with_its_pages_switched_off_is_known_by_its_models_alone() -> None:
    with serving(llamacpp_routes(**{"/props": None, "/slots": None, "/v1/models": {"data": [{"id": "a"}]}})) as url:
        identity = LlamaCpp().identify(Endpoint.at(url))
    assert identity.models == ("a",)
    assert (identity.version, identity.context, identity.speculative) == (None, None, None)
    assert identity.chat_template_sha256 is None


@pytest.mark.parametrize("value", ["sk-SECRET\x07", "sk-SÉCRET", "sk SECRET"])
def test_key_that_cannot_be_one_is_refused_without_repeating_it(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", value)
    with pytest.raises(UsageError, match="A_KEY: holds characters") as caught:
        key_from_environment("A_KEY")
    assert "CRET" not in str(caught.value)


def test_key_loses_the_line_end_that_a_file_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sk-1\r\n")
    assert key_from_environment("A_KEY") == "sk-1"


def test_a_key_is_needed_where_its_variable_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-usual")
    assert key_from_environment(None) == "sk-usual"
    for value in ("", "  "):
        monkeypatch.setenv("OPENAI_API_KEY", value)
        assert key_from_environment(None) is None
    monkeypatch.delenv("OPENAI_API_KEY")
    assert key_from_environment(None) is None
    for name in ("OPENAI_API_KEY", "sk_SECRET"):
        with pytest.raises(UsageError, match="--api-key-env: no variable of that name is set") as caught:
            key_from_environment(name)
        assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://host/v1?key=CRET", "http://host/v1#CRET", "http://host?", "http://host/v1#"])
def test_query_and_fragment_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="--base-url: has a query or a fragment") as caught:
        Endpoint.at(url)
    assert "CRET" not in str(caught.value)


def test_key_in_the_place_of_its_variable_is_refused_without_repeating_it() -> None:
    with pytest.raises(UsageError, match="--api-key-env: not the name of a variable") as caught:
        key_from_environment("sk-SECRET")
    assert "SECRET" not in str(caught.value)


def test_servers_words_are_shown_without_the_key() -> None:
    endpoint = Endpoint.at("http://127.0.0.1:9", "sk-1")
    assert endpoint.scrubbed("Bearer sk-1 refused") == "Bearer *** refused"


@pytest.mark.parametrize("body", [b"[" * 100_000, b"[" * 300 + b"]" * 300, b"9" * 5000])
def test_json_that_cannot_be_read_is_one_fault(body: bytes) -> None:
    with serving({"/x": (200, body)}) as root:
        endpoint = Endpoint(root)
        assert endpoint.get_json_or_none("/x") is None
        with pytest.raises(EnvironmentFault, match="/x: not JSON but"):
            endpoint.get_json("/x")
