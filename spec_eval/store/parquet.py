"""requests.parquet: the records as one table, for data frames. Derived; can be made anew at any time."""

from collections.abc import Sequence
from pathlib import Path

from spec_eval.records import RequestRecord, is_count


def write_parquet(records: Sequence[RequestRecord], path: Path) -> None:
    """One row a unit; the counters' fields stand beside the others, raw counters stay in requests.jsonl."""
    import pyarrow
    import pyarrow.parquet

    integers, text = pyarrow.int64(), pyarrow.string()
    lists = pyarrow.list_(integers)
    types = {
        **dict.fromkeys(("cell_id", "dataset", "prompt_id", "category", "subcategory"), text),
        **dict.fromkeys(("turn", "repeat", "seed_sent", "attempt"), integers),
        **dict.fromkeys(("status", "failure_reason", "finish_reason"), text),
        **dict.fromkeys(("start_ns", "first_token_ns", "end_ns"), integers),
        **dict.fromkeys(("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"), integers),
        **dict.fromkeys(("text", "reasoning_text", "no_counters_reason"), text),
    }
    counter_types = {
        **dict.fromkeys(("steps", "accepted", "drafted", "k"), integers),
        **dict.fromkeys(("histogram", "per_step_accepted", "per_step_drafted"), lists),
        "source": text,
        "exact": pyarrow.bool_(),
    }
    columns = {name: [_clean(getattr(r, name)) for r in records] for name in types}
    columns |= {name: [_counter(r, name) for r in records] for name in counter_types}
    schema = pyarrow.schema([pyarrow.field(name, kind) for name, kind in (types | counter_types).items()])
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as stream:  # a path would have to be UTF-8
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema), stream)
    partial.replace(path)


def _clean(value: object) -> object:
    """Arrow strings are strict UTF-8; half a surrogate pair becomes a question mark here, and only here."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _counter(record: RequestRecord, name: str) -> object:
    if record.counters is None:
        return None
    value = getattr(record.counters, name)
    if name in ("source", "exact"):
        return value
    values = value if isinstance(value, tuple) else (value,)
    if not all(map(is_count, values)):
        return None  # an invalid counter: what the server sent stands in requests.jsonl
    return list(value) if isinstance(value, tuple) else value
