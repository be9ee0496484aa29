"""SGLang's format, built from its response models and not recorded: the source of 0.5.23 and older.

Its streamed events keep null keys. Counters come only where the request asks for them with
`return_spec_tokens_details`; drafted is nominal, and the accept length is completion tokens over verify steps.
"""

from dataclasses import dataclass

from spec_eval.emulator.answers import Answer
from spec_eval.emulator.reply import Facts, Json, Prometheus, Reply, chunk
from spec_eval.emulator.totals import Totals
from spec_eval.emulator.words import VOCABULARY
from spec_eval.engines.endpoint import STAMPED_OWNER

VERSION = "0.5.23+emulator"
# What a natural end is said to have matched: the id of an end token behind the vocabulary.
_END_TOKEN = len(VOCABULARY)


@dataclass(frozen=True)
class SglangWire:
    """The format."""

    facts: Facts
    metrics_path: str = "/metrics"

    def opening(self, reply: Reply, index: int) -> Json | None:
        """A chat's role; completions begin with their text."""
        return _event(reply, [_delta(index, role="assistant", content="")]) if reply.ask.chat else None

    def delta(self, reply: Reply, index: int, reasoning: str, content: str, *, last: bool) -> list[Json]:
        """Reasoning and content in events of their own, and the end of a chat in one more."""
        answer = reply.answers[index]
        if not reply.ask.chat:
            end = _end(answer) if last else {"finish_reason": None, "matched_stop": None}
            return [_event(reply, [{"index": index, "text": reasoning + content, "logprobs": None, **end}])]
        events = [_event(reply, [_delta(index, reasoning_content=reasoning)])] if reasoning else []
        events += [_event(reply, [_delta(index, content=content)])] if content else []
        return [*events, _event(reply, [_delta(index) | _end(answer)])] if last else events

    def closing(self, reply: Reply) -> list[Json]:
        """The counters, then usage, each in an event of its own and where it was asked for."""
        extension = self._extension(reply)
        events = [_event(reply, []) | {"sglext": extension}] if extension else []
        if reply.ask.usage and reply.usage:
            events.append(_event(reply, []) | {"usage": self._usage(reply)})
        return events

    def whole(self, reply: Reply) -> Json:
        """Of both kinds."""
        extension = self._extension(reply)
        return {
            "id": reply.id,
            "object": "chat.completion" if reply.ask.chat else "text_completion",
            "created": reply.created,
            "model": reply.model,
            "choices": [_choice(reply, index, answer) for index, answer in enumerate(reply.answers)],
            "usage": self._usage(reply) if reply.usage else None,
            "metadata": {"weight_version": "emulated"},
            **({"sglext": extension} if extension else {}),
        }

    def _usage(self, reply: Reply) -> Json:
        return {
            "prompt_tokens": reply.prompt_tokens,
            "total_tokens": reply.prompt_tokens + reply.completion_tokens,
            "completion_tokens": reply.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": reply.cached_tokens} if self.facts.prompt_details else None,
            "reasoning_tokens": reply.reasoning_tokens,
        }

    def _extension(self, reply: Reply) -> Json | None:
        """One object, or a list of them for several answers."""
        if not reply.ask.spec_details or not reply.counters:
            return None
        details = [_details(answer) for answer in reply.answers]
        return {"spec_tokens_details": details[0] if reply.ask.single else details}

    def error(self, message: str, status: int, kind: str, param: str | None = None) -> Json:
        """Bare, marked by its object."""
        return {"object": "error", "message": message, "type": kind, "param": param, "code": status}

    def models(self) -> Json:
        """One model."""
        facts = self.facts
        model = {
            "id": facts.model,
            "object": "model",
            "created": facts.created,
            "owned_by": STAMPED_OWNER,
            "root": facts.model,
            "parent": None,
            "max_model_len": facts.context,
        }
        return {"object": "list", "data": [model]}

    def pages(self) -> dict[str, Json]:
        """/server_info, under both of its names. Draft tokens count the root."""
        facts = self.facts
        info = {
            "model_path": facts.model,
            "version": VERSION,
            "tp_size": 1,
            "context_length": facts.context,
            "disable_radix_cache": False,
            "internal_states": [{}],
            "speculative_algorithm": "DFLASH",
            "speculative_draft_model_path": facts.drafter,
            "speculative_num_steps": facts.k,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": facts.k + 1,
        }
        return {"/server_info": info, "/get_server_info": info}

    def tokenized(self, tokens: int) -> Json:
        """Ids are made up; their number is not."""
        return {"tokens": [0] * tokens, "count": tokens, "max_model_len": self.facts.context}

    def metrics(self, totals: Totals) -> str:
        """Running averages as gauges, as there are no totals of speculative decoding."""
        page, label = Prometheus(), {"model_name": self.facts.model}
        steps, accepted = (sum(getattr(one, name) for one in totals.each) for name in ("steps", "accepted"))
        drafted, made = (sum(getattr(one, name) for one in totals.each) for name in ("drafted", "generation_tokens"))
        length, rate = (made / steps, accepted / drafted) if steps and drafted else (0.0, 0.0)
        page.family("sglang:spec_accept_length", "gauge", "The average acceptance length.", [(label, length)])
        page.family("sglang:spec_accept_rate", "gauge", "The average acceptance rate.", [(label, rate)])
        page.family("sglang:generation_tokens_total", "counter", "Number of generation tokens.", [(label, made)])
        page.family("sglang:num_running_reqs", "gauge", "Number of running requests.", [(label, totals.running)])
        return page.text(self.facts.why)


def _event(reply: Reply, choices: list[Json]) -> Json:
    return chunk(reply, choices) | {"usage": None}


def _delta(index: int, **words: str) -> Json:
    delta = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None, **words}
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, "matched_stop": None}


def _end(answer: Answer) -> Json:
    natural = _END_TOKEN if answer.finish == "stop" else None
    return {
        "finish_reason": answer.finish,
        "matched_stop": answer.stop_reason if answer.stop_reason is not None else natural,
    }


def _choice(reply: Reply, index: int, answer: Answer) -> Json:
    reasoning, content = answer.pieces(0, answer.tokens)
    if not reply.ask.chat:
        return {"index": index, "text": reasoning + content, "logprobs": None, **_end(answer)}
    message = {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning or None,
        "tool_calls": None,
    }
    return {"index": index, "message": message, "logprobs": None, **_end(answer)}


def _details(answer: Answer) -> Json:
    steps, accepted = len(answer.accepted), sum(answer.accepted)
    histogram = answer.histogram
    while histogram and not histogram[-1]:  # it ends at the deepest step seen
        histogram.pop()
    return {
        "spec_accept_rate": accepted / (steps * answer.k) if steps else 0.0,
        "spec_accept_length": answer.tokens / steps if steps else 0.0,
        "spec_cap_length": 0.0,
        "spec_block_accept_length": 0.0,
        "spec_num_correct_drafts": accepted,
        "spec_num_proposed_drafts": steps * answer.k,
        "spec_verify_ct": steps,
        "spec_correct_drafts_histogram": histogram,
        "spec_cap_lens_histogram": [],
    }
