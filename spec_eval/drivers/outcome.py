"""From an answer to a record: one way for requests of our own and for those that another tool sent."""

from dataclasses import dataclass

from spec_eval.drivers.answer import Answer, is_context_limit
from spec_eval.engines import Reading
from spec_eval.records import RequestRecord, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a request. Times are nanoseconds since the epoch; null is what nobody knows.

    failure: null, or why it failed or was not sent, "reason: detail"; the reason is what gets counted.
    attempt: how often it was sent, 0 where not at all. reading: counters or the reason for none; null of a request
    that failed. connected: whether the server could be reached at all. emulated: whether the answer bears an
    emulator's mark.
    """

    failure: str | None = None
    attempt: int = 0
    start_ns: int | None = None
    first_token_ns: int | None = None
    end_ns: int | None = None
    text: str | None = None
    reasoning_text: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    reading: Reading | None = None
    connected: bool = True
    emulated: bool = False


def outcome(
    answer: Answer,
    failure: str | None,
    *,
    attempt: int = 1,
    start_ns: int | None = None,
    end_ns: int | None = None,
    connected: bool = True,
    chain: bool = True,
    prompt_tokens: int | None = None,
    counted: Reading | None = None,
) -> Outcome:
    """Of all that has come of `answer`; a failed one keeps its words, if any came, and never its counters.

    chain: whether drafts are chains; positions of a tree's drafts are not kept. prompt_tokens stands in where the
    server gave no count. counted: its counters, where the source keeps them beside the answer's events.
    """
    served = answer.count("prompt_tokens")
    reading = (counted or answer.reader.reading()) if failure is None else None
    return Outcome(
        failure=failure,
        attempt=attempt,
        start_ns=start_ns,
        first_token_ns=answer.first_token_ns,
        end_ns=end_ns,
        text="".join(answer.text) if answer.received and (failure is None or answer.text) else None,
        reasoning_text="".join(answer.reasoning) or None,
        finish_reason=answer.finish_reason,
        prompt_tokens=served if served is not None else prompt_tokens,
        cached_tokens=answer.count("cached_tokens", of="prompt_tokens_details"),
        completion_tokens=answer.count("completion_tokens"),
        reasoning_tokens=answer.count("reasoning_tokens", of="completion_tokens_details"),
        reading=reading if reading is None or chain else reading.without_positions(),
        connected=connected,
        emulated=answer.emulated,
    )


def record(
    outcome: Outcome,
    *,
    cell_id: str,
    dataset: str,
    prompt_id: str,
    category: str,
    subcategory: str | None = None,
    turn: int = 0,
    repeat: int = 0,
    seed_sent: int | None = None,
) -> RequestRecord:
    """Of a request in its place: ok, failed, or not sent where there was no attempt."""
    reading = outcome.reading
    answered: Status = "ok" if outcome.failure is None else "failed"
    return RequestRecord(
        cell_id=cell_id,
        dataset=dataset,
        prompt_id=prompt_id,
        category=category,
        subcategory=subcategory,
        turn=turn,
        repeat=repeat,
        seed_sent=seed_sent,
        attempt=outcome.attempt,
        status=answered if outcome.attempt else "not_sent",
        failure_reason=outcome.failure,
        finish_reason=outcome.finish_reason,
        start_ns=outcome.start_ns,
        first_token_ns=outcome.first_token_ns,
        end_ns=outcome.end_ns,
        prompt_tokens=outcome.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
        completion_tokens=outcome.completion_tokens,
        reasoning_tokens=outcome.reasoning_tokens,
        text=outcome.text,
        reasoning_text=outcome.reasoning_text,
        counters=reading.counters if reading else None,
        no_counters_reason=reading.reason if reading else None,
        raw_counters=reading.raw if reading else None,
    )


def http_failure(status: int, text: str) -> str:
    """Why a request failed that was answered with another status than 200; `text` is what the server said."""
    return f"context limit: {text}" if is_context_limit(text) else f"http {status}: {text}"
