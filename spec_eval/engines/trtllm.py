"""TensorRT-LLM: per-request counters on the choice, in `speculative_decoding`.

Older builds give an average only, `avg_decoded_tokens_per_iter`; what is worked out from it is marked inferred. Some
of its key names are vLLM's, which is one reason why an engine is declared and never guessed. Its /metrics is no
Prometheus text and drains when read, so it is never asked for. Read in the source, not recorded.
"""

import math
from dataclasses import dataclass
from typing import Any

from spec_eval.engines.base import Adapter, Identity, Reading, table, text_or_none
from spec_eval.engines.endpoint import Endpoint
from spec_eval.records import SpecCounters, is_count, padded_histogram

_AVERAGE = "avg_decoded_tokens_per_iter"
_COUNTS = ("num_spec_steps", "total_accepted_draft_tokens", "total_draft_tokens")
NOT_POPULATED = "counters not populated"


@dataclass(frozen=True)
class TrtLlm(Adapter):
    """The adapter."""

    name: str = "trtllm"
    tells_k: bool = True
    cools_cache: bool = False
    metrics_path: str = "/prometheus/metrics"
    metrics_prefix: str = "trtllm_"
    no_totals: str = (
        "TensorRT-LLM counts no verification steps in Prometheus, and its acceptance_length gauge is the last "
        "iteration's value"
    )
    remedy: str = (
        "start trtllm-serve with a speculative_config and return_perf_metrics: true in its extra options, in a build "
        "whose choices carry speculative_decoding or avg_decoded_tokens_per_iter"
    )
    metrics_remedy: str = "start trtllm-serve with return_perf_metrics: true"

    def extra_body(self, *, cold_cache: bool = True) -> dict[str, Any]:  # noqa: ARG002 # unknown fields are refused
        """Nothing: the server is told at its start, and refuses fields that it does not know."""
        return {}

    def reader(self, k: int | None, *, nominal_drafts: bool = False) -> "ChoiceReader":
        """k comes from the answer; the given one stands in where it is left out."""
        return ChoiceReader(k, nominal_drafts=nominal_drafts)

    def identify(self, endpoint: Endpoint) -> Identity:
        """From /v1/models and /version."""
        entries = endpoint.models()
        version = endpoint.get_json_or_none("/version")
        return Identity(
            models=tuple(entry["id"] for entry in entries),
            version=text_or_none(table(version).get("version")),
        )


class ChoiceReader:
    """Keeps the last counters and the last average that the choice showed."""

    def __init__(self, k: int | None, *, nominal_drafts: bool) -> None:
        self._k = k
        self._nominal_drafts = nominal_drafts
        self._raw: dict[str, Any] = {}
        self._choices = 0
        self._completion: Any = None
        self._text = False

    def event(self, event: dict[str, Any]) -> None:
        """One chunk, or a whole response body."""
        for choice in event.get("choices") or ():
            self._choices = max(self._choices, 1 + (choice.get("index") or 0))
            words = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
            self._text = self._text or bool(words.get("content") or words.get("reasoning_content"))
            self._raw |= {n: choice[n] for n in ("speculative_decoding", _AVERAGE) if choice.get(n) is not None}
        usage = event.get("usage")
        if isinstance(usage, dict):
            self._completion = usage.get("completion_tokens", self._completion)

    def reading(self) -> Reading:
        """The counters, or why there are none."""
        raw = dict(self._raw) or None
        if self._choices > 1:
            return Reading(None, f"null, n={self._choices}", raw)
        counted = self._raw.get("speculative_decoding")
        if isinstance(counted, dict):
            return self._counted(counted)
        if _AVERAGE in self._raw:
            return self._inferred(self._raw[_AVERAGE])
        return Reading(None, f"no speculative_decoding on the choice, and no {_AVERAGE}", raw)

    def _counted(self, found: dict[str, Any]) -> Reading:
        """Values as sent: `records.breach` judges them."""
        missing = [name for name in _COUNTS[:2] if found.get(name) is None]
        if missing:
            return Reading(None, f"no {' and no '.join(missing)} in the answer", self._raw)
        histogram = found.get("acceptance_histogram")
        zeros = all(not found.get(name) for name in _COUNTS) and not (isinstance(histogram, list) and any(histogram))
        if zeros and (self._text or self._completion):
            return Reading(None, NOT_POPULATED, self._raw)
        k = found.get("num_spec_tokens")
        if k is None:
            k = self._k
        if k is None and isinstance(histogram, list) and histogram:
            k = len(histogram) - 1
        if k is None:
            return Reading(None, "k not in the answer, give --k", self._raw)
        padded = padded_histogram(histogram, k) if isinstance(histogram, list) and is_count(k) else None
        counters = SpecCounters(
            steps=found["num_spec_steps"],
            accepted=found["total_accepted_draft_tokens"],
            drafted=None if self._nominal_drafts else found.get("total_draft_tokens"),
            histogram=padded if padded is not None or not isinstance(histogram, list) else tuple(histogram),
            k=k,
        )
        return Reading(counters, None, self._raw)

    def _inferred(self, average: object) -> Reading:
        """Tokens over iterations, turned round: iterations for S, the tokens beyond one each for A."""
        completion = self._completion
        if not isinstance(average, int | float) or isinstance(average, bool) or not math.isfinite(average):
            return Reading(None, f"{_AVERAGE} is no number", self._raw)
        if not is_count(completion) or not completion:
            return Reading(None, f"{_AVERAGE} without a count of completion tokens", self._raw)
        if average < 1:
            return Reading(None, NOT_POPULATED, self._raw)
        if self._k is None:
            return Reading(None, "k not in the answer, give --k", self._raw)
        steps = round(completion / average)
        counters = SpecCounters(
            steps=steps,
            accepted=completion - steps,
            drafted=None,
            histogram=None,
            k=self._k,
            source="inferred",
        )
        return Reading(counters, None, self._raw)
