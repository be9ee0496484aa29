"""What a person sees while a run goes: a bar on a terminal, plain lines elsewhere; always on standard error."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from spec_eval.records import RequestRecord, breach
from spec_eval.render.throughput import cell_line
from spec_eval.store.windows import WindowCell

_PLAIN_EVERY_S = 10.0


@dataclass
class _Tally:
    """Running sums; the acceptance length shown is pooled, as in the report."""

    done: int = 0
    failed: int = 0
    steps: int = 0
    accepted: int = 0
    tokens: int = 0

    def add(self, record: RequestRecord) -> None:
        self.done += 1
        self.failed += record.status == "failed"
        self.tokens += record.completion_tokens or 0
        if record.counters is not None and breach(record.counters, record.completion_tokens) is None:
            self.steps += record.counters.steps
            self.accepted += record.counters.accepted

    @property
    def acceptance_length(self) -> str:
        return f"{1 + self.accepted / self.steps:.3f}" if self.steps else "—"


class Progress:
    """Shows one run at a time."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)

    def note(self, text: str) -> None:
        """One plain line."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def measuring(self, total: int, done: Sequence[RequestRecord]) -> Iterator[Callable[[RequestRecord], None]]:
        """Gives what to call with each finished record; `done` ones are there already."""
        tally = _Tally()
        for record in done:
            tally.add(record)
        tally.tokens = 0  # the rate is of this session
        show = self._bar if self.console.is_terminal else self._lines
        with show(total, tally) as update:
            yield update

    @contextlib.contextmanager
    def windows(self, total: int, done: int, each_s: float) -> Iterator[Callable[[WindowCell], None]]:
        """Gives what to call with each finished cell: one line for it, and on a terminal a bar below.

        each_s: how long a cell takes, until some have shown it.
        """
        took: list[float] = []
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("cells, {task.fields[left]}"))
        bar = Bar(*columns, console=self.console, disable=not self.console.is_terminal)

        def left() -> str:
            seconds = (total - done - len(took)) * (sum(took) / len(took) if took else each_s)
            return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"

        with bar:
            task = bar.add_task("", total=total, completed=done, left=left())

            def update(cell: WindowCell) -> None:
                took.append(cell.seconds)
                self.note(f"{done + len(took)}/{total} {cell_line(cell)}, {left()}")
                bar.update(task, completed=done + len(took), left=left())

            yield update

    @contextlib.contextmanager
    def _bar(self, total: int, tally: _Tally) -> Iterator[Callable[[RequestRecord], None]]:
        started = time.monotonic()
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]} failed"),
            TextColumn("AL {task.fields[al]}"),
            TextColumn("{task.fields[rate]:.0f} tok/s"),
            TimeRemainingColumn(),
        )
        with Bar(*columns, console=self.console) as bar:
            task = bar.add_task("", total=total, completed=tally.done, failed=0, al="—", rate=0.0)

            def update(record: RequestRecord) -> None:
                tally.add(record)
                rate = tally.tokens / max(time.monotonic() - started, 1e-9)
                bar.update(task, completed=tally.done, failed=tally.failed, al=tally.acceptance_length, rate=rate)

            yield update

    @contextlib.contextmanager
    def _lines(self, total: int, tally: _Tally) -> Iterator[Callable[[RequestRecord], None]]:
        started = last = time.monotonic()
        already = tally.done

        def update(record: RequestRecord) -> None:
            nonlocal last
            tally.add(record)
            now = time.monotonic()
            if now - last < _PLAIN_EVERY_S and tally.done < total:
                return
            last = now
            elapsed = max(now - started, 1e-9)
            left = (total - tally.done) * elapsed / max(tally.done - already, 1)
            self.note(
                f"{tally.done}/{total} done, {tally.failed} failed, AL {tally.acceptance_length}, "
                f"{tally.tokens / elapsed:.0f} tok/s, about {left:.0f} s left"
            )

        yield update
