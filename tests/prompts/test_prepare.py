import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError

from spec_eval import __version__, suite
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import load, prepare
from spec_eval.prompts import rows as reading
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


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    return fill_sources(tmp_path / "sources")


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


def test_rows_come_out_as_published_in_their_order_with_their_texts(tmp_path: Path, made_up: Path) -> None:
    path = made(OURS, tmp_path, sources_dir=made_up)
    assert path == tmp_path / "out" / "qualitative.jsonl"
    assert lines(path) == [{**r, "turns": turns} for r, turns in zip(OURS, RESOLVED, strict=True)]
    assert "Zö" in path.read_text(encoding="utf-8")
    assert sorted(p.name for p in path.parent.iterdir()) == ["qualitative.jsonl", "qualitative.prepared.json"]


@pytest.mark.parametrize("number", range(1, 7), ids=["cnn", "hle", "livecodebench", "contests", "mt101", "opus"])
def test_each_source_on_its_own_in_any_place(number: int, tmp_path: Path, made_up: Path) -> None:
    path = made([OURS[number], PLAIN], tmp_path, sources_dir=made_up)
    assert [r["turns"] for r in lines(path)] == [RESOLVED[number], RESOLVED[0]]


def test_prepared_folder_loads_through_the_suite(tmp_path: Path, made_up: Path) -> None:
    path = made(OURS, tmp_path, sources_dir=made_up)
    got = load(relaxed(), data_dir=path.parent)
    assert [[turn[0]["content"] for turn in c.turns] for c in got] == RESOLVED
    assert got.source == "nvidia/SPEED-Bench from qualitative.jsonl"
    assert not got.standin


def test_published_folder_itself_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="6 of 7 rows are placeholders"):
        load(relaxed(), data_dir=publish(tmp_path, OURS))


def test_sidecar_tells_what_was_made_of_what(tmp_path: Path, made_up: Path) -> None:
    path = made(OURS, tmp_path, sources_dir=made_up)
    about = sidecar(path)
    assert about["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (about["schema_version"], about["rows"], about["resolved_rows"]) == (1, 7, 6)
    assert about["tool"] == {"name": "spec-eval", "version": __version__}
    source = tmp_path / "published" / "qualitative" / "test-00000-of-00001.parquet"
    assert about["published"] == {
        "source": "published",
        "revision": None,
        "files": {"qualitative/test-00000-of-00001.parquet": hashlib.sha256(source.read_bytes()).hexdigest()},
        "standin": False,
    }
    hle = next(one for one in about["sources"] if one["name"] == "cais/hle")
    file = made_up / "cais__hle" / "data" / "test-00000-of-00001.parquet"
    assert hle == {
        "name": "cais/hle",
        "rows": 1,
        "revision": None,
        "from": "local",
        "files": {"data/test-00000-of-00001.parquet": hashlib.sha256(file.read_bytes()).hexdigest()},
    }
    assert {one["name"]: one["rows"] for one in about["sources"]} == dict.fromkeys(
        (
            "abisee/cnn_dailymail",
            "cais/hle",
            "livecodebench/code_generation_lite",
            "deepmind/code_contests",
            "mtbench101/mt-bench-101",
            "Helsinki-NLP/opus-100",
        ),
        1,
    )


def test_two_language_pairs_are_one_source(tmp_path: Path, made_up: Path) -> None:
    parquet(
        made_up / "Helsinki-NLP__opus-100" / "en-fr" / "test-00000-of-00001.parquet",
        [{"translation": {"en": "Yes", "fr": "Oui"}}],
    )
    french = {**OPUS, "question_id": "f" * 32, "src_id": "opus-100_en-fr_0"}
    path = made([OPUS, french], tmp_path, sources_dir=made_up)
    assert lines(path)[1]["turns"] == ["Translate {'en': 'Yes', 'fr': 'Oui'}"]
    (one,) = sidecar(path)["sources"]
    assert (one["rows"], sorted(one["files"])) == (
        2,
        ["de-en/test-00000-of-00001.parquet", "en-fr/test-00000-of-00001.parquet"],
    )


def test_rows_without_placeholders_need_nothing(tmp_path: Path) -> None:
    assert [r["turns"] for r in lines(made([PLAIN], tmp_path))] == [PLAIN["turns"]]


def test_one_row_of_a_foreign_source_and_nothing_is_written(tmp_path: Path, made_up: Path) -> None:
    message = fault([*OURS, MMLU], tmp_path, prepare.StillMasked, sources_dir=made_up)
    assert "1 of 8 rows wait for their texts: 1 of TIGER-Lab/MMLU-Pro (needs --tool)" in message
    assert "with --tool" in message
    assert "cais/hle" not in message


def test_without_the_tool_nothing_is_fetched_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("fetched"))
    message = fault([HLE, ARTICLE, MMLU], tmp_path, prepare.StillMasked)
    assert "3 of 3 rows" in message
    assert "1 of cais/hle (not fetched yet; gated: accept its terms on the hub and set HF_TOKEN)" in message


