import hashlib
from pathlib import Path

import huggingface_hub
import pytest

from spec_eval import __version__
from spec_eval.errors import UsageError
from spec_eval.prompts import load, prepare
from tests.prompts.prepare.made_up import (
    ARTICLE,
    CONTEST,
    HLE,
    LCB,
    MMLU,
    OPUS,
    OURS,
    PLAIN,
    RESOLVED,
    fault,
    lines,
    made,
    parquet,
    publish,
    relaxed,
    sidecar,
)


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
