"""A recipe into a healthy server."""

from spec_eval.serve.choosing import Choice, Wish, choose
from spec_eval.serve.embedded import EmbeddedServer, serve_embedded
from spec_eval.serve.process import EngineServer, serve_process

__all__ = [
    "Choice",
    "EmbeddedServer",
    "EngineServer",
    "Wish",
    "choose",
    "serve_embedded",
    "serve_process",
]
