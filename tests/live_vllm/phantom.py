"""Prompts that make vLLM count a draft that no drafter made.

With prefix caching, a prompt seen before is computed from its last whole cached block on, and at least its last token
is computed anew. A prompt one token longer than whole blocks leaves exactly that token. vLLM pads such a one-token
prefill to the width of a verification step with k placeholder drafts and counts them: one step more, k drafted tokens
more, none accepted. A `cache_salt` that no request had before keeps the blocks from being found.
"""

import json
import re
import urllib.request
from dataclasses import dataclass
from typing import Any

_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class PhantomPrompt:
    """A user message whose rendered chat prompt is `prompt_tokens` long: whole blocks of `block_size` and one more."""

    text: str
    prompt_tokens: int
    block_size: int


def phantom_prompt(
    base_url: str, *, model: str = "smol", opening: str = "Go on with this list: red blue green"
) -> PhantomPrompt:
    """Lengthen `opening` word by word until the server renders it one token longer than whole cache blocks.

    Sends no generation: only /tokenize and /metrics are asked, so no counter moves and nothing is cached. The server
    needs its statistics on. Raises ValueError where it names no block size or no length fits within two blocks.
    """
    root = base_url.removesuffix("/v1")
    block = block_size(root)
    words = ("red", "blue", "green")
    for extra in range(2 * block):
        text = " ".join([opening, *(words[i % len(words)] for i in range(extra))])
        question = {"model": model, "messages": [{"role": "user", "content": text}]}
        count = int(json.loads(_fetch(f"{root}/tokenize", question))["count"])
        if count > block and count % block == 1:
            return PhantomPrompt(text=text, prompt_tokens=count, block_size=block)
    raise ValueError(f"no prompt one token longer than blocks of {block} found")


def block_size(root_url: str) -> int:
    """Return the tokens per prefix cache block, from /metrics (128 in the CPU build); ValueError where not there."""
    found = re.search(
        r'^vllm:cache_config_info\{(?:.*,)?block_size="(\d+)"', _fetch(f"{root_url}/metrics"), re.MULTILINE
    )
    if found is None:
        raise ValueError("the server's /metrics has no vllm:cache_config_info with a block size")
    return int(found[1])


def _fetch(url: str, body: dict[str, Any] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with _LOCAL.open(request, timeout=_TIMEOUT_S) as answer:
        return str(answer.read().decode())
