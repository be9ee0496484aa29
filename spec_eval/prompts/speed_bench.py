"""SPEED-Bench rows: as published, as NeMo-Skills prepares them (`messages`), as Model-Optimizer does (`turns`).

As published, many rows hold a placeholder in place of texts that their licences keep at the source. A placeholder
sent to a model would be measured like a prompt, so a file that still holds one is refused.
"""

import re
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit

from spec_eval.prompts.rows import SHOWN, Row

PLACEHOLDERS = ("FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH", "<<PLACEHOLDER")
REMEDY = "prepare the set with `spec-eval prepare speed-bench` and give its folder with --data-dir"
GATED = ("cais/hle",)
# As other hands write them: the word in brackets, before anything else; in single ones only if it is shouted.
_BRACKETED = re.compile(r"\s*(?:[<\[({]{2,3}\s*(?i:placeholder)|[<\[({]\s*PLACEHOLDER)\b")


class Masked(Exception):  # a fact about a row, handled where rows are counted
    """This row still waits for its text."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.source = source


def adapt(row: Row) -> Row:
    """The row with `turns`; Masked where one of them is a placeholder, bare or before a template."""
    if "turns" not in row and isinstance(row.get("messages"), list):
        users = [m.get("content") for m in row["messages"] if isinstance(m, dict) and m.get("role") == "user"]
        row = {**row, "turns": users}
    turns = row.get("turns")
    if isinstance(turns, list) and any(isinstance(t, str) and is_placeholder(t) for t in turns):
        raise Masked(source_name(row.get("source")))
    return row


def is_placeholder(text: str) -> bool:
    """Whether a text still waits for the real one, of this set or of any other."""
    return text.startswith(PLACEHOLDERS) or _BRACKETED.match(text) is not None


def source_name(source: object) -> str:
    """owner/name out of a row's source address."""
    if not isinstance(source, str) or not source:
        return "unnamed source"
    parts = [part for part in urlsplit(source).path.split("/") if part and part != "datasets"]
    return "/".join(parts[:2]) if parts else source


def describe(masked: Sequence[tuple[str, str]], rows: int) -> str:
    """How many of `rows` wait for their texts, from where, and which; `masked` holds the place and source of each."""
    sources = Counter(source for _, source in masked).most_common()
    named = ", ".join(f"{n} {name}{' (gated)' if name in GATED else ''}" for name, n in sources)
    places = ", ".join(place for place, _ in masked[:SHOWN])
    more = f" and {len(masked) - SHOWN} more" if len(masked) > SHOWN else ""
    return f"{len(masked)} of {rows} rows are placeholders ({named}): {places}{more}"
