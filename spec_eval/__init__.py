"""spec-eval: evaluation of speculative decoding from the serving engine's own counters."""

__version__ = "0.1.0"
