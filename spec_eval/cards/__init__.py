"""Published model cards: the tables of acceptance figures in one, and whether they can be true."""

from spec_eval.cards.card import Card, JudgedTable, Note, NoteCode, check

__all__ = ["Card", "JudgedTable", "Note", "NoteCode", "check"]
