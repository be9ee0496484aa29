"""SPEED-Bench made ready: the texts that the published rows leave out, put in place a whole config at a time.

A config is written only when no placeholder is left in it. Its texts come from our own recipes, for sources whose
text only has to be set in; or, whole, from NVIDIA's preparer, for which the caller has to ask.
"""

from spec_eval.prompts.prepare.assemble import Left, StillMasked, outlook, prepare
from spec_eval.prompts.prepare.published import CONFIGS, Published, read
from spec_eval.prompts.prepare.ready import Prepared, check_target
from spec_eval.prompts.prepare.tool import Tool

__all__ = [
    "CONFIGS",
    "Left",
    "Prepared",
    "Published",
    "StillMasked",
    "Tool",
    "check_target",
    "outlook",
    "prepare",
    "read",
]
