import json
from pathlib import Path

import pytest

from spec_eval.errors import UsageError
from spec_eval.store import NotExact, Reconciliation, RunFolder
from tests.factories import answered, cell, from_histogram, plan, run_folder, session_end

TOTALS = {"steps": 7, "drafted": 12, "accepted": 6, "positions": [4, 2]}


def differing(where: Path, *drop: str, **changes: object) -> RunFolder:
    """A whole run whose manifest and session are as written, but for the named keys of their reconciliation."""
    records = [answered(from_histogram((1, 1)))]
    differs = Reconciliation(status="differs", cause=NotExact.UNTOLD, reason="told", server=TOTALS, requests=TOTALS)
    folder = run_folder(where, plan(cell([("p0", "coding", 1)])), records, reconciliation=differs)
    folder.end_session(session_end(reconciliation=differs))
    for name in ("manifest.json", "sessions.jsonl"):
        path = folder.path / name
        content = json.loads(path.read_text(encoding="utf-8"))
        kept = {key: value for key, value in content["reconciliation"].items() if key not in drop}
        path.write_text(json.dumps(content | {"reconciliation": kept | changes}) + "\n", encoding="utf-8")
    return folder


def test_a_cause_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = differing(tmp_path)
    manifest, (end,) = folder.manifest(), folder.session_ends()
    assert manifest is not None
    assert manifest.reconciliation.cause is end.reconciliation.cause is NotExact.UNTOLD
    assert '"cause": "untold"' in (folder.path / "manifest.json").read_text(encoding="utf-8")


def test_files_that_are_older_than_the_causes_are_read(tmp_path: Path) -> None:
    folder = differing(tmp_path, "cause")
    manifest, (end,) = folder.manifest(), folder.session_ends()
    assert manifest is not None
    for one in (manifest.reconciliation, end.reconciliation):
        assert (one.status, one.cause, one.reason, one.server) == ("differs", None, "told", TOTALS)


def test_a_cause_that_nobody_knows_is_damage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"manifest\.json: reconciliation\.cause: .*; the file is damaged"):
        differing(tmp_path, cause="weather").manifest()


def test_what_was_not_compared_has_its_cause_and_the_side_that_is_known() -> None:
    got = Reconciliation.unavailable(NotExact.SERVER_WIDE, "no counters by request", server=TOTALS)
    assert (got.status, got.cause, got.server, got.requests) == ("not available", NotExact.SERVER_WIDE, TOTALS, None)
    assert got.sentence() == "not available: no counters by request"
