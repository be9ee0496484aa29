"""Run folders: the only code that touches results/.

plan.json is written first, requests.jsonl grows by one flushed line a finished request, manifest.json comes last:
a run is whole when its manifest exists. requests.jsonl is the truth, requests.parquet is derived from it.
"""

from spec_eval.store.folder import RunFolder, kind_of, new_run_folder
from spec_eval.store.lock import RunLock
from spec_eval.store.manifest import Manifest, NotExact, Reconciliation, SessionEnd
from spec_eval.store.plan import Cell, Plan, PromptRef, Target
from spec_eval.store.points import Point
from spec_eval.store.requests import Records, RequestLog, read_records

__all__ = [
    "Cell",
    "Manifest",
    "NotExact",
    "Plan",
    "Point",
    "PromptRef",
    "Reconciliation",
    "Records",
    "RequestLog",
    "RunFolder",
    "RunLock",
    "SessionEnd",
    "Target",
    "kind_of",
    "new_run_folder",
    "read_records",
]
