"""A plan driven into the store."""

from spec_eval.run.driving import Finished, resume, start
from spec_eval.run.planning import RunOptions, dry_run

__all__ = ["Finished", "RunOptions", "dry_run", "resume", "start"]
