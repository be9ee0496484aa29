"""Weaker drafters without any training: a GGUF model with some of its blocks left out."""

from collections.abc import Collection
from pathlib import Path

import gguf


def drop_blocks(source: Path, target: Path, dropped: Collection[int]) -> None:
    """Copy `source` without the blocks of these numbers; those behind them move up."""
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    count_key = f"{architecture}.block_count"
    blocks = int(reader.fields[count_key].contents())
    kept = [block for block in range(blocks) if block not in dropped]
    assert len(kept) == blocks - len(set(dropped))
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(name, len(kept) if name == count_key else field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        parts = tensor.name.split(".")
        if parts[0] == "blk":
            if int(parts[1]) in dropped:
                continue
            parts[1] = str(kept.index(int(parts[1])))
        writer.add_tensor(".".join(parts), tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
