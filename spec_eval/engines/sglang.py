"""SGLang: per-request counters on request, in `sglext.spec_tokens_details` at the response root.

Streamed answers carry them in a chunk whose `choices` is empty. What it calls proposed drafts is verify steps times
the drafts of a full step: nominal. Its accept length is completion tokens over verify steps, which is not 1 + A / S,
and stays with the raw counters. Read in the source of 0.5.23, not recorded.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spec_eval.engines.base import (
    SGLANG_TOKENS,
    Adapter,
    Identity,
    Reading,
    TokenCounter,
    count_or_none,
    table,
    text_or_none,
)
from spec_eval.engines.endpoint import Endpoint
from spec_eval.engines.launch import COMMON_CAUSES, COMMON_OWNED, Command, Launch, Launcher, program, rendered
from spec_eval.records import SpecCounters, is_count, padded_histogram

_STEPS = ("spec_verify_ct",)
# Newest name first; the older ones mean the same.
_ACCEPTED = ("spec_num_correct_drafts", "spec_accept_token_num", "spec_accepted_drafts", "spec_accepted_tokens")
_DRAFTED = ("spec_num_proposed_drafts", "spec_draft_token_num", "spec_draft_tokens")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")


class SglangLauncher(Launcher):
    """`sglang serve`; a request itself asks for counters, so the only switch is the one for /metrics."""

    words: ClassVar[Mapping[str, str]] = {
        "dflash2": "DFLASH",
        "dspark": "DSPARK",
        "mtp": "EAGLE",
        "eagle3": "EAGLE3",
        "draft-model": "STANDALONE",
        "ngram": "NGRAM",
        "none": "none",
    }
    counts: ClassVar[Mapping[str, int]] = {
        "speculative-num-draft-tokens": 1,
        "speculative-dspark-block-size": 0,
        "speculative-num-steps": 0,
    }
    owned: ClassVar[frozenset[str]] = COMMON_OWNED | {
        "model-path",
        "speculative-algorithm",
        "speculative-draft-model-path",
        "tp-size",
        "mem-fraction-static",
    }
    causes = COMMON_CAUSES

    def command(self, launch: Launch) -> Command:
        """Of the four ways in which SGLang is told k, the ones that this drafter wants, each derived from k."""
        found = program("sglang", variable="SPEC_EVAL_SGLANG_PYTHON", package="sglang", module="sglang.launch_server")
        flags: dict[str, object] = dict(launch.flags)
        if launch.served_name is not None:
            flags["served-model-name"] = launch.served_name
        if launch.tensor_parallelism is not None:
            flags["tp-size"] = launch.tensor_parallelism
        if launch.memory is not None:
            flags["mem-fraction-static"] = launch.memory
        flags |= {"host": launch.host, "port": launch.port}
        if launch.k is not None:
            flags |= self._speculative(launch, launch.k)
        flags["enable-metrics"] = True
        if launch.trust_remote_code:
            flags["trust-remote-code"] = True
        return Command((*found.prefix, "--model-path", launch.model, *rendered(flags)), launch.env, found.found or "")

    def _speculative(self, launch: Launch, k: int) -> dict[str, object]:
        """A chain always: of drafters that could draft trees, one branch."""
        flags: dict[str, object] = {"speculative-algorithm": self.words[launch.algorithm]}
        if launch.draft is not None:
            flags["speculative-draft-model-path"] = launch.draft
        if launch.algorithm in ("mtp", "eagle3", "draft-model"):
            flags |= {"speculative-num-steps": k, "speculative-eagle-topk": 1}
        if launch.algorithm == "ngram":
            flags["speculative-ngram-max-bfs-breadth"] = 1
        flags["speculative-num-draft-tokens"] = k + 1
        if launch.algorithm == "dspark":
            flags["speculative-dspark-block-size"] = k
        return flags | launch.speculative


@dataclass(frozen=True)
class Sglang(Adapter):
    """The adapter."""

    name: str = "sglang"
    nominal_drafted: bool = True
    metrics_prefix: str = "sglang:"
    generated_tokens: tuple[TokenCounter, ...] = (SGLANG_TOKENS,)
    no_totals: str = (
        "SGLang's spec_accept_length and spec_accept_rate are running averages, and it counts no totals in /metrics"
    )
    remedy: str = (
        "start SGLang 0.5.23 or newer with --speculative-algorithm; older builds do not know "
        "return_spec_tokens_details, which spec-eval sends"
    )
    metrics_remedy: str = "start SGLang with --enable-metrics; its averages are kept, not used"
    launcher: ClassVar[Launcher] = SglangLauncher()

    def extra_body(self, *, cold_cache: bool = True) -> dict[str, Any]:
        """The counters' switch, and a fresh `cache_salt`: no prefix of an earlier request is found again."""
        return {"return_spec_tokens_details": True, **({"cache_salt": uuid.uuid4().hex} if cold_cache else {})}

    def normalised(self, body: dict[str, Any]) -> dict[str, Any]:
        """Of /generate, whose counters stand in `meta_info` among everything else."""
        meta = body.get("meta_info")
        if "choices" in body or not isinstance(meta, dict):
            return body
        finish = meta.get("finish_reason")
        usage = {name: meta.get(name) for name in ("prompt_tokens", "completion_tokens", "reasoning_tokens")}
        details = {name: value for name, value in meta.items() if name.startswith("spec_")}
        return {
            "choices": [
                {
                    "index": 0,
                    "message": {"content": body.get("text")},
                    "finish_reason": finish.get("type") if isinstance(finish, dict) else finish,
                }
            ],
            "usage": usage | {"prompt_tokens_details": {"cached_tokens": meta.get("cached_tokens")}},
            "sglext": {"spec_tokens_details": details or None},
        }

    def reader(self, k: int | None, *, nominal_drafts: bool = False) -> "DetailsReader":
        """Without k, drafted / steps stands for it where that is whole."""
        return DetailsReader(k, nominal_drafts=nominal_drafts)

    def identify(self, endpoint: Endpoint) -> Identity:
        """From /v1/models and /server_info, which older servers call /get_server_info."""
        entries = endpoint.models()
        info = endpoint.get_json_or_none("/server_info") or endpoint.get_json_or_none("/get_server_info")
        args = table(info)
        context = (entries[0].get("max_model_len") if entries else None) or args.get("context_length")
        algorithm, topk = args.get("speculative_algorithm"), args.get("speculative_eagle_topk")
        tree = topk > 1 if isinstance(topk, int) else None
        k, flag = drafts_a_step(args)
        radix_off, tensor, version = (args.get(n) for n in ("disable_radix_cache", "tp_size", "version"))
        return Identity(
            models=tuple(entry["id"] for entry in entries),
            version=text_or_none(version),
            context=count_or_none(context),
            speculative=algorithm is not None if "speculative_algorithm" in args else None,
            k=k,
            k_flag=flag,
            tree=tree,
            prefix_caching=not radix_off if isinstance(radix_off, bool) else None,
            tensor_parallelism=count_or_none(tensor),
            details={"method": algorithm, "speculative_eagle_topk": topk},
        )


