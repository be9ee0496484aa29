"""A server's address, and the few plain GETs that tell what it is. Streams go through the chat driver."""

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from spec_eval import jsontext
from spec_eval.errors import EnvironmentFault, UsageError

TIMEOUT_S = 30.0
HEAD = 200
KEY_VARIABLE = "OPENAI_API_KEY"
# An emulated server says on every answer what played it.
STAMP = "x-spec-eval-synthetic"
STAMPED_OWNER = "spec-eval-emulator"
# Its bodies say so too, for those who have nothing else: in the id, and in vLLM's fingerprint.
_STAMPED_ID, _STAMPED_FINGERPRINT = "emulated", "+emulator"


@dataclass(frozen=True, slots=True)
class Reply:
    """Status and text of an answer. synthetic: what an emulated server says of itself, null from a real one."""

    status: int
    text: str
    synthetic: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """root: scheme, host, port and path before /v1. The key is never printed."""

    root: str
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def at(cls, url: str, api_key: str | None = None) -> "Endpoint":
        """From a base URL with or without its trailing /v1."""
        if "@" in url.rpartition("://")[2].partition("/")[0]:
            raise UsageError("--base-url: holds a password; put the key into the variable that --api-key-env names")
        try:
            parts = urlsplit(url)
            usable = (
                parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not set(url) & set(" \t")
            )
        except ValueError:
            usable = False
        if set(url) & set("?#"):
            raise UsageError("--base-url: has a query or a fragment; give scheme, host, port and path alone")
        if not usable:
            raise UsageError(f"--base-url {url}: not a web address; write it as http://127.0.0.1:8000/v1")
        return cls(url.rstrip("/").removesuffix("/v1").rstrip("/"), api_key)

    @property
    def base_url(self) -> str:
        """With /v1, as the OpenAI client wants it."""
        return f"{self.root}/v1"

    def scrubbed(self, text: str) -> str:
        """A server's words without our key, which some servers repeat."""
        return text.replace(self.api_key, "***") if self.api_key else text

    def get(self, path: str, timeout_s: float = TIMEOUT_S) -> Reply:
        """GET root + path, past any proxy; an HTTP error is a Reply, no connection is an EnvironmentFault."""
        return self._ask(path, None, timeout_s)

    def post_json_or_none(self, path: str, body: dict[str, Any]) -> Any:
        """The parsed answer to a POST, or None where the server does not offer this."""
        try:
            reply = self._ask(path, json.dumps(body).encode(), TIMEOUT_S)
            return jsontext.loads(reply.text) if reply.status == 200 else None
        except (EnvironmentFault, json.JSONDecodeError):
            return None

    def _ask(self, path: str, body: bytes | None, timeout_s: float) -> Reply:
        headers = {"Accept": "*/*", **({"Content-Type": "application/json"} if body is not None else {})}
        request = urllib.request.Request(f"{self.root}{path}", body, headers)  # noqa: S310 # scheme checked in `at`
        if self.api_key:
            request.add_header("Authorization", f"Bearer {self.api_key}")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
        try:
            try:
                answer = opener.open(request, timeout=timeout_s)
            except urllib.error.HTTPError as refused:
                answer = refused
            with answer:
                text = self.scrubbed(answer.read().decode(errors="replace"))
                return Reply(answer.status, text, answer.headers.get(STAMP))
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise EnvironmentFault(
                f"no answer from {self.root}{path} ({reason}); start the server or mend --base-url"
            ) from error

    def get_json(self, path: str) -> Any:
        """The parsed body; EnvironmentFault names what came instead."""
        return self._parsed(path, self.get(path))

    def post_json(self, path: str, body: dict[str, Any], timeout_s: float = TIMEOUT_S) -> Any:
        """The parsed answer to a POST; EnvironmentFault names what came instead."""
        return self._parsed(path, self._ask(path, json.dumps(body).encode(), timeout_s))

    def _parsed(self, path: str, reply: Reply) -> Any:
        if reply.status in (401, 403):
            raise EnvironmentFault(
                f"{self.root}{path}: key refused (http {reply.status}); "
                "set the key in the variable that --api-key-env names"
            )
        if reply.status != 200:
            raise EnvironmentFault(f"{self.root}{path}: http {reply.status}: {head(reply.text)}; is this the server?")
        try:
            return jsontext.loads(reply.text)
        except json.JSONDecodeError as error:
            raise EnvironmentFault(
                f"{self.root}{path}: not JSON but {head(reply.text)!r}; is this the server's port?"
            ) from error

    def get_json_or_none(self, path: str) -> Any:
        """The parsed body, or None where the server does not offer this."""
        reply = self.get(path)
        try:
            return jsontext.loads(reply.text) if reply.status == 200 else None
        except json.JSONDecodeError:
            return None

    def metrics(self, path: str = "/metrics") -> str | None:
        """The Prometheus text at `path`, or None where the server shows none."""
        try:
            reply = self.get(path)
        except EnvironmentFault:
            return None
        return reply.text if reply.status == 200 else None

    def stamp(self) -> str | None:
        """Why the server's figures are not real, where it is an emulator; null where nothing says so.

        On the header of an answer, or, where something in between drops headers, the owner of its models.
        """
        reply = self.get("/v1/models")
        if reply.synthetic is not None:
            return reply.synthetic
        return f"{self.root} is an emulator: its models are {STAMPED_OWNER}'s" if STAMPED_OWNER in reply.text else None

    def models(self) -> list[dict[str, Any]]:
        """The entries of /v1/models."""
        body = self.get_json("/v1/models")
        entries = body.get("data") if isinstance(body, dict) else None
        if not isinstance(entries, list) or not all(
            isinstance(e, dict) and isinstance(e.get("id"), str) for e in entries
        ):
            raise EnvironmentFault(
                f"{self.root}/v1/models: no list of models in it; is this an OpenAI-compatible server?"
            )
        return entries


def is_emulated(body: Mapping[str, Any]) -> bool:
    """Whether an answer, or one event of its stream, bears an emulator's mark."""
    identity, fingerprint = body.get("id"), body.get("system_fingerprint")
    return (isinstance(identity, str) and _STAMPED_ID in identity) or (
        isinstance(fingerprint, str) and fingerprint.endswith(_STAMPED_FINGERPRINT)
    )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Where a server sends us on to, neither the key nor a measurement should follow."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        """None: the redirect is the answer."""


def key_from_environment(variable: str | None) -> str | None:
    """The server's key; None where no variable was named and the usual one, OPENAI_API_KEY, is not set.

    UsageError where a named one is not set; it never repeats what it was given, which may be the key itself.
    """
    if variable is None:
        return key_from_environment(KEY_VARIABLE) if os.environ.get(KEY_VARIABLE, "").strip() else None
    if not variable.isidentifier():
        raise UsageError("--api-key-env: not the name of a variable; put the key into one, and give that name")
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or not (key.isprintable() and " " not in key):
        raise UsageError(f"{variable}: holds characters that no key has; set it again")
    if not key:
        raise UsageError(
            "--api-key-env: no variable of that name is set; put the server's key into it, or drop the option"
        )
    return key


def head(text: str, length: int = HEAD) -> str:
    """The start of `text` on one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}…"
