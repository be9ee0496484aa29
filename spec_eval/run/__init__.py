"""A plan driven into the store."""

from spec_eval.run.driving import Finished, resume, start
from spec_eval.run.options import RunOptions
from spec_eval.run.planning import dry_run

__all__ = ["Finished", "RunOptions", "dry_run", "resume", "start"]
