"""TensorRT-LLM's format, built from the response models of trtllm-serve and not recorded.

The counters are on the choice: in a stream, on the event that ends it.
"""

from dataclasses import dataclass

from spec_eval.emulator.answers import Answer
from spec_eval.emulator.reply import Facts, Json, Prometheus, Reply, chunk
from spec_eval.emulator.totals import Totals
from spec_eval.engines.endpoint import STAMPED_OWNER

VERSION = "1.2.0+emulator"


@dataclass(frozen=True)
class TrtLlmWire:
    """The format."""

    facts: Facts
    metrics_path: str = "/prometheus/metrics"

    def opening(self, reply: Reply, index: int) -> Json | None:
        """A chat's role; completions begin with their text."""
        return chunk(reply, [_delta(index, role="assistant", content="")]) if reply.ask.chat else None

    def delta(self, reply: Reply, index: int, reasoning: str, content: str, *, last: bool) -> list[Json]:
        """Both kinds of words in one event; the last one carries the end and the counters."""
        end = _end(reply, reply.answers[index]) if last else {}
        if not reply.ask.chat:
            text = {"index": index, "text": reasoning + content, "logprobs": None}
            return [chunk(reply, [text | {"finish_reason": None, "stop_reason": None} | end])]
        words = {"reasoning_content": reasoning} if reasoning else {}
        words |= {"content": content} if content or not words else {}
        return [chunk(reply, [_delta(index, **words) | end])]

    def closing(self, reply: Reply) -> list[Json]:
        """Usage, where it was asked for."""
        return [chunk(reply, []) | {"usage": _usage(reply)}] if reply.ask.usage and reply.usage else []

    def whole(self, reply: Reply) -> Json:
        """Of both kinds."""
        return {
            "id": reply.id,
            "object": "chat.completion" if reply.ask.chat else "text_completion",
            "created": reply.created,
            "model": reply.model,
            "choices": [_choice(reply, index, answer) for index, answer in enumerate(reply.answers)],
            "usage": _usage(reply) if reply.usage else None,
            "prompt_token_ids": None,
        }

    def error(self, message: str, status: int, kind: str, param: str | None = None) -> Json:
        """Bare, marked by its object."""
        return {"object": "error", "message": message, "type": kind, "param": param, "code": status}

    def models(self) -> Json:
        """One model; its context is not told."""
        facts = self.facts
        model = {"id": facts.model, "object": "model", "created": facts.created, "owned_by": STAMPED_OWNER}
        return {"object": "list", "data": [model]}

    def pages(self) -> dict[str, Json]:
        """/version."""
        return {"/version": {"version": VERSION}}

    def tokenized(self, tokens: int) -> Json:
        """Not of this engine; its adapter never asks."""
        return {"count": tokens}

    def metrics(self, totals: Totals) -> str:
        """Totals of drafted and accepted tokens, and no steps."""
        page, label = Prometheus(), {"model_name": self.facts.model}
        drafted, accepted = (sum(getattr(one, name) for one in totals.each) for name in ("drafted", "accepted"))
        for name, value in (("num_draft_tokens", drafted), ("num_accepted_tokens", accepted)):
            page.family(f"trtllm_spec_decode_{name}_total", "counter", "Draft tokens.", [(label, value)])
        last = 1 + accepted / drafted * self.facts.k if drafted else 0.0
        page.family("trtllm_spec_decode_acceptance_length", "gauge", "Of an iteration.", [(label, last)])
        return page.text(self.facts.why)


def _delta(index: int, **words: str) -> Json:
    return {"index": index, "delta": words, "logprobs": None, "finish_reason": None, "stop_reason": None}


def _end(reply: Reply, answer: Answer) -> Json:
    """Of a choice; the average counts the first token and its iteration too."""
    end: Json = {"finish_reason": answer.finish, "stop_reason": answer.stop_reason}
    if not reply.counters:
        return end
    steps, accepted, drafted = len(answer.accepted), sum(answer.accepted), sum(answer.drafted)
    counters = {
        "acceptance_rate": accepted / drafted if drafted else 0.0,
        "total_accepted_draft_tokens": accepted,
        "total_draft_tokens": drafted,
        "num_spec_steps": steps,
        "acceptance_histogram": answer.histogram,
        "num_spec_tokens": answer.k,
    }
    return end | {"avg_decoded_tokens_per_iter": answer.tokens / (1 + steps), "speculative_decoding": counters}


def _choice(reply: Reply, index: int, answer: Answer) -> Json:
    reasoning, content = answer.pieces(0, answer.tokens)
    if not reply.ask.chat:
        words: Json = {"text": reasoning + content}
    else:
        message = {"role": "assistant", "content": content, "reasoning_content": reasoning or None}
        words = {"message": message | {"reasoning": None, "tool_calls": []}}
    ended = _end(reply, answer)
    return {"index": index, **words, "logprobs": None, **ended, "disaggregated_params": None}


def _usage(reply: Reply) -> Json:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
        "completion_tokens": reply.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
    }
