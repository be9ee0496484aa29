"""SPEED-Bench in small: published rows without their texts, and made-up sources that have them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spec_eval import suite
from spec_eval.prompts import prepare
from spec_eval.suite import SuiteFile

MASK = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
HUB = "https://huggingface.co/datasets"
REVISION = "ab" * 20
TEXTS = pa.list_(pa.string())


def row(number: int, turns: list[str], source: str, src_id: str, **more: Any) -> dict[str, Any]:
    return {
        "question_id": f"{number:032x}",
        "category": "stem",
        "sub_category": None,
        "turns": turns,
        "source": source,
        "src_id": src_id,
        "difficulty": None,
        "multiturn": len(turns) > 1,
        **more,
    }


def at(name: str, revision: str = REVISION) -> str:
    return f"{HUB}/{name}/tree/{revision}"


PLAIN = row(1, ["Why is the sea salt?", "And lakes?"], "https://example.org/sea", "sea_1", category="qa")
ARTICLE = row(2, [f"{MASK}\n\nIn {{{{one}}}} line:\n\n{{article}}\n"], at("abisee/cnn_dailymail"), "c" * 40)
HLE = row(3, [MASK], at("cais/hle"), "0" * 24, difficulty="hard")
LCB = row(4, [f"{MASK}\n\n{{question}}\n--\n{{starter_code}}"], at("livecodebench/code_generation_lite"), "abc_9")
CONTEST = row(5, [f"{MASK}\n\nIn C++: {{question}}"], at("deepmind/code_contests"), "12_A. Sums")
MT101 = row(
    6,
    [MASK],
    f"https://raw.githubusercontent.com/mtbench101/mt-bench-101/{REVISION}/data/subjective/mtbench101.jsonl",
    "mtbench_101_1",
    multiturn=True,
)
OPUS = row(7, [f"{MASK}\n\nTranslate {{question}}"], at("Helsinki-NLP/opus-100"), "opus-100_de-en_1")
MMLU = row(8, [MASK, MASK], f"{HUB}/TIGER-Lab/MMLU-Pro/blob/{REVISION}/data/test.parquet", "mmlu_pro_(7, 'law')")
OURS = [PLAIN, ARTICLE, HLE, LCB, CONTEST, MT101, OPUS]
RESOLVED: list[list[str]] = [
    ["Why is the sea salt?", "And lakes?"],
    ["In {one} line:\n\nA {curly} day.\n"],
    ["What is 6 × 7?"],
    ["Add two.\n--\ndef add(): ..."],
    ["In C++: Sum them."],
    ["Hi, I am Ann.", "Who am I?"],
    ["Translate {'de': 'Zö \"k\"', 'en': \"It's so\"}"],
]


def parquet(path: Path, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def json_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("question_id", "category", "sub_category")),
        ("turns", TEXTS),
        *((name, pa.string()) for name in ("source", "src_id", "difficulty")),
        ("multiturn", pa.bool_()),
    ]
)


def publish(folder: Path, rows: list[dict[str, Any]], config: str = "qualitative") -> Path:
    parquet(folder / config / "test-00000-of-00001.parquet", rows, SCHEMA)
    return folder


def fill_sources(folder: Path) -> Path:
    """Made-up sources, each record that is asked for behind another one."""
    cnn = folder / "abisee__cnn_dailymail" / "3.0.0"
    parquet(cnn / "test-00000-of-00002.parquet", [{"article": "No.", "highlights": "", "id": "d" * 40}])
    parquet(cnn / "test-00001-of-00002.parquet", [{"article": "A {curly} day.", "highlights": "", "id": "c" * 40}])
    parquet(cnn / "train-00000-of-00001.parquet", [{"article": "Never this.", "highlights": "", "id": "c" * 40}])
    parquet(
        folder / "cais__hle" / "data" / "test-00000-of-00001.parquet",
        [
            {"id": "1" * 24, "question": "No?", "image": "", "answer": "no"},
            {"id": "0" * 24, "question": "What is 6 × 7?", "image": "", "answer": "42"},
        ],
    )
    for number, name in enumerate(("test", "test2", "test3", "test4", "test5", "test6"), 1):
        code = {"question_id": f"abc_{number}", "question_content": "No.", "starter_code": "", "platform": "x"}
        wanted = {"question_id": "abc_9", "question_content": "Add two.", "starter_code": "def add(): ..."}
        json_lines(
            folder / "livecodebench__code_generation_lite" / f"{name}.jsonl", [code, *([wanted] * (number == 3))]
        )
    parquet(
        folder / "deepmind__code_contests" / "data" / "test-00000-of-00001-9c.parquet",
        [{"name": "11_A. No", "description": "No."}, {"name": "12_A. Sums", "description": "Sum them."}],
    )
    json_lines(
        folder / "mtbench101__mt-bench-101" / "data" / "subjective" / "mtbench101.jsonl",
        [
            {"task": "CM", "history": [{"user": "No.", "bot": "No."}]},
            {
                "task": "CM",
                "history": [{"user": "Hi, I am Ann.", "bot": "Hi!"}, {"user": "Who am I?", "bot": "You are Ann."}],
            },
        ],
    )
    pair = pa.struct([("en", pa.string()), ("de", pa.string())])
    parquet(
        folder / "Helsinki-NLP__opus-100" / "de-en" / "test-00000-of-00001.parquet",
        [{"translation": {"en": "No", "de": "Nein"}}, {"translation": {"en": "It's so", "de": 'Zö "k"'}}],
        pa.schema([("translation", pair)]),
    )
    return folder


def made(rows: list[dict[str, Any]], tmp_path: Path, config: str = "qualitative", **options: Any) -> Path:
    """Where the config is ready after preparing it."""
    out = tmp_path / "out"
    prepare.check_target(out, config, force=False)
    published = prepare.read(config, str(publish(tmp_path / "published", rows, config)))
    return prepare.prepare(published, out, **options).path


def fault(rows: list[dict[str, Any]], tmp_path: Path, kind: type[Exception], **options: Any) -> str:
    """The message, after making sure that nothing looks ready."""
    with pytest.raises(kind) as caught:
        made(rows, tmp_path, **options)
    assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.endswith(".log")] == []
    message = str(caught.value)
    assert "\n" not in message
    return message


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def sidecar(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.with_name("qualitative.prepared.json").read_text(encoding="utf-8"))
    return content


def relaxed() -> SuiteFile:
    """The shipped suite for any number of rows."""
    file = suite.find("speed-bench-qualitative")
    data = file.simple.data.model_copy(update={"rows": None})
    return file.model_copy(update={"suite": file.simple.model_copy(update={"data": data})})
