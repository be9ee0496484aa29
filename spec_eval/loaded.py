"""A run of requests, read once: its plan, its manifest and its records, and what is counted from them.

Every view of a run, and the verdict on it, is made from this one reading.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from spec_eval import acceptance, counting, points
from spec_eval.acceptance import Outcome
from spec_eval.engines.scrape import Totals
from spec_eval.reconcile import server_wide
from spec_eval.records import RequestRecord, Unit
from spec_eval.store import Manifest, NotExact, Plan, Point, Reconciliation, Records, RunFolder


@dataclass(frozen=True)
class LoadedRun:
    """What a run folder says.

    manifest: null while the run is not whole. read: requests.jsonl as it stands. grades: by unit, empty where nothing
    is graded. totals: the server's own over the sessions, of a run that counts nothing by request; else null.
    """

    path: Path
    plan: Plan
    manifest: Manifest | None
    read: Records
    grades: Mapping[Unit, Mapping[str, Any]]
    totals: Totals | None = None

    @cached_property
    def records(self) -> tuple[RequestRecord, ...]:
        """Of the requests that were planned."""
        planned = {unit for cell in self.plan.cells for unit in cell.units()}
        return tuple(record for record in self.read.records if record.unit in planned)

    @cached_property
    def outcome(self) -> Outcome:
        """What became of everything planned."""
        if self.of_points:
            return points.outcome(self.of_points)
        return acceptance.outcome(self.records, self.plan.planned())

    @property
    def of_points(self) -> tuple[Point, ...]:
        """One for each cell, where the run was imported from a server's totals and holds no request; else none."""
        if self.manifest is None or not self.manifest.points:
            return ()
        return tuple(self.manifest.points[cell.cell_id] for cell in self.plan.cells)

    @property
    def stepped(self) -> bool:
        """Whether any verification step was measured."""
        if self.of_points:
            return any(point.steps for point in self.of_points)
        if counting.is_server_wide(self.plan):
            return self.totals is not None and self.totals.steps > 0
        return self.outcome.measured > self.outcome.zero_steps

    @property
    def lost(self) -> int:
        """Requests that the manifest counted and requests.jsonl no longer holds."""
        sent = int(self.manifest.outcome.get("sent", 0)) if self.manifest else 0
        return max(0, sent - self.outcome.sent)

    @property
    def reconciliation(self) -> Reconciliation:
        """The manifest's; "not available" where the run is not whole, or not any more."""
        if self.manifest is None:
            return Reconciliation.unavailable(NotExact.UNFINISHED, "the run is not whole")
        if self.lost:
            reason = f"{self.lost} records are missing from requests.jsonl"
            return Reconciliation.unavailable(NotExact.LOST_RECORDS, reason)
        return self.manifest.reconciliation


def load(folder: RunFolder) -> LoadedRun:
    """Read it; UsageError where a file is missing or damaged."""
    plan, manifest = folder.plan(), folder.manifest()
    # Only such a run's figures lie in its sessions: for any other, a damaged file there is no reason to refuse it.
    by_session = counting.is_server_wide(plan) and not (manifest and manifest.points)
    totals = server_wide(folder.session_ends()) if by_session else None
    return LoadedRun(folder.path, plan, manifest, folder.records(), folder.grades(), totals)
