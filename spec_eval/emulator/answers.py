"""One answer: its steps, its tokens, and where it ends."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, cycle

from spec_eval.emulator import words
from spec_eval.emulator.asks import Ask


@dataclass(frozen=True, slots=True)
class Answer:
    """accepted, drafted: one integer a verification step.

    ends: completion tokens delivered after the first one and after each step; the last is clipped to the answer's
    end, its step is not. thought: how many tokens are reasoning. text_end: characters of the text that are shown, or
    null for all.
    """

    accepted: tuple[int, ...]
    drafted: tuple[int, ...]
    k: int
    words: list[str]
    ends: tuple[int, ...]
    thought: int
    finish: str
    stop_reason: int | str | None = None
    text_end: int | None = None

    @property
    def tokens(self) -> int:
        """Of the completion, as the server counts them."""
        return self.ends[-1]

    @property
    def histogram(self) -> list[int]:
        """h[0..k]."""
        counts = [0] * (self.k + 1)
        for accepted in self.accepted:
            counts[accepted] += 1
        return counts

    def pieces(self, start: int, end: int) -> tuple[str, str]:
        """(reasoning, content) of the tokens from `start` to before `end`."""
        split = min(max(self.thought, start), end)
        content = "".join(self.words[split:end])
        if self.text_end is not None:
            before = len("".join(self.words[self.thought : split]))
            content = content[: max(0, self.text_end - before)]
        return "".join(self.words[start:split]), content


def make(
    ask: Ask,
    steps: Sequence[int],
    k: int,
    identity: str,
    *,
    verified: Sequence[int] | None = None,
    loop: bool = False,
    thinking: bool | None = None,
) -> Answer:
    """An answer of 1 + S + A tokens, ended earlier by max_tokens or a stop, later by ignore_eos or min_tokens.

    verified: drafts that each step verified, where fewer than the k it counts; a step accepts no more than these.
    loop: a model that fell into a loop: its text repeats and is accepted whole until the limit.
    """
    taken = [min(a, v) for a, v in zip(steps, verified, strict=True)] if verified is not None else list(steps)
    again_and_again = cycle(tuple(taken))
    if loop:
        taken += [k] * -(-ask.max_tokens // (k + 1))
    wanted = min(ask.min_tokens, ask.max_tokens)
    total = 1 + len(taken) + sum(taken)
    for again in again_and_again:
        if total >= wanted:
            break
        taken.append(again)
        total += again + 1
    ends = list(accumulate((a + 1 for a in taken), initial=1))
    finish = "stop"
    if ends[-1] > ask.max_tokens:
        last = next(i for i, end in enumerate(ends) if end >= ask.max_tokens)
        ends, taken, finish = [*ends[:last], ask.max_tokens], taken[:last], "length"
    text = words.draw(identity, ends[-1], loop=loop)
    thought = ends[-1] // 2 if (ask.thinking if thinking is None else thinking) else 0
    answer = Answer(tuple(taken), (k,) * len(taken), k, text, tuple(ends), thought, finish)
    return _stopped(answer, ask) if ask.stop or ask.stop_token_ids else answer


def _stopped(answer: Answer, ask: Ask) -> Answer:
    """Ended at the first stop string or stop token behind its reasoning, if it has one; neither is shown."""
    content = answer.words[answer.thought : answer.tokens]
    text, ends = "".join(content), list(accumulate(map(len, content)))
    found: list[tuple[int, int, int | str]] = []
    for stop in ask.stop:
        if stop and (place := text.find(stop)) >= 0:
            found.append((bisect_left(ends, place + len(stop)), place, stop))
    for number, word in enumerate(content):
        if (token := words.TOKEN_IDS.get(word)) is not None and token in ask.stop_token_ids:
            found.append((number, ends[number] - len(word), token))
            break
    if not found:
        return answer
    number, place, reason = min(found, key=lambda one: one[:2])
    tokens = answer.thought + number + 1
    last = next(i for i, end in enumerate(answer.ends) if end >= tokens)
    return replace(
        answer,
        accepted=answer.accepted[:last],
        drafted=answer.drafted[:last],
        ends=(*answer.ends[:last], tokens),
        finish="stop",
        stop_reason=reason,
        text_end=place,
    )