def test_source_that_is_not_in_the_folder_is_named_with_its_count(tmp_path: Path, made_up: Path) -> None:
    (made_up / "deepmind__code_contests").rename(tmp_path / "away")
    twin = {**CONTEST, "question_id": "e" * 32}
    message = fault([CONTEST, HLE, twin], tmp_path, prepare.StillMasked, sources_dir=made_up)
    assert "2 of 3 rows wait" in message
    assert "2 of deepmind/code_contests (not to be had: no folder deepmind__code_contests in --sources)" in message


def test_missing_file_of_a_source_is_named(tmp_path: Path, made_up: Path) -> None:
    (made_up / "livecodebench__code_generation_lite" / "test4.jsonl").unlink()
    assert "no test4.jsonl" in fault([LCB], tmp_path, prepare.StillMasked, sources_dir=made_up)


def test_gated_source_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    message = fault([HLE], tmp_path, prepare.StillMasked, sources_dir=tmp_path / "none")
    assert "1 of cais/hle (gated: accept its terms on the hub and set HF_TOKEN" in message


def test_hle_in_a_throughput_config_needs_the_tool(tmp_path: Path, made_up: Path) -> None:
    message = fault([HLE], tmp_path, prepare.StillMasked, sources_dir=made_up, config="throughput_1k")
    assert "1 of cais/hle (needs --tool, and is gated" in message


def test_placeholder_of_an_unknown_kind_needs_the_tool(tmp_path: Path, made_up: Path) -> None:
    message = fault([{**HLE, "turns": ["<<PLACEHOLDER 7"]}], tmp_path, prepare.StillMasked, sources_dir=made_up)
    assert "needs --tool" in message


