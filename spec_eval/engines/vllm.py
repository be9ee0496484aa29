"""vLLM: per-request counters at the response root, in `metrics.speculative_decoding`.

Streamed answers carry them in the last chunk, whose `choices` is empty, and only when usage is asked for; null keys
are left out there. They are null, not zero, for answers ended by a stop string, for n > 1 and for several prompts.
Recorded on 0.32.0, where they equal the server's own Prometheus counters.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spec_eval.engines.base import (
    VLLM_CACHE,
    VLLM_TOKENS,
    Adapter,
    CacheCounters,
    Identity,
    Reading,
    TokenCounter,
    answer_or_none,
    count_or_none,
    table,
    text_or_none,
)
from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.launch import COMMON_CAUSES, COMMON_OWNED, Command, Launch, Launcher, program, rendered
from spec_eval.records import SpecCounters, is_count, padded_histogram


class VllmLauncher(Launcher):
    """`vllm serve`, everything about drafting in one JSON flag, and the switch for counters by request."""

    words: ClassVar[Mapping[str, str]] = {
        "dflash2": "dflash",
        "dspark": "dspark",
        "mtp": "mtp",
        "eagle3": "eagle3",
        "draft-model": "draft_model",
        "ngram": "ngram",
        "suffix": "suffix",
        "none": "none",
    }
    counts: ClassVar[Mapping[str, int]] = {"num_speculative_tokens": 0}
    owned: ClassVar[frozenset[str]] = COMMON_OWNED | {
        "speculative-config",
        "per-request-spec-decode-metrics",
        "tensor-parallel-size",
        "gpu-memory-utilization",
        "method",
        "enable_adaptive_verification",
    }
    adaptive: ClassVar[bool] = True
    on_cpu: ClassVar[bool] = True
    causes = COMMON_CAUSES

    def command(self, launch: Launch) -> Command:
        """The counter switch only goes with a drafter: vLLM does not start otherwise."""
        found = program(
            "vllm", variable="SPEC_EVAL_VLLM_PYTHON", package="vllm", module="vllm.entrypoints.openai.api_server"
        )
        flags: dict[str, object] = dict(launch.flags)
        if launch.served_name is not None:
            flags["served-model-name"] = launch.served_name
        if launch.tensor_parallelism is not None:
            flags["tensor-parallel-size"] = launch.tensor_parallelism
        if launch.memory is not None:
            flags["gpu-memory-utilization"] = launch.memory
        flags |= {"host": launch.host, "port": launch.port}
        if launch.k is not None:
            flags["speculative-config"] = json.dumps(self._speculative(launch))
            flags["per-request-spec-decode-metrics"] = "detailed"
        if launch.trust_remote_code:
            flags["trust-remote-code"] = True
        model = ("--model", launch.model) if found.is_module else (launch.model,)
        return Command((*found.prefix, *model, *rendered(flags)), launch.env, found.found or "")

    def _speculative(self, launch: Launch) -> dict[str, Any]:
        settings: dict[str, Any] = {"method": self.words[launch.algorithm]}
        if launch.draft is not None:
            settings["model"] = launch.draft
        settings["num_speculative_tokens"] = launch.k
        if launch.adaptive:
            settings["enable_adaptive_verification"] = True
        return settings | launch.speculative


@dataclass(frozen=True)
class Vllm(Adapter):
    """The adapter."""

    name: str = "vllm"
    tells_k: bool = True
    pads_cache_hits: bool = True
    metrics_prefix: str = "vllm:"
    generated_tokens: tuple[TokenCounter, ...] = (VLLM_TOKENS,)
    prefix_cache: CacheCounters | None = VLLM_CACHE
    remedy: str = (
        "start vLLM with --speculative-config and with --per-request-spec-decode-metrics summary (or detailed)"
    )
    metrics_remedy: str = "start vLLM without --disable-log-stats"
    launcher: ClassVar[Launcher] = VllmLauncher()

    def extra_body(self, *, cold_cache: bool = True) -> dict[str, Any]:
        """A fresh `cache_salt`: no prefix of an earlier request is found again.

        A prefix-cache hit that leaves one token of the prompt is padded with k placeholder drafts: a phantom step,
        counted as drafted k, accepted 0.
        """
        return {"cache_salt": uuid.uuid4().hex} if cold_cache else {}

    def reader(self, k: int | None, *, nominal_drafts: bool = False) -> "MetricsReader":
        """k comes from the answer; the given one stands in where an older server leaves it out."""
        return MetricsReader(k, nominal_drafts=nominal_drafts)

    def count_prompt(self, endpoint: Endpoint, model: str, messages: list[dict[str, str]]) -> int | None:
        """From /tokenize, which renders the chat template itself."""
        answer = endpoint.post_json_or_none("/tokenize", {"model": model, "messages": messages})
        count = answer.get("count") if isinstance(answer, dict) else None
        return count if is_count(count) else None

    def identify(self, endpoint: Endpoint) -> Identity:
        """From /v1/models and /version; more from /server_info where the server runs in its development mode."""
        entries = endpoint.models()
        version = endpoint.get_json_or_none("/version")
        info = endpoint.get_json_or_none("/server_info?config_format=json")
        config = table(info).get("vllm_config")
        speculative, cache, parallel = (
            table(table(config).get(f"{part}_config")) for part in ("speculative", "cache", "parallel")
        )
        context = entries[0].get("max_model_len") if entries else None
        return Identity(
            models=tuple(entry["id"] for entry in entries),
            version=text_or_none(table(version).get("version")),
            context=count_or_none(context),
            speculative=bool(speculative) if isinstance(config, dict) else None,
            k=count_or_none(speculative.get("num_speculative_tokens")),
            adaptive=answer_or_none(speculative.get("enable_adaptive_verification")),
            draft_sampling=text_or_none(speculative.get("draft_sample_method")),
            prefix_caching=answer_or_none(cache.get("enable_prefix_caching")),
            tensor_parallelism=count_or_none(parallel.get("tensor_parallel_size")),
            details={"model_root": entries[0].get("root") if entries else None, "method": speculative.get("method")},
        )


class MetricsReader:
    """Waits for the one object that holds the counters."""

    def __init__(self, k: int | None, *, nominal_drafts: bool) -> None:
        self._k = k
        self._nominal_drafts = nominal_drafts
        self._metrics: Any = _ABSENT
        self._choices = 0
        self._stop_string = False
        self._streamed = False
        self._usage = False

    def event(self, event: dict[str, Any]) -> None:
        """One chunk, or a whole response body."""
        for choice in event.get("choices") or ():
            self._choices = max(self._choices, 1 + (choice.get("index") or 0))
            # A number is the id of a stop token: that answer has its counters.
            self._stop_string = self._stop_string or isinstance(choice.get("stop_reason"), str)
        self._streamed = self._streamed or str(event.get("object")).endswith(".chunk")
        self._usage = self._usage or bool(event.get("usage"))
        if "metrics" in event:
            self._metrics = event["metrics"]

    def reading(self) -> Reading:
        """The counters, or why there are none."""
        metrics = self._metrics
        if isinstance(metrics, dict) and isinstance(metrics.get("speculative_decoding"), dict):
            return self._counters(metrics["speculative_decoding"])
        return Reading(None, self._reason(), None if metrics is _ABSENT else metrics)

    def _reason(self) -> str:
        metrics = self._metrics
        if self._choices > 1:
            return f"null, n={self._choices}"
        if self._stop_string:
            return "null, ended by a stop string"
        if metrics is None:
            return "metrics null"
        if isinstance(metrics, dict):
            there = "speculative_decoding" in metrics
            return "speculative_decoding null" if there else "metrics without speculative_decoding"
        if self._streamed and not self._usage:
            return "no usage chunk, which would carry the counters: ask for stream_options.include_usage"
        return "no metrics object"

    def _counters(self, raw: dict[str, Any]) -> Reading:
        """Values as sent: `records.breach` judges them, so that a contradiction is counted under its name."""
        histogram = raw.get("acceptance_histogram")
        k = raw.get("num_spec_tokens")
        if k is None:
            k = self._k
        if k is None and isinstance(histogram, list) and histogram:
            k = len(histogram) - 1
        if k is None:
            return Reading(None, "k not in the answer, give --k", raw)
        missing = [name for name in ("num_spec_steps", "num_accepted_draft_tokens") if raw.get(name) is None]
        if missing:
            return Reading(None, f"no {' and no '.join(missing)} in the answer", raw)
        return Reading(
            SpecCounters(
                steps=raw["num_spec_steps"],
                accepted=raw["num_accepted_draft_tokens"],
                drafted=None if self._nominal_drafts else raw.get("num_draft_tokens"),
                histogram=_histogram(histogram, k),
                k=k,
                per_step_accepted=_steps(raw.get("per_step_accepted")),
                per_step_drafted=None if self._nominal_drafts else _steps(raw.get("per_step_drafted")),
            ),
            None,
            raw,
        )


_ABSENT = object()


def _histogram(value: object, k: object) -> Any:
    if not isinstance(value, list):
        return None
    padded = padded_histogram(value, k) if isinstance(k, int) and is_count(k) else None
    return padded if padded is not None else tuple(value)


def _steps(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else None
