"""Any OpenAI-compatible server: no counters by request, only the server's own totals at the edges of a run.

What the totals hold is everything that the server did in between, so the figures are labelled server-wide.
"""

from dataclasses import dataclass
from typing import Any

from spec_eval.engines.base import (
    LLAMACPP_TOKENS,
    SGLANG_TOKENS,
    VLLM_TOKENS,
    Adapter,
    Identity,
    Reading,
    TokenCounter,
    table,
    text_or_none,
)
from spec_eval.engines.endpoint import Endpoint

NO_COUNTERS = "server-wide counters only"


@dataclass(frozen=True)
class ServerWide(Adapter):
    """The adapter. Its Prometheus families are another engine's: `scrape.find` names them."""

    name: str = "scrape"
    by_request: bool = False
    cools_cache: bool = False
    reserves_answer: bool = False
    metrics_prefix: str = ""
    generated_tokens: tuple[TokenCounter, ...] = (VLLM_TOKENS, SGLANG_TOKENS, LLAMACPP_TOKENS)
    remedy: str = (
        "its /metrics must hold vllm:spec_decode_* or llamacpp:spec_decode_* totals: start vLLM with "
        "--speculative-config and without --disable-log-stats, or llama-server with --metrics and a drafter; "
        "SGLang's gauges are running averages and cannot be used, take --engine sglang"
    )
    metrics_remedy: str = "start vLLM without --disable-log-stats, or llama-server with --metrics"

    @property
    def headers(self) -> dict[str, str]:
        """It may be a server that closes a connection behind a streamed answer without a word, as llama.cpp does."""
        return {"Connection": "close"}

    def extra_body(self, *, cold_cache: bool = True) -> dict[str, Any]:  # noqa: ARG002 # it may refuse what it does not know
        """Nothing of any engine's own."""
        return {}

    def reader(self, k: int | None, *, nominal_drafts: bool = False) -> "NoReader":  # noqa: ARG002 # nothing to read
        """One that finds nothing."""
        return NoReader()

    def identify(self, endpoint: Endpoint) -> Identity:
        """From /v1/models and, where there is one, /version."""
        entries = endpoint.models()
        version = endpoint.get_json_or_none("/version")
        return Identity(
            models=tuple(entry["id"] for entry in entries), version=text_or_none(table(version).get("version"))
        )


class NoReader:
    """Reads nothing: an answer's own counters would be another engine's."""

    def event(self, event: dict[str, Any]) -> None:
        """Passed over."""

    def reading(self) -> Reading:
        """No counters, ever."""
        return Reading(None, NO_COUNTERS, None)
