"""An engine played from an acceptance profile: its wire format and counters to the letter, its figures known before.

Everything that it sends is stamped synthetic. docs/design/emulator.md says what it plays and what it does not.
"""

from spec_eval.emulator.settings import Settings

__all__ = ["Settings"]
