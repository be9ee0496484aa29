"""Σ over requests against the server's own counters: the check that nothing was missed and nothing was made up."""

from collections.abc import Sequence
from functools import reduce

from spec_eval.acceptance import at_least, measured
from spec_eval.engines import Engine, scrape
from spec_eval.engines.scrape import CounterReset, Totals, added, delta, parse
from spec_eval.records import RequestRecord
from spec_eval.store import NotExact, Reconciliation, SessionEnd


def request_totals(records: Sequence[RequestRecord]) -> Totals | None:
    """Sums over the measured requests; None where one has no histogram or no exact draft count."""
    counters = [c for _, c in measured(records)]
    if any(c.histogram is None or c.drafted is None for c in counters):
        return None
    k = max((c.k for c in counters), default=0)
    positions = tuple(map(sum, zip(*(at_least(c, k) for c in counters), strict=True)))
    return Totals(
        steps=sum(c.steps for c in counters),
        drafted=sum(c.drafted or 0 for c in counters),
        accepted=sum(c.accepted for c in counters),
        positions=positions,
    )


def reconcile(
    before: str | None, after: str | None, engine: Engine, records: Sequence[RequestRecord], *, aborted: int
) -> Reconciliation:
    """Compare the Prometheus delta between `before` and `after` with the sums over `records`.

    `aborted` requests were in flight when driving ended: the server counts them, no answer tells. Where the engine
    has no counters by request, there is nothing to compare, and the server's delta is what the run measures.
    """
    unavailable = Reconciliation.unavailable
    if before is None or after is None:
        return unavailable(NotExact.NO_METRICS, f"the server showed no Prometheus counters; {engine.metrics_remedy}")
    try:
        server = _between(before, after, engine)
        if server is None:
            return unavailable(NotExact.NO_TOTALS, _why_no_totals(before, after, engine))
    except CounterReset:
        return unavailable(NotExact.RESTARTED, "a counter went down: the server was restarted during the run")
    except ValueError as error:
        return unavailable(NotExact.UNREADABLE, f"{engine.metrics_path} is not readable ({error})")
    counted = _table(server)
    if not engine.by_request and server.positions and not server.consistent:
        told_of = f"{sum(server.positions)} over the positions, {server.accepted} in all"
        return unavailable(NotExact.INCONSISTENT, f"its accepted tokens contradict themselves: {told_of}")
    if not engine.by_request:
        return unavailable(NotExact.SERVER_WIDE, "no counters by request to compare the server's with", server=counted)
    requests = request_totals(records)
    if requests is None:
        return unavailable(NotExact.NOMINAL_DRAFTS, "the requests know no exact draft counts", server=counted)
    told = _table(requests)
    if not server.steps and not requests.steps and any(r.status == "failed" or r.counters is None for r in records):
        return unavailable(NotExact.NOTHING_MEASURED, "nothing was measured", server=counted, requests=told)
    longest = max(len(server.positions), len(requests.positions))
    same = (server.steps, server.drafted, server.accepted) == (requests.steps, requests.drafted, requests.accepted)
    if same and all(server.position(i) == requests.position(i) for i in range(longest)):
        return Reconciliation(status="exact", reason=None, server=counted, requests=told)
    cause, reason = _cause(server, requests, records, aborted)
    return Reconciliation(status="differs", cause=cause, reason=reason, server=counted, requests=told)


def server_wide(ends: Sequence[SessionEnd]) -> Totals | None:
    """The server's own totals over the sessions that could be read at both edges."""
    found = [Totals(**{**t, "positions": tuple(t["positions"])}) for end in ends if (t := end.reconciliation.server)]
    return reduce(added, found) if found else None


def totals_table(totals: Totals | None) -> dict[str, object] | None:
    """As a manifest keeps them."""
    return None if totals is None else _table(totals)


def _between(before: str, after: str, engine: Engine) -> Totals | None:
    if engine.by_request:
        first, last = parse(before, engine.metrics_prefix), parse(after, engine.metrics_prefix)
        return None if first is None or last is None else delta(first, last)
    found = scrape.find(after)
    if found is None:
        return None
    prefix, last = found
    first = parse(before, prefix)
    return None if first is None else delta(first, last)


def _why_no_totals(before: str, after: str, engine: Engine) -> str:
    """With the rate, where the server counts drafts and no steps."""
    reason = engine.no_totals or f"no {engine.metrics_prefix}spec_decode counters in {engine.metrics_path}"
    first, last = (scrape.drafts(text, engine.metrics_prefix) for text in (before, after))
    if first is None or last is None:
        return reason
    drafted, accepted = last[0] - first[0], last[1] - first[1]
    if drafted < accepted or accepted < 0:
        raise CounterReset
    rate = f", rate {accepted / drafted:.2%}" if drafted else ""
    return f"{reason}; over the run it counted drafted {drafted}, accepted {accepted}{rate}"


def _table(totals: Totals) -> dict[str, object]:
    return {
        "steps": totals.steps,
        "drafted": totals.drafted,
        "accepted": totals.accepted,
        "positions": list(totals.positions),
    }


def _cause(server: Totals, requests: Totals, records: Sequence[RequestRecord], aborted: int) -> tuple[NotExact, str]:
    """The likely one, most certain first."""
    gap = (
        f"the server counted {server.steps} steps and {server.accepted} accepted, "
        f"the requests {requests.steps} and {requests.accepted}"
    )
    failed = sum(r.status == "failed" for r in records)
    unread = sum(r.status == "ok" for r in records) - len(measured(records))
    again = sum(r.attempt > 1 for r in records)
    if not server.consistent:
        return NotExact.INCONSISTENT, f"{gap}: the server's own positions do not add up to its accepted tokens"
    if server.steps < requests.steps:
        likely = "likely a restart, or counters of another server behind the same address"
        return NotExact.SERVER_COUNTED_LESS, f"{gap}: {likely}"
    causes = [
        text
        for count, text in (
            (aborted, f"{aborted} aborted in flight"),
            (failed, f"{failed} failed half-way"),
            (unread, f"{unread} without usable counters"),
            (again, f"{again} asked more than once"),
        )
        if count
    ]
    if causes:
        return NotExact.UNTOLD, f"{gap}: likely {', '.join(causes)}"
    return NotExact.FOREIGN_TRAFFIC, f"{gap}: likely foreign traffic on the server"
