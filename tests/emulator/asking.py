"""Plain requests to a server, past our own client."""

import json
import urllib.error
import urllib.request
from typing import Any

HELLO = [{"role": "user", "content": "Say hello."}]


def post(url: str, body: dict[str, Any]) -> tuple[int, str]:
    """Status and text."""
    asked = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def chat(url: str, **body: Any) -> Any:
    """The body of a chat answer."""
    return json.loads(post(f"{url}/chat/completions", {"messages": HELLO, **body})[1])


def completion(url: str, **body: Any) -> Any:
    """The body of a completion."""
    return json.loads(post(f"{url}/completions", {"prompt": "Once upon a time", **body})[1])


def events(text: str) -> list[Any]:
    """Of a stream, which must end as streams do."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def stream(url: str, kind: str = "chat/completions", *, usage: bool = True, **body: Any) -> list[Any]:
    """The events of a streamed answer."""
    asked = {"messages": HELLO} if kind.startswith("chat") else {"prompt": "Once upon a time"}
    options = {"stream": True, **({"stream_options": {"include_usage": True}} if usage else {})}
    return events(post(f"{url}/{kind}", {**asked, **options, **body})[1])


def get(url: str) -> str:
    """The text of a page."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def paths(value: Any, at: str = "") -> set[str]:
    """Every place in a JSON value; a list's entries share one."""
    if isinstance(value, dict):
        return {p for key, one in value.items() for p in paths(one, f"{at}.{key}")} | {at}
    if isinstance(value, list):
        return {p for one in value for p in paths(one, f"{at}[]")} | {at}
    return {at}