class Hub:
    """Hands out folders of made-up sources as if they were snapshots."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, str, list[str]]] = []
        self.error: Exception | None = None

    def download(self, name: str, *, repo_type: str, revision: str, allow_patterns: list[str]) -> str:
        assert repo_type == "dataset"
        self.asked.append((name, revision, allow_patterns))
        if self.error is not None:
            raise self.error
        return str(self.folder / name.replace("/", "__"))


@pytest.fixture
def fake_hub(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(made_up)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.download)
    return hub


def test_hub_is_asked_for_few_files_at_the_revision_of_the_address(tmp_path: Path, fake_hub: Hub) -> None:
    unpinned = {**OPUS, "source": f"{HUB}/Helsinki-NLP/opus-100"}
    path = made([ARTICLE, unpinned], tmp_path)
    assert [r["turns"] for r in lines(path)] == [RESOLVED[1], RESOLVED[6]]
    assert fake_hub.asked == [
        ("abisee/cnn_dailymail", REVISION, ["3.0.0/test-*.parquet"]),
        ("Helsinki-NLP/opus-100", "805090dc28bf78897da9641cdf08b61287580df9", ["de-en/test-*.parquet"]),
    ]
    assert [(one["from"], one["revision"][:6]) for one in sidecar(path)["sources"]] == [
        ("hub", "ababab"),
        ("hub", "805090"),
    ]


def test_address_without_a_revision_is_never_taken_from_the_newest(tmp_path: Path, fake_hub: Hub) -> None:
    message = fault([{**ARTICLE, "source": at("abisee/cnn_dailymail", "main")}], tmp_path, prepare.StillMasked)
    assert "its address names no revision" in message
    assert fake_hub.asked == []


def test_hub_out_of_reach_is_a_count_and_no_traceback(tmp_path: Path, fake_hub: Hub) -> None:
    fake_hub.error = LocalEntryNotFoundError("Cannot find the files\nand more")
    message = fault([ARTICLE, PLAIN], tmp_path, prepare.StillMasked)
    assert "1 of 2 rows wait for their texts: 1 of abisee/cnn_dailymail (not to be had: Cannot find" in message
    assert "--sources" in message


def test_closed_gate_of_the_hub_is_told_from_no_way_to_it(tmp_path: Path, fake_hub: Hub) -> None:
    gate = GatedRepoError.__new__(GatedRepoError, "403")
    gate.args = ("403 Client Error",)
    fake_hub.error = gate
    message = fault([ARTICLE], tmp_path, prepare.StillMasked)
    assert "1 of abisee/cnn_dailymail (gated: accept its terms on the hub and set HF_TOKEN)" in message


class Reply:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def __enter__(self) -> "Reply":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def read(self) -> bytes:
        return self.body


def test_mt_bench_101_comes_from_the_commit_of_its_address(
    tmp_path: Path, made_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    body = (made_up / "mtbench101__mt-bench-101" / "data" / "subjective" / "mtbench101.jsonl").read_bytes()

    def urlopen(address: str, *, timeout: float) -> Reply:
        assert timeout > 0
        asked.append(address)
        return Reply(body)

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    path = made([MT101], tmp_path)
    assert lines(path)[0]["turns"] == RESOLVED[5]
    assert asked == [MT101["source"]]
    (one,) = sidecar(path)["sources"]
    assert (one["from"], one["revision"]) == ("github", REVISION)
    assert one["files"] == {"data/subjective/mtbench101.jsonl": hashlib.sha256(body).hexdigest()}


@pytest.mark.parametrize("offline", [True, False])
def test_github_out_of_reach_is_a_count_too(tmp_path: Path, offline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def urlopen(_address: str, **_: Any) -> Reply:
        raise OSError("no route")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    message = fault([MT101], tmp_path, prepare.StillMasked)
    assert f"1 of mtbench101/mt-bench-101 (not to be had: {'offline' if offline else 'no route'}" in message


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({**HLE, "src_id": "2" * 24}, "no record '222222222222222222222222' in test-00000"),
        ({**MT101, "src_id": "mtbench_101_2"}, "no record 2 in mtbench101.jsonl"),
        ({**OPUS, "src_id": "opus-100_1"}, "src_id 'opus-100_1' names no record"),
        ({**OPUS, "src_id": "opus-100_../../x_1"}, "names no record"),
        ({**MT101, "src_id": None}, "src_id None names no record"),
        ({**ARTICLE, "turns": [MASK]}, "no single template"),
        ({**ARTICLE, "turns": [*ARTICLE["turns"], "More?"]}, "no single template"),
        ({**ARTICLE, "turns": [f"{MASK}\n\n{{article.__class__}}"]}, "nothing of its record fills {article.__class__}"),
        ({**ARTICLE, "turns": [f"{MASK}\n\n{{article!r}}"]}, "fills {article}"),
        ({**ARTICLE, "turns": [f"{MASK}\n\n{{story}}"]}, "fills {story}"),
        ({**ARTICLE, "turns": [f"{MASK}\n\n{{article"]}, "its template cannot be read"),
    ],
)
def test_row_that_does_not_fit_its_source_is_named(
    bad: dict[str, Any], says: str, tmp_path: Path, made_up: Path
) -> None:
    message = fault([PLAIN, bad], tmp_path, UsageError, sources_dir=made_up)
    assert message.startswith(f"qualitative: row 2 ({bad['question_id']}, ")
    assert says in message


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"history": []}, "holds no turns"),
        ({"history": [{"user": " "}]}, "a turn without text"),
        ({"history": [{"bot": "Hi"}]}, "of another shape"),
        ({"history": None}, "of another shape"),
        ({"history": [{"user": "\ud83d"}]}, "cannot be written as UTF-8"),
        ({"story": []}, "no column 'history'"),
        ({"history": [{"user": f"So: {MASK}"}]}, "a placeholder is left"),
    ],
)
def test_record_of_another_shape_is_refused(record: dict[str, Any], says: str, tmp_path: Path, made_up: Path) -> None:
    json_lines(made_up / "mtbench101__mt-bench-101" / "data" / "subjective" / "mtbench101.jsonl", [record])
    with pytest.raises((UsageError, EnvironmentFault), match=says):
        made([{**MT101, "src_id": "x_0"}], tmp_path, sources_dir=made_up)
    assert list((tmp_path / "out").iterdir()) == []


def test_damaged_source_is_named(tmp_path: Path, made_up: Path) -> None:
    path = made_up / "cais__hle" / "data" / "test-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:100])
    assert "not readable parquet" in fault([HLE], tmp_path, UsageError, sources_dir=made_up)


def test_source_of_another_schema_is_named(tmp_path: Path, made_up: Path) -> None:
    parquet(made_up / "cais__hle" / "data" / "test-00000-of-00001.parquet", [{"id": "0" * 24, "text": "?"}])
    assert "no column 'question'" in fault([HLE], tmp_path, UsageError, sources_dir=made_up)


def test_first_of_two_records_of_one_id_is_taken(tmp_path: Path, made_up: Path) -> None:
    parquet(
        made_up / "cais__hle" / "data" / "test-00000-of-00001.parquet",
        [{"id": "0" * 24, "question": "First?"}, {"id": "0" * 24, "question": "Second?"}],
    )
    assert lines(made([HLE], tmp_path, sources_dir=made_up))[0]["turns"] == ["First?"]


def test_published_file_missing(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"none of .*throughput_8k\.jsonl there"):
        prepare.read("throughput_8k", str(publish(tmp_path, OURS)))
    with pytest.raises(EnvironmentFault, match="no such folder"):
        prepare.read("qualitative", str(tmp_path / "nowhere"))


def test_published_folder_is_asked_of_the_hub_by_its_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, str | None, str | None]] = []

    def read(data: suite.DataSpec) -> Any:
        asked.append((data.hub, data.config, data.revision))
        return iter([("row 1", PLAIN)])

    monkeypatch.setattr("spec_eval.prompts.hub.read", read)
    got = prepare.read("throughput_2k")
    assert prepare.read("qualitative", f"me/copy@{REVISION}").source == "me/copy"
    pin = suite.find("speed-bench-throughput-2k").simple.data.revision
    assert asked == [("nvidia/SPEED-Bench", "throughput_2k", pin), ("me/copy", "qualitative", REVISION)]
    assert (got.revision, got.files, got.waiting) == (pin, {}, [])


def test_no_way_to_the_published_rows_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: Any, **__: Any) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(EnvironmentFault, match=r"SPEED-Bench@454f88454792: .*give its rows with --published"):
        prepare.read("qualitative")


@pytest.mark.parametrize("column", ["question_id", "turns", "src_id", "multiturn"])
def test_other_schema_names_the_column(column: str, tmp_path: Path) -> None:
    rows = [{name: value for name, value in PLAIN.items() if name != column}]
    json_lines(tmp_path / "qualitative.jsonl", rows)
    with pytest.raises(UsageError, match=f"no column '{column}'"):
        prepare.read("qualitative", str(tmp_path))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([PLAIN, PLAIN], "is taken by"),
        ([{**PLAIN, "question_id": ""}], "question_id is ''"),
        ([{**PLAIN, "turns": []}], "turns are not a list of texts"),
        ([{**PLAIN, "turns": [None]}], "turns are not a list of texts"),
    ],
)
def test_published_rows_that_cannot_be_used_are_named(rows: list[dict[str, Any]], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        prepare.read("qualitative", str(publish(tmp_path, rows)))


def test_published_file_without_rows(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no rows"):
        prepare.read("qualitative", str(publish(tmp_path, [])))


def test_prepared_file_is_only_replaced_when_told(tmp_path: Path, made_up: Path) -> None:
    path = made([HLE], tmp_path, sources_dir=made_up)
    with pytest.raises(UsageError, match="prepared already; give --force"):
        prepare.check_target(path.parent, "qualitative", force=False)
    prepare.check_target(path.parent, "qualitative", force=True)
    prepare.check_target(path.parent, "throughput_1k", force=False)
    prepare.prepare(prepare.read("qualitative", str(publish(tmp_path / "new", [PLAIN]))), path.parent)
    assert [r["question_id"] for r in lines(path)] == [PLAIN["question_id"]]
    assert sidecar(path)["sha256"] == reading.sha256(path)


def test_folder_with_other_rows_of_the_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a run would read it before"):
        prepare.check_target(publish(tmp_path, OURS), "qualitative", force=False)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        prepare.check_target(tmp_path, "qualitative", force=False)


def test_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(EnvironmentFault, match="out: cannot be written"):
        prepare.check_target(tmp_path / "out", "qualitative", force=False)


def test_disk_that_fills_up_leaves_nothing_that_looks_ready(
    tmp_path: Path, made_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spec_eval.prompts.prepare.ready.os.fsync", full)
    assert "No space left" in fault([HLE], tmp_path, EnvironmentFault, sources_dir=made_up)


def test_stand_in_keeps_its_name(tmp_path: Path) -> None:
    folder = publish(tmp_path / "published", [PLAIN])
    (folder / "README.md").write_text("A stand-in, never the real set.")
    published = prepare.read("qualitative", str(folder))
    with pytest.raises(UsageError, match="are a stand-in; give an -o whose name says standin"):
        prepare.prepare(published, tmp_path)
    out = tmp_path / "out-standin"
    prepare.check_target(out, "qualitative", force=False)
    prepare.prepare(published, out)
    assert load(relaxed(), data_dir=out).standin


def test_another_number_of_rows_than_the_suite_pins_is_noted(tmp_path: Path) -> None:
    published = prepare.read("qualitative", str(publish(tmp_path, [PLAIN])))
    (note,) = prepare.prepare(published, tmp_path).notes
    assert "1 rows, the suite pins 880" in note


def test_outlook_counts_by_source_and_fetches_nothing(tmp_path: Path) -> None:
    twin = {**HLE, "question_id": "e" * 32}
    published = prepare.read("qualitative", str(publish(tmp_path, [*OURS, twin, MMLU])))
    assert [(left.name, left.rows, left.why) for left in prepare.outlook(published)][:2] == [
        ("cais/hle", 2, "ours"),
        ("abisee/cnn_dailymail", 1, "ours"),
    ]
    assert {left.name for left in prepare.outlook(published) if left.why == "tool"} == {"TIGER-Lab/MMLU-Pro"}


# The other way: NVIDIA's preparer, here a script of the same face.

SCRIPT = """
import argparse, json, pathlib, sys
import pyarrow as pa, pyarrow.parquet as pq
face = argparse.ArgumentParser()
face.add_argument("--dataset", choices=["speed"])
face.add_argument("--config")
face.add_argument("--output_dir", type=pathlib.Path)
told = face.parse_args()
here = pathlib.Path(__file__).parent
assert pathlib.Path.cwd() == here
print("preparing", told.config)
rows = json.loads((here / "rows.json").read_text())
if rows is None:
    print("Traceback: and so on")
    print("DatasetNotFoundError: cais/hle is gated")
    sys.exit(1)