def drafts_a_step(args: dict[str, Any]) -> tuple[int | None, str | None]:
    """k in drafts, and the server's own setting; SGLang counts the root among its draft tokens, except for DSpark.

    A tree's size is no chain length, so k is null there.
    """
    topk = args.get("speculative_eagle_topk")
    name = "speculative_num_draft_tokens"
    if str(args.get("speculative_algorithm")).upper() == "DSPARK" and is_count(
        args.get("speculative_dspark_block_size")
    ):
        name = "speculative_dspark_block_size"
    value = args.get(name)
    if not isinstance(value, int) or not is_count(value) or value < 1:
        return None, None
    flag = f"{name} {value}"
    if isinstance(topk, int) and topk > 1:
        return None, f"{flag}, speculative_eagle_topk {topk}"
    return value - (name == "speculative_num_draft_tokens"), flag


class DetailsReader:
    """Waits for the one object that holds the counters."""

    def __init__(self, k: int | None, *, nominal_drafts: bool) -> None:
        self._k = k
        self._nominal_drafts = nominal_drafts
        self._details: Any = None
        self._seen = False
        self._choices = 0

    def event(self, event: dict[str, Any]) -> None:
        """One chunk, or a whole response body."""
        for choice in event.get("choices") or ():
            self._choices = max(self._choices, 1 + (choice.get("index") or 0))
        extension = event.get("sglext")
        if isinstance(extension, dict) and "spec_tokens_details" in extension:
            self._seen = True
            self._details = extension["spec_tokens_details"]

    def reading(self) -> Reading:
        """The counters, or why there are none."""
        raw = self._details
        if isinstance(raw, list) or self._choices > 1:
            number = len(raw) if isinstance(raw, list) else self._choices
            return Reading(None, f"null, n={number}", raw)
        if not isinstance(raw, dict):
            return Reading(None, "spec_tokens_details null" if self._seen else "no sglext.spec_tokens_details", raw)
        steps, accepted, drafted = (_first(raw, names) for names in (_STEPS, _ACCEPTED, _DRAFTED))
        if steps is None or accepted is None:
            missing = [names[0] for names, value in ((_STEPS, steps), (_ACCEPTED, accepted)) if value is None]
            return Reading(None, f"no {' and no '.join(missing)} in the answer", raw)
        k = self._k if self._k is not None else _drafts_each(drafted, steps)
        if k is None:
            return Reading(None, "k not known, give --k", raw)
        counters = SpecCounters(
            steps=steps,
            accepted=accepted,
            drafted=None if self._nominal_drafts else drafted,
            histogram=_histogram(_first(raw, _HISTOGRAM), steps, k),
            k=k,
        )
        return Reading(counters, None, raw)


def _first(raw: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((raw[name] for name in names if raw.get(name) is not None), None)


def _drafts_each(drafted: object, steps: object) -> int | None:
    """Drafted / steps where that is whole; without any step k does not matter, and is 0."""
    if steps == 0:
        return 0
    if not (isinstance(drafted, int) and isinstance(steps, int) and is_count(drafted) and is_count(steps)):
        return None
    return drafted // steps if drafted and drafted % steps == 0 else None


def _histogram(value: object, steps: object, k: int) -> Any:
    """An empty list stands for a missing one where there were steps."""
    if not isinstance(value, list) or (not value and steps != 0):
        return None
    padded = padded_histogram(value, k)
    return padded if padded is not None else tuple(value)
