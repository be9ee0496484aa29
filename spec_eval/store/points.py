"""What another tool says of one setting, where it kept a server's totals instead of each answer's counters."""

from pydantic import Field

from spec_eval.store.plan import Stored


class Point(Stored):
    """One setting that was measured elsewhere. Fractions, tokens, milliseconds and seconds; null is "not told".

    planned, ok, failed: requests. steps, drafted, accepted: S, D, A of all that the server did meanwhile, null where
    there is no figure. positions[i - 1]: share of steps that accepted at least i drafts.
    no_figure: why there is none; broken: whether because the totals contradict each other.
    load: times and rates, under the names of the source. missing: fields that held no number.
    """

    planned: int
    ok: int
    failed: int
    steps: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    positions: tuple[float, ...] | None = None
    no_figure: str | None = None
    broken: bool = False
    load: dict[str, float | None] = Field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def tokens_per_second_per_user(self) -> float | None:
        """1000 / mean TPOT in ms. Not over ITL: that is a chunk's time, and a chunk may hold several tokens."""
        tpot = self.load.get("mean_tpot_ms")
        return 1000 / tpot if tpot else None
