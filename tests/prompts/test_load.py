import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval import suite
from spec_eval.errors import EnvironmentFault, UsageError
from spec_eval.prompts import hub, load
from spec_eval.suite import DataSpec, PromptSpec, Sampling, Suite, SuiteFile

ROWS = [{"id": f"t{i}", "question": f"What is {i}?", "kind": "odd" if i % 2 else "even"} for i in range(6)]
HUB: dict[str, Any] = {"hub": "teas/tea", "split": "test", "revision": "c0ffee" + "0" * 34, "licence": "MIT"}


def suite_file(folder: Path, **data: Any) -> SuiteFile:
    return SuiteFile(
        suite=Suite(
            schema_version=1,
            name="tea",
            title="Tea",
            data=DataSpec(**{"licence": "MIT", **data}),
            prompt=PromptSpec(template="{question}", id="id", category="kind"),
            sampling=Sampling(temperature=0, max_tokens=8),
        ),
        path=folder / "tea.toml",
        text="",
    )


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_file_beside_the_suite_is_indexed(tmp_path: Path) -> None:
    path = written(tmp_path / "tea.jsonl", ROWS)
    got = load(suite_file(tmp_path, file="tea.jsonl"))
    assert [(e.prompt_id, e.category, e.turns) for e in got.entries] == [
        ("t0", "even", 1),
        ("t1", "odd", 1),
        ("t2", "even", 1),
        ("t3", "odd", 1),
        ("t4", "even", 1),
        ("t5", "odd", 1),
    ]
    assert got.files == {"tea.jsonl": hashlib.sha256(path.read_bytes()).hexdigest()}
    assert (got.source, got.revision, got.notes) == ("tea.jsonl", None, ())
    assert [c.turns[0][0]["content"] for c in got][:2] == ["What is 0?", "What is 1?"]


def test_local_rows_of_a_hub_suite_name_both_places(tmp_path: Path) -> None:
    written(tmp_path / "tea.jsonl", ROWS)
    got = load(suite_file(tmp_path, local=("tea.jsonl",), **HUB), data_dir=tmp_path)
    assert got.source == "teas/tea from tea.jsonl"
    assert got.revision is None
    assert len(got.entries) == 6


def test_without_a_local_copy_the_hub_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[DataSpec, bool]] = []

    def read(data: DataSpec, *, trust_remote_code: bool = False) -> Any:
        asked.append((data, trust_remote_code))
        return iter((f"row {n}", row) for n, row in enumerate(ROWS, 1))

    monkeypatch.setattr(hub, "read", read)
    one = suite_file(tmp_path, **HUB)
    assert isinstance(one.suite, Suite)
    got = load(one, trust_remote_code=True)
    assert (got.source, got.revision, got.files) == ("teas/tea", HUB["revision"], {})
    assert len(list(got)) == 6
    assert asked == [(one.suite.data, True)] * 2


def test_same_rows_hash_alike_from_wherever_they_come(tmp_path: Path) -> None:
    written(tmp_path / "tea.jsonl", ROWS)
    crlf = tmp_path / "tea-crlf.jsonl"
    crlf.write_bytes(b"\xef\xbb\xbf" + (tmp_path / "tea.jsonl").read_bytes().replace(b"\n", b"\r\n"))
    hashes = {load(suite_file(tmp_path, file=name)).sha256 for name in ("tea.jsonl", "tea-crlf.jsonl")}
    assert len(hashes) == 1
    written(tmp_path / "tea.jsonl", ROWS[:-1])
    assert load(suite_file(tmp_path, file="tea.jsonl")).sha256 not in hashes


def test_number_of_rows_is_held_against_the_pin(tmp_path: Path) -> None:
    written(tmp_path / "tea.jsonl", ROWS)
    assert len(load(suite_file(tmp_path, file="tea.jsonl", rows=6)).entries) == 6
    with pytest.raises(UsageError, match="6 rows, the suite pins 7"):
        load(suite_file(tmp_path, file="tea.jsonl", rows=7))


def test_hash_of_the_prompts_is_held_against_the_pin(tmp_path: Path) -> None:
    written(tmp_path / "tea.jsonl", ROWS)
    # The hash of each prompt is that of its JSON; the set's is that of their hashes one after the other.
    digests = [
        hashlib.sha256(
            json.dumps(
                [row["id"], row["kind"], None, [[{"role": "user", "content": row["question"]}]]], ensure_ascii=True
            ).encode()
        ).hexdigest()
        for row in ROWS
    ]
    pin = hashlib.sha256("".join(digests).encode()).hexdigest()
    assert load(suite_file(tmp_path, file="tea.jsonl", sha256=pin)).sha256 == pin
    changed = [{**ROWS[0], "question": "What is nought?"}, *ROWS[1:]]
    written(tmp_path / "tea.jsonl", changed)
    with pytest.raises(UsageError, match=f"the suite pins {pin[:12]}"):
        load(suite_file(tmp_path, file="tea.jsonl", sha256=pin))


