"""The engines: one module each, found by the name that the user declares; a payload never decides."""

from spec_eval.engines.base import CounterReader, Engine, Reading
from spec_eval.engines.llamacpp import LlamaCpp
from spec_eval.engines.server_wide import ServerWide
from spec_eval.engines.sglang import Sglang
from spec_eval.engines.trtllm import TrtLlm
from spec_eval.engines.vllm import Vllm
from spec_eval.errors import UsageError

_ADAPTERS: tuple[Engine, ...] = (LlamaCpp(), Vllm(), Sglang(), TrtLlm(), ServerWide())
ENGINES: dict[str, Engine] = {engine.name: engine for engine in _ADAPTERS}


def find(name: str) -> Engine:
    """The engine of that name."""
    if name not in ENGINES:
        hint = "; embedded is for `run`, which starts it" if name == "embedded" else ""
        raise UsageError(f"no engine {name!r}; known: {', '.join(ENGINES)}{hint}")
    return ENGINES[name]


__all__ = ["ENGINES", "CounterReader", "Engine", "Reading", "find"]
