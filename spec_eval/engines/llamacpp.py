"""llama.cpp: exact steps out of the timings that ride on every streamed chunk.

With `timings_per_token` each chunk carries cumulative `draft_n` and `draft_n_accepted`; they change once a
verification step, on the chunk of the step's first token. Without streaming only the sums are known: D, A and
the rate are exact, S and the positions are not to be had. Verified against the server's own Prometheus counters.
"""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spec_eval.engines.base import (
    LLAMACPP_TOKENS,
    Adapter,
    Identity,
    Reading,
    TokenCounter,
    count_or_none,
    table,
    text_or_none,
)
from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.launch import Command, Launch, Launcher
from spec_eval.records import SpecCounters, is_count

_FIELDS = ("predicted_n", "draft_n", "draft_n_accepted")


class LlamaCppLauncher(Launcher):
    """A child process of ours that runs the wheel xllamacpp; it ends with its standard input.

    Its flags: `slot-context`, tokens of one slot; `threads`; `match`, how many tokens an n-gram must match.
    """

    words: ClassVar[Mapping[str, str]] = {"ngram": "ngram-simple", "draft-model": "draft-simple", "none": "none"}
    on_cpu: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, int]] = {"slot-context": 2048, "threads": 2, "match": 3}
    known: ClassVar[frozenset[str] | None] = frozenset(defaults)

    def command(self, launch: Launch) -> Command:
        """Its settings go along as one JSON object; port 0 is a free one, announced on standard output."""
        settings = {name.replace("-", "_"): launch.flags.get(name, value) for name, value in self.defaults.items()}
        config = {
            "model_path": launch.model,
            "model_name": launch.served_name,
            "draft_path": launch.draft,
            "algorithm": self.words[launch.algorithm],
            "k": launch.k,
            "slots": launch.slots,
            "host": launch.host,
            "port": launch.port,
            "synthetic_rates": list(launch.synthetic_rates),
            **settings,
        }
        argv = (sys.executable, "-m", "spec_eval.engines.llamacpp_child", json.dumps(config))
        return Command(argv, launch.env, "xllamacpp")


@dataclass(frozen=True)
class LlamaCpp(Adapter):
    """The adapter."""

    name: str = "llamacpp"
    reserves_answer: bool = False
    metrics_prefix: str = "llamacpp:"
    generated_tokens: tuple[TokenCounter, ...] = (LLAMACPP_TOKENS,)
    remedy: str = (
        "llama.cpp hands its counters over in streamed timings; use a build from b10434 on, started with a drafter"
    )
    metrics_remedy: str = "start llama-server with --metrics"
    launcher: ClassVar[Launcher] = LlamaCppLauncher()

    @property
    def headers(self) -> dict[str, str]:
        """It promises keep-alive, yet closes the connection behind every streamed answer: a reuse would fail."""
        return {"Connection": "close"}

    def extra_body(self, *, cold_cache: bool = True) -> dict[str, Any]:
        """Timings on every chunk; no reuse of a slot's old prompt, which changes batch shapes and so near-ties."""
        return {"timings_per_token": True, **({"cache_prompt": False} if cold_cache else {})}

    def normalised(self, body: dict[str, Any]) -> dict[str, Any]:
        """Of /completion, whose text stands bare."""
        if "choices" in body or not isinstance(body.get("timings"), dict) or "content" not in body:
            return body
        finish = "length" if body.get("stop_type") == "limit" else "stop"
        usage = {"prompt_tokens": body.get("tokens_evaluated"), "completion_tokens": body.get("tokens_predicted")}
        choice = {"index": 0, "message": {"content": body["content"]}, "finish_reason": finish}
        return {"choices": [choice], "usage": usage, "timings": body["timings"]}

    def reader(self, k: int | None, *, nominal_drafts: bool = False) -> "TimingsReader":  # noqa: ARG002 # always exact
        """Without k, the longest draft seen in the answer stands for it."""
        return TimingsReader(k)

    def drafts_alone(self, raw: object) -> tuple[int, int] | None:
        """Of the timings of an answer that was not streamed."""
        drafted, accepted = (count_or_none(table(raw).get(name)) for name in ("draft_n", "draft_n_accepted"))
        return (drafted, accepted) if drafted and accepted is not None and accepted <= drafted else None

    def count_prompt(self, endpoint: Endpoint, model: str, messages: list[dict[str, str]]) -> int | None:  # noqa: ARG002 # one model a server
        """From /apply-template and /tokenize."""
        rendered = endpoint.post_json_or_none("/apply-template", {"messages": messages})
        prompt = rendered.get("prompt") if isinstance(rendered, dict) else None
        if not isinstance(prompt, str):
            return None
        answer = endpoint.post_json_or_none(
            "/tokenize", {"content": prompt, "add_special": True, "parse_special": True}
        )
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        return len(tokens) if isinstance(tokens, list) else None

    def identify(self, endpoint: Endpoint) -> Identity:
        """From /v1/models, /props and /slots."""
        entries = endpoint.models()
        meta = entries[0].get("meta") if entries else None
        props = table(endpoint.get_json_or_none("/props"))
        slots = endpoint.get_json_or_none("/slots")
        template = text_or_none(props.get("chat_template"))
        flags = [s.get("speculative") for s in slots if isinstance(s, dict)] if isinstance(slots, list) else []
        return Identity(
            models=tuple(entry["id"] for entry in entries),
            version=text_or_none(props.get("build_info")),
            context=count_or_none(table(meta).get("n_ctx")),
            speculative=any(flags) if flags and all(isinstance(flag, bool) for flag in flags) else None,
            chat_template_sha256=_sha256(template),
            details={
                "total_slots": props.get("total_slots"),
                "model_ftype": props.get("model_ftype"),
            },
        )


