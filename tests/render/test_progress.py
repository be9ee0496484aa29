import io
from dataclasses import replace

import pytest
from rich.console import Console

from spec_eval.records import SpecCounters
from spec_eval.render import progress
from spec_eval.render.progress import Progress
from tests.factories import answered, failed

OK = answered(SpecCounters(steps=4, accepted=6, drafted=12, histogram=None, k=3), completion_tokens=10)
FAILED = failed("http 500: x")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its last entry is now."""
    now = [100.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[-1]

    monkeypatch.setattr(progress, "time", Clock)
    return now


def plain() -> tuple[Progress, io.StringIO]:
    stream = io.StringIO()
    return Progress(Console(file=stream, width=60)), stream


def test_plain_lines_come_every_ten_seconds_and_at_the_end(clock: list[float]) -> None:
    shown, stream = plain()
    with shown.measuring(5, []) as update:
        for seconds, record in ((1.0, OK), (4.0, OK), (11.0, FAILED), (12.0, OK), (20.0, OK)):
            clock.append(100.0 + seconds)
            update(record)
    # after 11 s: 3 of 5 done, 20 tokens, A 12 S 8; the two left take 2/3 of that time
    assert stream.getvalue().splitlines() == [
        "3/5 done, 1 failed, AL 2.500, 2 tok/s, about 7 s left",
        "5/5 done, 1 failed, AL 2.500, 2 tok/s, about 0 s left",
    ]


def test_what_was_done_before_counts_as_done_but_not_into_the_rate(clock: list[float]) -> None:
    shown, stream = plain()
    with shown.measuring(4, [OK, OK]) as update:
        clock.append(110.0)
        update(replace(OK, completion_tokens=100))
    # one request in 10 s, one left
    assert stream.getvalue() == "3/4 done, 0 failed, AL 2.500, 10 tok/s, about 10 s left\n"


def test_no_step_is_no_acceptance_length(clock: list[float]) -> None:
    shown, stream = plain()
    with shown.measuring(1, []) as update:
        clock.append(101.0)
        update(FAILED)
    assert stream.getvalue() == "1/1 done, 1 failed, AL —, 0 tok/s, about 0 s left\n"


def test_counters_that_contradict_themselves_stay_out_of_the_acceptance_length(clock: list[float]) -> None:
    shown, stream = plain()
    assert OK.counters is not None
    broken = replace(OK, counters=replace(OK.counters, accepted=99))
    with shown.measuring(2, []) as update:
        update(broken)
        clock.append(101.0)
        update(OK)
    assert "AL 2.500" in stream.getvalue()


def test_a_terminal_gets_a_bar() -> None:
    stream = io.StringIO()
    shown = Progress(Console(file=stream, force_terminal=True, width=120, color_system=None))
    with shown.measuring(2, [OK]) as update:
        update(FAILED)
    assert "2/2" in stream.getvalue()
    assert "1 failed" in stream.getvalue()
    assert "AL 2.500" in stream.getvalue()


def test_a_note_is_plain_text_on_one_line() -> None:
    shown, stream = plain()
    text = "[red]results/run[/red]: " + " ".join(["a long way"] * 20)
    shown.note(text)
    assert stream.getvalue() == text + "\n"


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    Progress().note("hello")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello\n")
