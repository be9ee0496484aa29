"""A recipe into a healthy server."""

from spec_eval.serve.embedded import EmbeddedServer, serve_embedded

__all__ = ["EmbeddedServer", "serve_embedded"]