def _sha256(template: str | None) -> str | None:
    return None if template is None else hashlib.sha256(template.encode(errors="surrogatepass")).hexdigest()


class TimingsReader:
    """Cuts cumulative timings into verification steps.

    A chunk may be held back (half a character, a possible stop string); the next one then stands for several tokens.
    A step yields one token more than it accepted, so its end is known; only where more than one token lies in the
    dark behind that end, and the counters moved there, may two steps have become one: `exact` is false then.
    """

    def __init__(self, k: int | None) -> None:
        self._k = k
        self._last: dict[str, int] = {}
        self._seen_timings = False
        self._seen_chunk = False
        self._bad = False
        self._token = 0  # last token that a chunk told of
        self._step_end = 2  # first token that no known step reaches; token 1 comes from reading the prompt
        self._accepted: list[int] = []
        self._drafted: list[int] = []
        self._exact = True
        self._streamed = False

    def event(self, event: dict[str, Any]) -> None:
        """One chunk, or a whole response body."""
        timings = event.get("timings")
        if event.get("object") == "chat.completion.chunk":
            self._streamed = True
        if not isinstance(timings, dict):
            return
        self._seen_timings = True
        counts = {name: timings.get(name, 0) for name in _FIELDS}
        if not all(map(is_count, counts.values())):
            self._bad = True
        if self._bad:
            self._last = counts
            return
        self._take(counts["predicted_n"], counts["draft_n"], counts["draft_n_accepted"])
        self._last = counts

    def _take(self, token: int, drafted: int, accepted: int) -> None:
        step_drafted = drafted - self._last.get("draft_n", 0)
        step_accepted = accepted - self._last.get("draft_n_accepted", 0)
        if step_drafted or step_accepted:
            first_dark = max(self._step_end, self._token + 1)
            if token - first_dark > 0:
                self._exact = False
            if step_drafted < 0 or step_accepted < 0:
                self._bad = True
            self._drafted.append(step_drafted)
            self._accepted.append(step_accepted)
            self._step_end = min(first_dark, max(token, self._token + 1)) + step_accepted + 1
        self._token = max(self._token, token)

    def reading(self) -> Reading:
        """Steps where the answer was streamed; only the sums where it was not."""
        raw = dict(self._last)
        if not self._seen_timings:
            return Reading(None, "no timings in the answer", None)
        if self._bad:
            return Reading(None, "timings are not counts", raw)
        drafted = self._last.get("draft_n", 0)
        if not self._streamed and drafted:
            rate = self._last["draft_n_accepted"] / drafted
            return Reading(
                None, f"steps not reported: not streamed, so only the acceptance rate is known ({rate:.2%})", raw
            )
        k = self._k if self._k is not None else max(self._drafted, default=0)
        histogram = [0] * (max([k, *self._accepted]) + 1)
        for accepted in self._accepted:
            histogram[accepted] += 1
        return Reading(
            SpecCounters(
                steps=len(self._drafted),
                accepted=sum(self._accepted),
                drafted=sum(self._drafted),
                histogram=tuple(histogram),
                k=k,
                per_step_accepted=tuple(self._accepted),
                per_step_drafted=tuple(self._drafted),
                source="timings",
                exact=self._exact,
            ),
            None,
            raw,
        )
