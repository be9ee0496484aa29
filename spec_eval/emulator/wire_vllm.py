"""vLLM's format, key by key as its 0.32.0 sent it; the recorded answers in tests/data/vllm are the reference.

Streamed chunks leave out keys that are null where vLLM leaves them out, and keep them where it keeps them.
"""

from dataclasses import dataclass
from typing import Any

from spec_eval.emulator.answers import Answer
from spec_eval.emulator.reply import Facts, Json, Prometheus, Reply, chunk
from spec_eval.emulator.totals import Totals
from spec_eval.engines.endpoint import STAMPED_OWNER

VERSION = "0.32.0+emulator"
FINGERPRINT = f"vllm-{VERSION}"
_COUNTERS = (
    ("num_drafts", "Number of spec decoding drafts."),
    ("num_draft_tokens", "Number of draft tokens."),
    ("num_accepted_tokens", "Number of accepted tokens."),
)


@dataclass(frozen=True)
class VllmWire:
    """The format."""

    facts: Facts
    metrics_path: str = "/metrics"

    def opening(self, reply: Reply, index: int) -> Json | None:
        """A chat's role; completions begin with their text."""
        if not reply.ask.chat:
            return None
        choice = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return chunk(reply, [choice]) | {"prompt_token_ids": None, "prompt_text": None}

    def delta(self, reply: Reply, index: int, reasoning: str, content: str, *, last: bool) -> list[Json]:
        """Reasoning and content in one chunk each; the last one carries the end."""
        answer = reply.answers[index]
        if not reply.ask.chat:
            choice = {
                "index": index,
                "text": reasoning + content,
                "logprobs": None,
                "finish_reason": answer.finish if last else None,
                "stop_reason": answer.stop_reason if last else None,
                "prompt_token_ids": None,
                "token_ids": None,
            }
            return [self._ended(reply, chunk(reply, [choice]), last)]
        deltas = [{"reasoning": reasoning}] if reasoning else []
        deltas += [{"content": content}] if content or not deltas else []
        chunks = []
        for number, delta in enumerate(deltas, 1):
            end = last and number == len(deltas)
            choice = {
                "index": index,
                "delta": delta,
                "logprobs": None,
                "finish_reason": answer.finish if end else None,
                **({"stop_reason": answer.stop_reason} if end else {}),
                "token_ids": None,
            }
            chunks.append(self._ended(reply, chunk(reply, [choice]), end))
        return chunks

    def _ended(self, reply: Reply, event: Json, last: bool) -> Json:
        """Without a usage chunk behind it, the last chunk of an answer carries the fingerprint."""
        return event | {"system_fingerprint": FINGERPRINT} if last and not reply.ask.usage else event

    def closing(self, reply: Reply) -> list[Json]:
        """The usage chunk, with the counters, where usage was asked for."""
        if not reply.ask.usage or not reply.usage:
            return []
        usage = {k: v for k, v in self._usage(reply).items() if v is not None}
        if details := usage.get("prompt_tokens_details"):
            usage["prompt_tokens_details"] = {k: v for k, v in details.items() if v is not None}
        metrics = _without_null(self._metrics(reply))
        event = chunk(reply, []) | {"usage": usage, "system_fingerprint": FINGERPRINT}
        return [event | ({"metrics": metrics} if metrics else {})]

    def whole(self, reply: Reply) -> Json:
        """Of both kinds; a chat has the prompt's keys at the root, a completion at the choice."""
        chat = reply.ask.chat
        body = {
            "id": reply.id,
            "object": "chat.completion" if chat else "text_completion",
            "created": reply.created,
            "model": reply.model,
            "choices": [(_message if chat else _text)(i, answer) for i, answer in enumerate(reply.answers)],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self._usage(reply) if reply.usage else None,
        }
        if chat:
            body |= {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
        return body | {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": self._metrics(reply)}

    def _usage(self, reply: Reply) -> Json:
        details = {"cached_tokens": reply.cached_tokens, "created_cache_tokens": 0, "multimodal_tokens": None}
        return {
            "prompt_tokens": reply.prompt_tokens,
            "total_tokens": reply.prompt_tokens + reply.completion_tokens,
            "completion_tokens": reply.completion_tokens,
            "prompt_tokens_details": details if self.facts.prompt_details else None,
            "completion_tokens_details": None,
        }

    def _metrics(self, reply: Reply) -> Json | None:
        """Null for several answers; without its counters for one that a stop string ended."""
        if not reply.ask.single or not reply.counters or self.facts.detail == "none":
            return None
        answer, generating = reply.answers[0], reply.whole_s - reply.first_s
        later = answer.tokens - 1
        return {
            "time_to_first_token_ms": reply.first_s * 1000,
            "generation_time_ms": generating * 1000,
            "queue_time_ms": 0.0,
            "mean_itl_ms": generating * 1000 / later if later else None,
            "tokens_per_second": answer.tokens / reply.whole_s if reply.whole_s else None,
            "speculative_decoding": None if isinstance(answer.stop_reason, str) else self._counters(answer),
        }

    def _counters(self, answer: Answer) -> Json:
        steps, accepted, drafted = len(answer.accepted), sum(answer.accepted), sum(answer.drafted)
        detailed = self.facts.detail == "detailed" and steps
        return {
            "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
            "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
            "acceptance_histogram": answer.histogram,
            "num_spec_steps": steps,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafted,
            "num_spec_tokens": answer.k,
            "per_step_accepted": list(answer.accepted) if detailed else None,
            "per_step_drafted": list(answer.drafted) if detailed else None,
        }

    def error(self, message: str, status: int, kind: str, param: str | None = None) -> Json:
        """As its front end wraps them."""
        return {"error": {"message": message, "type": kind, "param": param, "code": status}}

    def models(self) -> Json:
        """One model, with its permission."""
        facts = self.facts
        permission = {
            "id": "modelperm-emulated",
            "object": "model_permission",
            "created": facts.created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        model = {
            "id": facts.model,
            "object": "model",
            "created": facts.created,
            "owned_by": STAMPED_OWNER,
            "root": facts.model,
            "parent": None,
            "max_model_len": facts.context,
            "permission": [permission],
        }
        return {"object": "list", "data": [model]}

    def pages(self) -> dict[str, Json]:
        """/version, and of /server_info the settings that matter here."""
        facts = self.facts
        config: dict[str, Any] = {
            "model_config": {"model": facts.model, "max_model_len": facts.context},
            "cache_config": {"enable_prefix_caching": True},
            "parallel_config": {"tensor_parallel_size": 1, "data_parallel_size": 1},
            "speculative_config": {
                "num_speculative_tokens": facts.k,
                "model": facts.drafter,
                "method": "emulated",
                "enable_adaptive_verification": facts.adaptive,
                "draft_sample_method": "synthetic",
            },
        }
        info = {"vllm_config": config, "vllm_env": {}, "system_env": {}}
        return {"/version": {"version": VERSION}, "/server_info": info}

    def tokenized(self, tokens: int) -> Json:
        """Ids are made up; their number is not."""
        return {"count": tokens, "max_model_len": self.facts.context, "tokens": [0] * tokens, "token_strs": None}

    def metrics(self, totals: Totals) -> str:
        """The families of speculative decoding, and those of tokens and requests."""
        page, name = Prometheus(), self.facts.model
        labels = [{"engine": str(i), "model_name": name} for i in range(len(totals.each))]
        each = list(zip(labels, totals.each, strict=True))
        values = {
            "num_drafts": [(mark, one.steps) for mark, one in each],
            "num_draft_tokens": [(mark, one.drafted) for mark, one in each],
            "num_accepted_tokens": [(mark, one.accepted) for mark, one in each],
        }
        for family, text in _COUNTERS:
            full = f"vllm:spec_decode_{family}"
            page.family(f"{full}_total", "counter", text, list(values[family]))
            page.family(f"{full}_created", "gauge", text, [(mark, self.facts.created) for mark in labels])
        full, text = "vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position."
        placed = [(mark | {"position": str(i)}, one.position(i)) for mark, one in each for i in range(totals.k)]
        page.family(f"{full}_total", "counter", text, list(placed))
        page.family(f"{full}_created", "gauge", text, [(mark, self.facts.created) for mark, _ in placed])
        prompt = [(mark, one.prompt_tokens) for mark, one in each]
        page.family("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", list(prompt))
        made = [(mark, one.generation_tokens) for mark, one in each]
        page.family("vllm:generation_tokens_total", "counter", "Number of generation tokens processed.", list(made))
        ended = [(m | {"finished_reason": why}, n) for m, one in each for why, n in one.finished.items()]
        page.family("vllm:request_success_total", "counter", "Count of successfully processed requests.", list(ended))
        running = [(labels[0], totals.running)]
        page.family(
            "vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", list(running)
        )
        return page.text(self.facts.why)


def _message(index: int, answer: Answer) -> Json:
    reasoning, content = answer.pieces(0, answer.tokens)
    message = dict.fromkeys(("role", "content", "refusal", "annotations", "audio", "function_call", "reasoning"))
    return {
        "index": index,
        "message": message | {"role": "assistant", "content": content, "reasoning": reasoning or None},
        "logprobs": None,
        "finish_reason": answer.finish,
        "stop_reason": answer.stop_reason,
        "token_ids": None,
        "routed_experts": None,
    }


def _text(index: int, answer: Answer) -> Json:
    return {
        "index": index,
        "text": "".join(answer.pieces(0, answer.tokens)),
        "logprobs": None,
        "finish_reason": answer.finish,
        "stop_reason": answer.stop_reason,
        "token_ids": None,
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "routed_experts": None,
    }


def _without_null(metrics: Json | None) -> Json | None:
    if metrics is None:
        return None
    kept = {name: value for name, value in metrics.items() if value is not None}
    if counters := kept.get("speculative_decoding"):
        kept["speculative_decoding"] = {name: value for name, value in counters.items() if value is not None}
    return kept