def test_bad_rows_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    written(tmp_path / "tea.jsonl", [*ROWS, ROWS[2], {"id": "t9", "question": " "}])
    with pytest.raises(UsageError, match=r"id 't2' is taken by tea\.jsonl: line 3.*'question' is empty"):
        load(suite_file(tmp_path, file="tea.jsonl"))


def test_lines_that_are_no_rows_are_refused_with_the_others(tmp_path: Path) -> None:
    path = written(tmp_path / "tea.jsonl", [*ROWS, {"id": "t9", "question": " "}])
    path.write_bytes(path.read_bytes() + b'{"id": "t10"\n{"id": "\xe9"}\n[]\n')
    with pytest.raises(UsageError) as caught:
        load(suite_file(tmp_path, file="tea.jsonl"))
    message = str(caught.value)
    for problem in ("7: column 'question' is empty", "8: not JSON", "9: not UTF-8 at byte 9", "10: not a JSON object"):
        assert f"tea.jsonl: line {problem}" in message


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_file_without_rows_is_an_environment_fault(tmp_path: Path, content: str) -> None:
    (tmp_path / "tea.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(EnvironmentFault, match="no rows"):
        load(suite_file(tmp_path, file="tea.jsonl"))


def test_missing_file_is_an_environment_fault(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"data\.file 'tea\.jsonl' is not beside it"):
        load(suite_file(tmp_path, file="tea.jsonl"))


def test_missing_data_folder_is_an_environment_fault(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no such folder"):
        load(suite_file(tmp_path, local=("tea.jsonl",), **HUB), data_dir=tmp_path / "nowhere")


def test_template_without_a_column_is_refused(tmp_path: Path) -> None:
    one = suite_file(tmp_path, file="tea.jsonl")
    assert isinstance(one.suite, Suite)
    prompt = one.suite.prompt.model_copy(update={"template": "Tell me a joke"})
    with pytest.raises(UsageError, match="names no column"):
        load(one.model_copy(update={"suite": one.suite.model_copy(update={"prompt": prompt})}))


def test_categories_alike_but_for_case_are_noted(tmp_path: Path) -> None:
    written(tmp_path / "tea.jsonl", [{**ROWS[0], "kind": "Odd"}, *ROWS[1:]])
    (note,) = load(suite_file(tmp_path, file="tea.jsonl")).notes
    assert "'Odd', 'odd'" in note


def test_row_changed_on_disk_is_noticed_on_the_next_pass(tmp_path: Path) -> None:
    written(tmp_path / "tea.jsonl", ROWS)
    got = load(suite_file(tmp_path, file="tea.jsonl"))
    written(tmp_path / "tea.jsonl", [*ROWS[:5], {**ROWS[5], "question": "Else?"}])
    with pytest.raises(ValueError, match="prompt 't5' changed"):
        list(got)


def test_row_removed_on_disk_is_noticed_on_the_next_pass(tmp_path: Path) -> None:
    written(tmp_path / "tea.jsonl", ROWS)
    got = load(suite_file(tmp_path, file="tea.jsonl"))
    written(tmp_path / "tea.jsonl", ROWS[:5])
    with pytest.raises(ValueError, match="t5"):
        list(got)


def test_every_file_read_has_its_hash(tmp_path: Path) -> None:
    parts = [written(tmp_path / name / "part.jsonl", rows) for name, rows in (("a", ROWS[:3]), ("b", ROWS[3:]))]
    got = load(suite_file(tmp_path, local=("*/part.jsonl",), **HUB), data_dir=tmp_path)
    assert len(got.entries) == 6
    assert sorted(got.files.values()) == sorted(hashlib.sha256(p.read_bytes()).hexdigest() for p in parts)


def test_shipped_smoke_suite_has_six_prompts_of_each_category() -> None:
    got = load(suite.find("smoke"))
    kinds = [entry.category for entry in got.entries]
    assert {kind: kinds.count(kind) for kind in kinds} == {"repeat": 6, "coding": 6, "qa": 6, "writing": 6}
    assert [e.category for e in got.limited(4).entries] == ["repeat", "coding", "qa", "writing"]


def pinned(one: SuiteFile, **pins: Any) -> SuiteFile:
    assert isinstance(one.suite, Suite)
    data = one.suite.data.model_copy(update=pins)
    return one.model_copy(update={"suite": one.suite.model_copy(update={"data": data})})


def test_local_rows_may_be_another_edition_with_a_pin_of_its_own(tmp_path: Path) -> None:
    written(tmp_path / "tea.jsonl", ROWS)
    one = suite_file(tmp_path, local=("tea.jsonl",), **HUB)
    found = load(one, data_dir=tmp_path)
    assert found.notes == ("local rows: their content is not pinned by the suite, only recorded",)
    held = load(pinned(one, sha256="0" * 64, local_sha256=found.sha256), data_dir=tmp_path)
    assert (held.sha256, held.notes) == (found.sha256, ())
    with pytest.raises(UsageError, match="the suite pins 000000000000"):
        load(pinned(one, sha256="0" * 64), data_dir=tmp_path)
    with pytest.raises(UsageError, match="the suite pins 111111111111"):
        load(pinned(one, sha256=found.sha256, local_sha256="1" * 64), data_dir=tmp_path)


def test_rows_of_the_hub_are_held_against_the_hubs_pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "read", lambda *_, **__: iter((f"row {n}", row) for n, row in enumerate(ROWS, 1)))
    one = suite_file(tmp_path, **HUB)
    found = load(one)
    assert found.notes == ()
    assert load(pinned(one, sha256=found.sha256, local_sha256="1" * 64)).sha256 == found.sha256
    with pytest.raises(UsageError, match="use the pinned data set"):
        load(pinned(one, sha256="2" * 64))


def test_stand_in_rows_are_neither_counted_nor_hashed_against_the_pins(tmp_path: Path) -> None:
    written(tmp_path / "tea_standin" / "tea.jsonl", ROWS)
    one = pinned(suite_file(tmp_path, local=("*/tea.jsonl",), **HUB), rows=164, sha256="0" * 64)
    found = load(one, data_dir=tmp_path)
    assert (found.standin, found.source, found.rows) == (True, "stand-in rows from tea.jsonl", 6)


@pytest.mark.parametrize(
    ("target", "link"),
    [
        ("made/tea_standin", "data/tea"),  # the folder of the rows
        ("made/tea-stand-in/deep/tea", "data/tea"),  # a folder above them
        ("made/tea_standin/tea.jsonl", "data/tea/tea.jsonl"),  # the file itself
        ("made/tea_standin", "data"),  # the data folder
    ],
)
def test_rows_behind_a_link_are_a_stand_in_too(tmp_path: Path, target: str, link: str) -> None:
    home = tmp_path / target
    rows = home if home.suffix else home / ("tea/tea.jsonl" if link == "data" else "tea.jsonl")
    rows.parent.mkdir(parents=True)
    written(rows, ROWS)
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(home)
    one = pinned(suite_file(tmp_path, local=("tea/tea.jsonl",), **HUB), rows=164)
    assert load(one, data_dir=tmp_path / "data").standin


def test_a_readme_behind_a_link_counts_and_one_far_above_does_not(tmp_path: Path) -> None:
    home = tmp_path / "made" / "rows"
    home.mkdir(parents=True)
    written(home / "tea.jsonl", ROWS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tea").symlink_to(home)
    one = suite_file(tmp_path, local=("tea/tea.jsonl",), **HUB)
    (tmp_path / "README.md").write_text("Beside our stand-in rows lie real ones.", encoding="utf-8")
    assert not load(one, data_dir=tmp_path / "data").standin
    (home / "README.md").write_text("A stand-in.", encoding="utf-8")
    assert load(one, data_dir=tmp_path / "data").standin


def test_file_beside_a_suite_is_no_stand_in_of_anything(tmp_path: Path) -> None:
    written(tmp_path / "standin" / "tea.jsonl", ROWS)
    assert not load(suite_file(tmp_path / "standin", file="tea.jsonl"), data_dir=tmp_path).standin


def test_data_as_people_really_have_it(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"id": "d1", "question": "One?", "kind": "coding"}\r\n',
        b"\n",
        b'{"id": 9, "question": "Two?", "kind": "Coding "}\n',
        b'{"id": "d3", "question": "Three?"}',
    ]
    (tmp_path / "tea.jsonl").write_bytes(b"".join(lines))
    found = load(suite_file(tmp_path, file="tea.jsonl"))
    assert [(e.prompt_id, e.category) for e in found.entries] == [
        ("d1", "coding"),
        ("9", "Coding "),
        ("d3", "(none)"),
    ]
    assert found.notes == (
        "categories 'Coding ', 'coding' differ only by case or space and are kept apart",
        "1 rows have no category and are counted under (none)",
    )


def test_a_subcategory_that_no_row_has_is_a_fault_of_the_suite(tmp_path: Path) -> None:
    written(tmp_path / "tea.jsonl", [*ROWS[:5], {**ROWS[5], "part": ""}])
    one = suite_file(tmp_path, file="tea.jsonl")
    for name in ("part", "id"):
        prompt = one.simple.prompt.model_copy(update={"subcategory": name})
        good = one.model_copy(update={"suite": one.simple.model_copy(update={"prompt": prompt})})
        assert len(load(good).entries) == 6
    prompt = one.simple.prompt.model_copy(update={"subcategory": "parrt"})
    bad = one.model_copy(update={"suite": one.simple.model_copy(update={"prompt": prompt})})
    with pytest.raises(UsageError, match=r"tea.jsonl: no row has a column 'parrt'; mend prompt.subcategory"):
        load(bad)