folder = told.output_dir / "speed" / told.config
folder.mkdir(parents=True)
if rows:
    pq.write_table(pa.Table.from_pylist(rows), folder / "test.parquet")
"""
BY_TOOL = [[f"By the tool {n}."] for n in range(3)]


def checkout(folder: Path, rows: list[dict[str, Any]] | None) -> Path:
    script = folder / "examples" / "specdec_bench" / "prepare_data.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(SCRIPT)
    (script.parent / "rows.json").write_text(json.dumps(rows))
    return folder


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


TOOL_ROWS = [HLE, MMLU, PLAIN]
GOOD = [{**r, "turns": t} for r, t in zip(TOOL_ROWS, [BY_TOOL[0], ["Q1", "Q2"], PLAIN["turns"]], strict=True)]


def by_tool(tmp_path: Path, rows: list[dict[str, Any]] | None) -> Path:
    return made(TOOL_ROWS, tmp_path, tool=prepare.Tool.at(checkout(tmp_path / "Model-Optimizer", rows), sys.executable))


def test_tool_prepares_a_whole_config(tmp_path: Path) -> None:
    path = by_tool(tmp_path, GOOD)
    assert [r["turns"] for r in lines(path)] == [BY_TOOL[0], ["Q1", "Q2"], PLAIN["turns"]]
    assert [list(r) for r in lines(path)] == [list(PLAIN)] * 3
    about = sidecar(path)
    assert about["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert about["tool"] == {
        "name": "Model-Optimizer",
        "commit": None,
        "changed": False,
        "run_by": f"spec-eval {__version__}",
    }
    assert [(one["name"], one["rows"], one["from"]) for one in about["sources"]] == [
        ("cais/hle", 1, "tool"),
        ("TIGER-Lab/MMLU-Pro", 1, "tool"),
    ]
    assert "preparing qualitative" in (path.parent / "qualitative.tool.log").read_text()
    assert len(load(relaxed(), data_dir=path.parent).entries) == 3


def test_commit_of_the_tool_is_recorded_and_whether_it_was_changed(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "tool", GOOD)
    git(folder, "init", "-q")
    assert prepare.Tool.at(folder, sys.executable).commit is None
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    head = git(folder, "rev-parse", "HEAD")
    for given in (folder, folder / "examples" / "specdec_bench"):
        tool = prepare.Tool.at(given, sys.executable)
        assert (tool.commit, tool.changed, tool.name) == (head, False, given.name)
    (folder / "examples" / "specdec_bench" / "prepare_data.py").write_text("changed")
    assert prepare.Tool.at(folder, sys.executable).changed


def test_folder_inside_some_other_checkout_has_no_commit(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "other")
    assert prepare.Tool.at(checkout(tmp_path / "tool", GOOD), sys.executable).commit is None


def test_tool_folder_without_the_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no examples/specdec_bench/prepare_data\.py there"):
        prepare.Tool.at(tmp_path, sys.executable)


def test_failing_tool_gives_its_last_line_and_its_log(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        by_tool(tmp_path, None)
    log = tmp_path / "out" / "qualitative.tool.log"
    message = str(caught.value)
    assert f"exit 1 for qualitative: DatasetNotFoundError: cais/hle is gated; see {log}" in message
    assert "cais/hle is gated: accept its terms on the hub and set HF_TOKEN" in message
    assert [path.name for path in log.parent.iterdir()] == [log.name]


def test_python_that_is_not_there(tmp_path: Path) -> None:
    tool = prepare.Tool.at(checkout(tmp_path / "tool", GOOD), str(tmp_path / "no-python"))
    assert "give --tool-python" in fault(TOOL_ROWS, tmp_path, UsageError, tool=tool)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "wrote no speed/qualitative/test.parquet"),
        (GOOD[:2], "2 rows, 3 are published"),
        ([GOOD[1], GOOD[0], GOOD[2]], f"row 1 is '{MMLU['question_id']}', published is '{HLE['question_id']}'"),
        ([{**GOOD[0], "turns": [MASK]}, *GOOD[1:]], "row 1 (cais/hle) is still a placeholder"),
        ([GOOD[0], {**GOOD[1], "turns": ["Q1", f"\n{MASK}"]}, GOOD[2]], "row 2 (TIGER-Lab/MMLU-Pro) is still"),
        ([*GOOD[:2], {**GOOD[2], "turns": ["Why not?"]}], "row 3: its turns are published, and the tool's are others"),
        ([*GOOD[:2], {**GOOD[2], "turns": [" "]}], "row 3: turns are not a list of texts"),
        ([{"question_id": r["question_id"]} for r in GOOD], "row 1: turns are not a list of texts"),
    ],
)
def test_tool_that_wrote_something_else_is_not_believed(rows: list[dict[str, Any]], says: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        by_tool(tmp_path, rows)
    assert says in str(caught.value)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["qualitative.tool.log"]


def test_tool_is_not_run_where_nothing_waits(tmp_path: Path) -> None:
    tool = prepare.Tool.at(checkout(tmp_path / "tool", None), sys.executable)
    assert sidecar(made([PLAIN], tmp_path, tool=tool))["tool"]["name"] == "spec-eval"
