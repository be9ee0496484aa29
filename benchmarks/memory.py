"""Peak memory of going through a data set larger than memory should hold: 800 prompts of about 128k tokens each.

Rows of random words are written to a temporary parquet file in MRCR's shape, indexed and gone through again, as a run
does. Prints the size of the texts beside the peak of the process that read them.
"""

import json
import multiprocessing
import random
import resource
import sys
import tempfile
from pathlib import Path

import pyarrow
import pyarrow.parquet

ROWS, WORDS = 800, 90_000
SUITE = """schema_version = 1
name = "long"
title = "Long"
[data]
file = "long.parquet"
licence = "CC0-1.0"
[prompt]
adapter = "mrcr"
id = "id"
category_name = "long"
messages = "prompt"
[sampling]
temperature = 0.0
max_tokens = 16
"""


def write(folder: Path) -> int:
    """Bytes of text written, a row group of 100 rows at a time."""
    words = [f"{random.getrandbits(20):05x}" for _ in range(5000)]
    names = ("prompt", "answer", "random_string_to_prepend")
    schema = pyarrow.schema([(name, pyarrow.string()) for name in names])
    size = 0
    with pyarrow.parquet.ParquetWriter(folder / "long.parquet", schema) as writer:
        for start in range(0, ROWS, 100):
            prompts = []
            for i in range(start, start + 100):
                text = f"{i} {' '.join(random.choices(words, k=WORDS))}"
                prompts.append(json.dumps([{"role": "user", "content": text}, {"role": "user", "content": "Again."}]))
                size += len(prompts[-1])
            columns = {"prompt": prompts, "answer": ["x"] * 100, "random_string_to_prepend": ["y"] * 100}
            writer.write_table(pyarrow.table(columns, schema=schema))
    (folder / "long.toml").write_text(SUITE)
    return size


def read(folder: str) -> None:
    """Index and go through again, in a process of its own."""
    from spec_eval import prompts, suite

    loaded = prompts.load(suite.find(f"{folder}/long.toml"))
    count = sum(1 for _ in loaded)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"{count} conversations; peak of the process that read them {peak / 2**30:.2f} GiB")


if __name__ == "__main__":
    random.seed(0)
    with tempfile.TemporaryDirectory() as name:
        size = write(Path(name))
        print(f"{ROWS} prompts, {size / 2**30:.2f} GiB of text")
        process = multiprocessing.get_context("spawn").Process(target=read, args=(name,))
        process.start()
        process.join()
