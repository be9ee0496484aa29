"""One answer, taken down event by event."""

from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from spec_eval import jsontext
from spec_eval.drivers.sse import DONE, EventSplitter
from spec_eval.engines import CounterReader
from spec_eval.engines.endpoint import head, is_emulated
from spec_eval.records import is_count

_CONTEXT_WORDS = ("context length", "context size", "context window", "maximum context", "exceed_context")


class AnswerError(Exception):
    """The answer cannot be used. Its text is "reason" or "reason: detail"; the reason is what gets counted."""


@dataclass(slots=True)
class Answer:
    """What has come so far. Times are nanoseconds on the caller's clock; usage is the server's.

    received, begun: whether a byte, and whether an event of a stream has come. emulated: whether anything in it bears
    an emulator's mark.
    """

    reader: CounterReader
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    first_token_ns: int | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    done: bool = False
    received: bool = False
    begun: bool = False
    emulated: bool = False
    splitter: EventSplitter = field(default_factory=EventSplitter)

    def feed(self, data: bytes, now_ns: int) -> None:
        """Take one read of a stream; AnswerError where the server reports a failure or speaks no JSON."""
        self.received = True
        for event in self.splitter.feed(data):
            if event == DONE:
                self.done = True
            else:
                self._shaped(_parse(event), now_ns)

    def close(self) -> None:
        """The stream is at its end; AnswerError where it is not the end of an answer."""
        if not self.received:
            raise AnswerError("empty body")
        if not self.done and DONE not in self.splitter.feed(b"\n\n"):  # some servers forget the last blank line
            raise AnswerError("stream ended before [DONE]")
        if not self.begun:
            raise AnswerError("no answer before [DONE]")

    def whole(self, body: bytes) -> None:
        """Take an answer that was not streamed; no first-token time is known then."""
        if not body.strip():
            raise AnswerError("empty body")
        self.whole_object(_parse(body))

    def whole_object(self, event: object) -> None:
        """Take a parsed response body; AnswerError where it is none."""
        try:
            self._whole(event)
        except (AttributeError, LookupError, TypeError) as error:
            raise AnswerError(f"not a response body: {head(str(event))}") from error

    def _whole(self, event: object) -> None:
        self.received = True
        if not isinstance(event, dict):
            raise AnswerError("no response body" if event is None else f"not a JSON object: {head(str(event))}")
        self.emulated = is_emulated(event)
        self._check(event)
        if not isinstance(event.get("choices"), list) or not event["choices"]:
            raise AnswerError(f"no choices in the answer: {head(str(event))}")
        for choice in event["choices"]:
            self._choice(choice)
        self._usage(event.get("usage"))
        self.reader.event(event)
        self.done = True

    def _choice(self, choice: object) -> None:
        """Of a chat answer, with a message, or of a completion, with a text."""
        if not isinstance(choice, dict):
            raise AnswerError("a choice that is no JSON object")
        message = choice.get("message")
        self._delta(message if isinstance(message, dict) else {"content": choice.get("text")})
        self._finish(choice.get("finish_reason"))

    def _finish(self, reason: object) -> None:
        if reason:
            self.finish_reason = reason if isinstance(reason, str) else str(reason)

    def _shaped(self, event: dict[str, Any], now_ns: int) -> None:
        try:
            self._event(event, now_ns)
        except (AttributeError, LookupError, TypeError) as error:
            raise AnswerError(f"not a chat chunk: {head(str(event))}") from error

    def _event(self, event: dict[str, Any], now_ns: int) -> None:
        self.begun = True
        self.emulated = self.emulated or is_emulated(event)
        choices = event.get("choices")
        if not choices:
            self._check(event)
            self._usage(event.get("usage"))
        else:
            if "error" in event:
                self._check(event)
            choice = choices[0]
            delta = choice.get("delta")
            if delta and self._delta(delta) and self.first_token_ns is None:
                self.first_token_ns = now_ns
            self._finish(choice.get("finish_reason"))
            if usage := event.get("usage"):
                self._usage(usage)
        self.reader.event(event)

    def _delta(self, delta: dict[str, Any]) -> bool:
        """Whether it carries the model's words, of either kind; both names of reasoning text are in use."""
        content = delta.get("content")
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if content:
            self.text.append(_words(content))
        if reasoning:
            self.reasoning.append(_words(reasoning))
        return bool(content or reasoning or delta.get("tool_calls"))

    def _usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            self.usage = usage

    def _check(self, event: dict[str, Any]) -> None:
        error = event.get("error")
        # vLLM marks the object; an older llama.cpp sends it bare, in a field of its own
        if error is None and (event.get("object") == "error" or ("code" in event and "message" in event)):
            error = event
        if error is not None:
            message = error.get("message") if isinstance(error, dict) else error
            raise AnswerError(f"server error: {head(str(message))}")

    def count(self, name: str, *, of: str | None = None) -> int | None:
        """A usage count, perhaps out of its `of` details; null where it is missing or no count."""
        table = self.usage.get(of) if of else self.usage
        value = table.get(name) if isinstance(table, dict) else None
        return value if is_count(value) else None


def is_context_limit(text: str) -> bool:
    """Whether a server's words say that a prompt is too long for it."""
    return any(word in text.lower() for word in _CONTEXT_WORDS)


def _words(value: object) -> str:
    if not isinstance(value, str):
        raise AnswerError(f"content is no text: {head(str(value))}")
    return value


def _parse(event: bytes) -> dict[str, Any]:
    try:
        parsed = from_json(event)
    except ValueError:
        try:
            parsed = jsontext.loads(event)  # slower, and takes half a surrogate pair, which a server may well send
        except ValueError as error:
            raise AnswerError(f"not JSON: {head(event.decode(errors='replace'))}") from error
    if not isinstance(parsed, dict):
        raise AnswerError(f"not a JSON object: {head(event.decode(errors='replace'))}")
    return parsed
