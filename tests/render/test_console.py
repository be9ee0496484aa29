import io
from pathlib import Path
from typing import Any

from rich.console import Console

from spec_eval import tables
from spec_eval.render.console import WIDTH, show
from spec_eval.store import Target
from tests.factories import answered, cell, failed, from_histogram, plan, run_folder

UNITS = [("y1", "yesno", 1), ("h1", "hard", 1), ("e1", "easy", 1)]
RECORDS = (
    answered(from_histogram((0, 0, 0)), prompt_id="y1", category="yesno"),
    answered(from_histogram((6, 0, 0)), prompt_id="h1", category="hard"),
    answered(from_histogram((1, 1, 2)), prompt_id="e1", category="easy"),
)


def shown(where: Path, units: list[tuple[str, str, int]] = UNITS, records: Any = RECORDS, **changes: Any) -> str:
    terminal = changes.pop("terminal", False)
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, force_terminal=terminal, color_system="standard" if terminal else None)
    show([tables.build(run_folder(where, plan(cell(units), **changes), records))], console)
    return out.getvalue()


def row(text: str, name: str) -> list[str]:
    (line, *_) = [line for line in text.splitlines() if line.startswith(name)]
    return line.removeprefix(name).split()


def test_figures_are_those_of_the_other_formats(tmp_path: Path) -> None:
    text = shown(tmp_path)
    assert text.splitlines()[0] == "chat: drafter-a"
    assert row(text, "Chat / yesno") == ["—", "—", "—", "—", "0"]
    assert row(text, "Chat / hard") == ["1.0000", "—", "1.0000", "0.00%", "6"]
    assert row(text, "overall, pooled") == ["1.5000", "—", "1.6250", "25.00%", "10"]
    assert "30.00%" in text
    assert "summed first, divided once" in text


def test_no_style_leaves_a_terminal(tmp_path: Path) -> None:
    assert "\x1b" not in shown(tmp_path / "file")
    assert "\x1b" in shown(tmp_path / "terminal", terminal=True)


def test_markup_in_names_is_shown_as_it_stands(tmp_path: Path) -> None:
    name = "[red]hot[/red] [/]"
    text = shown(
        tmp_path,
        [("a", name, 1)],
        [failed("[bold]x[/bold]", prompt_id="a", category=name)],
        target=Target(engine="llamacpp", model="m", drafter=name, k=3),
    )
    assert f"chat: {name}" in text
    assert f"Chat / {name}" in text
    assert "1 [bold]x[/bold]" in text


def test_names_from_outside_cannot_steer_the_terminal(tmp_path: Path) -> None:
    name = "\x1b]0;owned\x07\x1b[2Jcalm"
    text = shown(tmp_path, [("a", name, 1)], [answered(from_histogram((1, 1)), prompt_id="a", category=name)])
    assert "calm" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_warnings_carry_message_and_remedy(tmp_path: Path) -> None:
    text = shown(tmp_path, records=[failed("timeout", prompt_id="h1", category="hard")])
    assert "failures: 1 of 1 requests failed: 1 timeout; see failure_reason in requests.jsonl" in text


def test_wide_tables_are_not_folded(tmp_path: Path) -> None:
    text = shown(tmp_path, [("a", "qa", 1)], [answered(from_histogram([1] * 9), prompt_id="a", category="qa")])
    assert any(all(f"pos {i}" in line for i in range(1, 9)) for line in text.splitlines())
