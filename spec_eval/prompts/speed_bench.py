"""SPEED-Bench rows: as published, as NeMo-Skills prepares them (`messages`), as Model-Optimizer does (`turns`).

As published, many rows hold a placeholder in place of texts that their licences keep at the source. A placeholder
sent to a model would be measured like a prompt, so a file that still holds one is refused.
"""

from collections import Counter
from urllib.parse import urlsplit

from spec_eval.prompts.rows import Row

PLACEHOLDERS = ("FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH", "<<PLACEHOLDER")
REMEDY = "prepare the set with `spec-eval prepare speed-bench` and give its folder with --data-dir"
GATED = ("cais/hle",)


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
    if isinstance(turns, list) and any(isinstance(t, str) and t.startswith(PLACEHOLDERS) for t in turns):
        raise Masked(source_name(row.get("source")))
    return row


def source_name(source: object) -> str:
    """owner/name out of a row's source address."""
    if not isinstance(source, str) or not source:
        return "unnamed source"
    parts = [part for part in urlsplit(source).path.split("/") if part and part != "datasets"]
    return "/".join(parts[:2]) if parts else source


def describe(masked: Counter[str], rows: int) -> str:
    """How many rows wait for their texts, from where, and what to do."""
    sources = ", ".join(f"{n} {name}{' (gated)' if name in GATED else ''}" for name, n in masked.most_common())
    return f"{sum(masked.values())} of {rows} rows are placeholders ({sources})"
