"""A vLLM drafter whose draft lengths are written down beforehand (method `custom_class`).

SPEC_EVAL_DRAFT_LENGTHS is a comma-separated list of lengths in tokens. A sequence of n tokens (prompt and answer)
gets a draft of entry n modulo the list's length, clipped to num_speculative_tokens. Going by n rather than by a
counter keeps a sequence's drafts the same whatever else is in the batch. 0 makes a step without a draft.
"""

import os
from typing import Any

import numpy as np
import numpy.typing as npt

VARIABLE = "SPEC_EVAL_DRAFT_LENGTHS"
DEFAULT = "0,1,2,3,4"


def parse_lengths(text: str) -> list[int]:
    """Return the lengths of a script; raises ValueError where it is empty, negative or not of integers."""
    lengths = [int(part) for part in text.split(",")]
    if min(lengths) < 0:
        raise ValueError(f"{VARIABLE}: a draft length is negative: {text!r}")
    return lengths


def copied_draft(history: npt.NDArray[np.int32], length: int) -> list[int]:
    """Guess `length` tokens after `history`: what followed the latest place that looked like its end.

    Two equal last tokens are preferred to one. Where the copy runs into the end of `history` it starts over,
    and where nothing looks alike the last token is repeated, so that the draft is never shorter than asked.
    """
    places = np.flatnonzero(history[:-1] == history[-1])
    if places.size == 0:
        return [int(history[-1])] * length
    alike = places[(places > 0) & (history[places - 1] == history[-2])]
    start = int((alike if alike.size else places)[-1]) + 1
    return [int(token) for token in np.resize(history[start : start + length], length)]


class ScriptedProposer:
    """What vLLM asks of a custom drafter: a constructor, `load_model` and `propose`."""

    def __init__(self, vllm_config: Any) -> None:
        self._longest = int(vllm_config.speculative_config.num_speculative_tokens)
        self._limit = int(vllm_config.model_config.max_model_len)
        self._lengths = parse_lengths(os.environ.get(VARIABLE, DEFAULT))

    def load_model(self, *_args: Any, **_kwargs: Any) -> None:
        """There is no model to load."""

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: npt.NDArray[np.int32],
        token_ids_cpu: npt.NDArray[np.int32],
        **_kwargs: Any,
    ) -> list[list[int]]:
        """Return one draft per row of the batch; a row that sampled nothing in this step (prefill) gets none."""
        drafts: list[list[int]] = []
        for row, sampled in enumerate(sampled_token_ids):
            tokens = int(num_tokens_no_spec[row])
            length = min(self._lengths[tokens % len(self._lengths)], self._longest, self._limit - tokens)
            drafts.append(copied_draft(token_ids_cpu[row, :tokens], length) if sampled and length > 0 else [])
        return drafts
