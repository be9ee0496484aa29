"""MT-Bench rows: the hub's (`prompt`, `prompt_id`) and FastChat's (`turns`, `question_id`) are the same questions."""

from spec_eval.prompts.rows import Row


def adapt(row: Row) -> Row:
    """The row with FastChat's names."""
    if "turns" not in row and "prompt" in row:
        return {**row, "turns": row["prompt"], "question_id": row.get("prompt_id")}
    return row
