"""A request's body, read as an engine reads it."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from spec_eval.emulator import words


class BadAsk(ValueError):
    """The request cannot be answered; status is HTTP's, kind the engine's name for it."""

    def __init__(self, message: str, status: int = 400, kind: str = "BadRequestError", param: str | None = None):
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, checked. Each prompt of a completion is one of `contents`; a chat has one.

    contents: canonical text of each prompt; it is what an identity is made of. first_user: the first user text.
    """

    chat: bool
    model: str | None
    contents: tuple[str, ...]
    first_user: str
    prompt_tokens: tuple[int, ...]
    temperature: float
    max_tokens: int
    min_tokens: int
    n: int
    stream: bool
    usage: bool
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    thinking: bool
    seed: int | None
    salt: str
    spec_details: bool

    @property
    def single(self) -> bool:
        """One prompt, one answer: only then do engines count by request."""
        return self.n == 1 and len(self.contents) == 1


def parse(body: Any, *, chat: bool, context: int) -> Ask:
    """BadAsk names what is wrong, in an engine's words."""
    if not isinstance(body, dict):
        raise BadAsk("the body is not a JSON object")
    if chat:
        messages = _messages(body)
        contents: tuple[str, ...] = (json.dumps(messages, ensure_ascii=False, sort_keys=True),)
        tokens: tuple[int, ...] = (words.count_chat([text for _, text in messages]),)
        first_user = next((text for role, text in messages if role == "user"), "")
    else:
        prompts = body.get("prompt")
        contents = (prompts,) if isinstance(prompts, str) else tuple(prompts or ())
        if not contents or not all(isinstance(text, str) for text in contents):
            raise BadAsk("prompt must be a text or a list of texts", param="prompt")
        tokens, first_user = tuple(max(1, words.count(text)) for text in contents), contents[0]
    limit = _limit(body, max(tokens), context, chat=chat)
    options, template, stop = (body.get(name) or {} for name in ("stream_options", "chat_template_kwargs", "stop"))
    return Ask(
        chat=chat,
        model=body.get("model"),
        contents=contents,
        first_user=first_user,
        prompt_tokens=tokens,
        temperature=float(1.0 if body.get("temperature") is None else body["temperature"]),
        max_tokens=limit,
        min_tokens=limit if body.get("ignore_eos") else int(body.get("min_tokens") or 0),
        n=int(body.get("n") or 1),
        stream=bool(body.get("stream")),
        usage=bool(options.get("include_usage")),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=tuple(body.get("stop_token_ids") or ()),
        thinking=bool(template.get("enable_thinking")),
        seed=body.get("seed"),
        salt=str(body.get("cache_salt") or ""),
        spec_details=bool(body.get("return_spec_tokens_details")),
    )


def identity(row: str, content: str) -> str:
    """Of a prompt under a row: retries and repeats share it."""
    return hashlib.sha256(f"{row}|{content}".encode()).hexdigest()


def _messages(body: dict[str, Any]) -> list[tuple[str, str]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadAsk("messages must be a list that is not empty", param="messages")
    return [(str(m.get("role")), _text(m.get("content"))) for m in messages if isinstance(m, dict)]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _limit(body: dict[str, Any], prompt: int, context: int, *, chat: bool) -> int:
    """max_tokens, or the room that is left; refused where prompt and answer do not fit the context."""
    given = body.get("max_completion_tokens") or body.get("max_tokens")
    limit = given if given is not None else (context - prompt if chat else 16)
    if not isinstance(limit, int) or (given is not None and limit < 1):
        raise BadAsk(f"max_tokens must be at least 1, got {given}.", param="max_tokens")
    if limit < 1 or prompt + limit > context:
        raise BadAsk(
            f"This model's maximum context length is {context} tokens. However, you requested {limit} output tokens "
            f"and your prompt contains {prompt} input tokens. Please reduce the length of the input prompt or the "
            "number of requested output tokens.",
            param="input_tokens",
        )
    return limit
