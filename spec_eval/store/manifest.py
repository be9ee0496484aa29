"""The manifest, written last, and the ends of the sessions that a run took."""

from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from spec_eval.records import is_count
from spec_eval.store.plan import Stored
from spec_eval.store.points import Point

SCHEMA_VERSION: Final = 1


class NotExact(StrEnum):
    """Why the server's counters do not equal the requests' sums, or were not compared with them."""

    # They differ.
    INCONSISTENT = "inconsistent"  # the server's positions do not add up to its own accepted tokens
    SERVER_COUNTED_LESS = "server_counted_less"
    UNTOLD = "untold"  # requests that the server counts and no usable answer tells of
    FOREIGN_TRAFFIC = "foreign_traffic"
    # There was nothing to compare.
    NO_METRICS = "no_metrics"  # the server shows no Prometheus text at all
    NO_TOTALS = "no_totals"  # the text has no counters of verification steps
    UNREADABLE = "unreadable"
    RESTARTED = "restarted"
    SERVER_WIDE = "server_wide"  # the engine counts nothing by request
    NOMINAL_DRAFTS = "nominal_drafts"
    NOTHING_MEASURED = "nothing_measured"
    KILLED = "killed"  # a session of the run has no end
    UNACCOUNTED = "unaccounted"  # more or fewer requests are recorded than the sessions drove
    UNFINISHED = "unfinished"
    LOST_RECORDS = "lost_records"
    IMPORTED = "imported"


class Reconciliation(Stored):
    """Σ over requests against the server's own Prometheus counters.

    status: exact; differs (with the likely cause); not available (with the reason). reason is for people, cause for
    programs; cause is null where it is exact, and in files that are older than this key.
    server and requests: steps, drafted, accepted, positions; null where not known.
    """

    status: Literal["exact", "differs", "not available"]
    reason: str | None
    cause: NotExact | None = None
    server: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None

    @field_validator("server", "requests")
    @classmethod
    def _are_totals(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        places = value.get("positions") if value else ()
        counts = [value.get(name) for name in ("steps", "drafted", "accepted")] if value else []
        if not isinstance(places, list | tuple) or not all(map(is_count, [*counts, *places])):
            raise ValueError("no totals: steps, drafted, accepted and positions are counts")
        return value

    @classmethod
    def unavailable(
        cls,
        cause: NotExact,
        reason: str,
        *,
        server: dict[str, Any] | None = None,
        requests: dict[str, Any] | None = None,
    ) -> "Reconciliation":
        """Where nothing was compared, with what is known of either side."""
        return cls(status="not available", cause=cause, reason=reason, server=server, requests=requests)

    def sentence(self) -> str:
        """For people."""
        if self.status == "exact":
            return "exact: steps, drafted, accepted and every position equal the server's counters"
        return f"{self.status}: {self.reason}"


class SessionEnd(Stored):
    """One stretch of driving. requests: lines written in it. aborted: requests in flight when it ended.

    server_changes: what the server says of itself otherwise than in the run's first session, in words.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    session: int
    started: str
    ended: str
    reason: str
    requests: int
    aborted: int
    reconciliation: Reconciliation
    loop_lag_p99_ms: float | None = None
    server_changes: tuple[str, ...] = ()


class Manifest(Stored):
    """manifest.json: what another person needs to repeat the run, beside plan.json.

    settings: the keys that two runs must share to be comparable; null is "not known".
    data: for each data set where its rows came from, their hashes, and who prepared them.
    server: what the server said of itself. server_wide: its own totals over the run, where the answers carry no
    counters; else null. points: of a run imported from a server's totals, by cell_id.
    sessions: one entry where nothing interrupted the run.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    settings_sha256: str
    started: str | None
    ended: str | None
    settings: dict[str, dict[str, Any]]
    data: dict[str, Any]
    server: dict[str, Any]
    engine_version: str | None
    packages: dict[str, str]
    platform: dict[str, Any]
    sessions: tuple[SessionEnd, ...]
    reconciliation: Reconciliation
    outcome: dict[str, Any]
    server_wide: dict[str, Any] | None = None
    points: dict[str, Point] = Field(default_factory=dict)

    @field_validator("outcome")
    @classmethod
    def _sent_is_a_count(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not is_count(value.get("sent", 0)):
            raise ValueError("sent is a count")
        return value

    @field_validator("server")
    @classmethod
    def _names_are_texts(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not all(isinstance(value.get(name), str | None) for name in ("model", "k_flag")):
            raise ValueError("model and k_flag are texts")
        return value
