"""A checked card as text for a terminal, and as a document for JSON."""

from typing import Any

from spec_eval.cards import Card
from spec_eval.cards.checks import Judged, Verdict
from spec_eval.cards.numbers import Printed
from spec_eval.render.words import printable

SCHEMA_VERSION = 1


def text(card: Card) -> str:
    """Every row with its verdict, then the notes, then what is not stated."""
    lines = []
    for table in card.tables:
        ks = " or ".join(map(str, table.ks))
        lines.append(f"table at line {table.line}, {ks or 'unknown number of'} drafts a step")
        for row in table.rows:
            lines += [f"  line {row.row.line}  {printable(row.row.name)}: {row.verdict}"]
            lines += [f"      {printable(reason)}" for reason in row.reasons]
    lines += [f"note, line {note.line}: {printable(note.message)}" for note in card.notes]
    if card.missing:
        lines.append(f"not stated: {', '.join(card.missing)}")
    lines.append(", ".join(f"{card.count(verdict)} {verdict}" for verdict in Verdict))
    return "\n".join(lines) + "\n"


def document(card: Card) -> dict[str, Any]:
    """Shares as fractions; null where nothing is printed."""
    return {
        "schema_version": SCHEMA_VERSION,
        "file": card.name,
        "tables": [
            {
                "line": table.line,
                "k": table.ks[0] if len(table.ks) == 1 else None,
                "rows": [_row(row) for row in table.rows],
            }
            for table in card.tables
        ],
        "counts": {str(verdict): card.count(verdict) for verdict in Verdict},
        "draft_tokens": [{"line": s.line, "setting": s.text, "k": s.k} for s in card.settings],
        "notes": [{"code": str(n.code), "line": n.line, "message": n.message} for n in card.notes],
        "missing": list(card.missing),
    }


def _row(judged: Judged) -> dict[str, Any]:
    row = judged.row
    return {
        "line": row.line,
        "label": row.label,
        "group": row.group or None,
        "verdict": str(judged.verdict),
        "reasons": list(judged.reasons),
        "k": judged.k,
        "acceptance_length": _number(row.length),
        "acceptance_rate": _number(row.rate),
        "positions": [_number(position) for position in row.positions],
    }


def _number(figure: Printed | None) -> float | None:
    return None if figure is None else float(figure.value)
