import re
from pathlib import Path

import pytest

from spec_eval import suite
from spec_eval.errors import UsageError
from spec_eval.suite import CompoundSuite, Sampling, Select, Suite, SuiteFile

GOOD = """\
schema_version = 1
name = "tea"
title = "Tea"

[data]
file = "tea.jsonl"
licence = "CC0-1.0"

[prompt]
id = "id"
template = "{question} in \\\\boxed{}"

[sampling]
temperature = 0.7
max_tokens = 128
"""


def single(found: SuiteFile) -> Suite:
    assert isinstance(found.suite, Suite)
    return found.suite


def written(folder: Path, text: str) -> Path:
    path = folder / "tea.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path, text: str) -> str:
    path = written(folder, text)
    with pytest.raises(UsageError) as caught:
        suite.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message


def test_suite_file_is_read_into_frozen_types(tmp_path: Path) -> None:
    found = suite.read(written(tmp_path, GOOD))
    assert found.text == GOOD
    one = single(found)
    assert one.name == "tea"
    assert one.data.file == "tea.jsonl"
    assert one.prompt.template == r"{question} in \boxed{}"
    assert one.sampling.temperature == 0.7
    assert one.sampling.top_p is None
    assert (one.load.concurrency, one.load.repeats) == (1, 1)
    with pytest.raises(ValueError, match="frozen"):
        one.name = "coffee"


def test_hash_is_that_of_the_text(tmp_path: Path) -> None:
    # printf 'schema_version = 1' | sha256sum
    found = suite.read(written(tmp_path, GOOD)).model_copy(update={"text": "schema_version = 1"})
    assert found.sha256 == "b7bd3a4ef3d4f76daaba11c506459e2671b423580f507b3796cd06575a81ddd6"


@pytest.mark.parametrize(
    ("right", "typo", "place", "nearest"),
    [
        ("max_tokens", "max_token", "sampling.max_token", "max_tokens"),
        ("temperature", "temprature", "sampling.temprature", "temperature"),
        ("[sampling]", "[samplng]", "samplng", "sampling"),
        ("licence", "license", "data.license", "licence"),
        ("template", "tempalte", "prompt.tempalte", "template"),
        ("title", "titel", "titel", "title"),
    ],
)
def test_misspelt_key_names_the_nearest_one(tmp_path: Path, right: str, typo: str, place: str, nearest: str) -> None:
    message = refusal(tmp_path, GOOD.replace(right, typo, 1))
    assert f"unknown key {place!r}" in message
    assert f"did you mean {nearest!r}?" in message


def test_unknown_key_near_to_none_lists_the_known_ones(tmp_path: Path) -> None:
    message = refusal(tmp_path, GOOD + "zzz = 1\n")
    assert "unknown key 'sampling.zzz'" in message
    assert "temperature" in message
    assert "max_tokens" in message


@pytest.mark.parametrize("version", ["2", "0", '"1"'])
def test_other_schema_version_is_refused_with_its_number(tmp_path: Path, version: str) -> None:
    message = refusal(tmp_path, GOOD.replace("schema_version = 1", f"schema_version = {version}"))
    assert f"schema_version {version.replace(chr(34), chr(39))}" in message
    assert "reads 1" in message


def test_missing_schema_version_is_refused_before_anything_else(tmp_path: Path) -> None:
    message = refusal(tmp_path, GOOD.replace("schema_version = 1", "nonsense = 1"))
    assert "schema_version None" in message


@pytest.mark.parametrize("text", ["{not toml", "a = 1\na = 2\n", '{"schema_version": 1}'])
def test_text_that_is_not_toml_says_so(tmp_path: Path, text: str) -> None:
    assert "not TOML" in refusal(tmp_path, text)


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(GOOD.replace("Tea", "Caf\xe9").encode("latin-1"))
    with pytest.raises(UsageError, match=r"UTF-8"):
        suite.read(path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape("nowhere.toml")):
        suite.read(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("max_tokens = 128", "max_tokens = 0", "sampling.max_tokens"),
        ("temperature = 0.7", "temperature = -0.1", "sampling.temperature"),
        ("temperature = 0.7", "temperature = nan", "sampling.temperature"),
        ("temperature = 0.7", "temperature = inf", "sampling.temperature"),
        ("max_tokens = 128", "max_tokens = true", "sampling.max_tokens"),
        ("max_tokens = 128", 'max_tokens = "many"', "sampling.max_tokens"),
        ("temperature = 0.7", "temperature = 0.7\ntop_p = 0.0", "sampling.top_p"),
        ("temperature = 0.7", "temperature = 0.7\ntop_p = 1.5", "sampling.top_p"),
        ('file = "tea.jsonl"', "", "data"),
        ('file = "tea.jsonl"', 'file = "tea.jsonl"\nhub = "o/n"', "data"),
        ('file = "tea.jsonl"', 'hub = "o/n"\nsplit = "test"', "data"),
        ('file = "tea.jsonl"', 'hub = "o/n"\nrevision = "abc"', "data"),
        ('file = "tea.jsonl"', 'file = "tea.jsonl"\nrows = 0', "data.rows"),
        ('title = "Tea"', "", "title"),
    ],
)
def test_value_that_cannot_be_used_names_its_place(tmp_path: Path, old: str, new: str, place: str) -> None:
    assert f": {place}: " in refusal(tmp_path, GOOD.replace(old, new))


def test_several_wrong_values_are_counted(tmp_path: Path) -> None:
    text = GOOD.replace("max_tokens = 128", "max_tokens = 0").replace("temperature = 0.7", "temperature = -1")
    assert "and 1 more" in refusal(tmp_path, text)


def test_concurrency_and_repeats_are_at_least_one(tmp_path: Path) -> None:
    assert "load.concurrency" in refusal(tmp_path, GOOD + "[load]\nconcurrency = 0\n")
    assert "load.repeats" in refusal(tmp_path, GOOD + "[load]\nrepeats = 0\n")


def test_suite_is_found_by_path(tmp_path: Path) -> None:
    assert suite.find(str(written(tmp_path, GOOD))).suite.title == "Tea"


def test_shipped_suite_is_found_by_name() -> None:
    assert single(suite.find("humaneval")).data.rows == 164


@pytest.mark.parametrize(("name", "nearest"), [("humanevl", "humaneval"), ("smok", "smoke")])
def test_unknown_suite_names_the_nearest_shipped_one(name: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=f"no suite '{name}', did you mean '{nearest}'"):
        suite.find(name)


def test_path_that_is_no_toml_file_is_no_suite(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "tea.txt").write_text(GOOD, encoding="utf-8")
    for name in ("folder.toml", "tea.txt", "absent.toml"):
        with pytest.raises(UsageError, match="no suite"):
            suite.find(str(tmp_path / name))


def test_every_shipped_suite_is_named_like_its_file_and_pinned() -> None:
    found = list(suite.shipped_suites())
    assert {"humaneval", "smoke"} <= {one.suite.name for one in found}
    for one in found:
        assert one.suite.name == one.path.stem
        if isinstance(one.suite, Suite) and one.suite.data.hub is not None:
            assert re.fullmatch(r"[0-9a-f]{40}", one.suite.data.revision or "")
            assert one.suite.data.local


CARD = """\
schema_version = 1
name = "card"
title = "Card"
not_stated = ["seeds"]

[choices]
selection = "all"

[sampling]
temperature = 0.7

[[cells]]
id = "one"
suite = "humaneval"
table = "Basic"
title = "HumanEval"

[[cells]]
id = "two"
suite = "tea.toml"
table = "Basic"
title = "Tea"
rows = "category"
sampling = { max_tokens = 9 }
select = { categories = ["green"], first = 5 }
"""


def test_compound_suite_lists_its_cells(tmp_path: Path) -> None:
    found = suite.read(written(tmp_path, CARD)).suite
    assert isinstance(found, CompoundSuite)
    assert (found.not_stated, found.choices) == (("seeds",), {"selection": "all"})
    assert [(cell.id, cell.suite, cell.rows) for cell in found.cells] == [
        ("one", "humaneval", "cell"),
        ("two", "tea.toml", "category"),
    ]
    assert found.cells[1].sampling == Sampling(max_tokens=9)
    assert found.cells[1].select == Select(categories=("green",), first=5)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('id = "two"', 'id = "one"', "cells share the id 'one'"),
        ('rows = "category"', 'rows = "turn"', "cells.1.rows: "),
        ('rows = "category"', 'row = "category"', "unknown key 'cells.1.row', did you mean 'rows'?"),
        ("first = 5", "frist = 5", "unknown key 'cells.1.select.frist', did you mean 'first'?"),
        ("first = 5", "first = 0", "cells.1.select.first: "),
        ("max_tokens = 9", "max_tokens = 0", "cells.1.sampling.max_tokens: "),
        ('table = "Basic"\ntitle = "Tea"', 'title = "Tea"', "cells.1.table: "),
        ("[sampling]\ntemperature = 0.7\n", "", "sampling: "),
    ],
)
def test_compound_suite_that_cannot_be_used_names_its_place(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert words in refusal(tmp_path, CARD.replace(old, new))


def test_compound_suite_without_a_cell_is_refused(tmp_path: Path) -> None:
    text = 'schema_version = 1\nname = "card"\ntitle = "Card"\ncells = []\n[sampling]\ntemperature = 0.7\n'
    assert "cells: " in refusal(tmp_path, text)


def test_compound_suite_is_no_simple_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a compound suite; a cell names a simple one"):
        _ = suite.read(written(tmp_path, CARD)).simple


def test_settings_lie_over_those_that_are_farther_away() -> None:
    base = Sampling(temperature=0.0, max_tokens=9, top_k=5)
    assert Sampling(temperature=1.0, thinking=False).over(base) == Sampling(
        temperature=1.0, max_tokens=9, top_k=5, thinking=False
    )
    assert Sampling().over(base) == base


@pytest.mark.parametrize(
    ("missing", "words"), [("temperature = 0.7\n", "temperature"), ("max_tokens = 128\n", "max_tokens")]
)
def test_simple_suite_must_state_its_sampling(tmp_path: Path, missing: str, words: str) -> None:
    assert f"sampling needs {words}" in refusal(tmp_path, GOOD.replace(missing, ""))


def test_suite_may_be_named_from_the_folder_of_another(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    assert suite.find("tea.toml", tmp_path).path == tmp_path / "tea.toml"
    assert suite.find(str(tmp_path / "tea.toml"), tmp_path / "elsewhere").suite.name == "tea"
    assert suite.find("humaneval", tmp_path).suite.name == "humaneval"
    with pytest.raises(UsageError, match=r"no suite 'tea\.toml'"):
        suite.find("tea.toml", tmp_path / "elsewhere")


def test_cells_of_every_shipped_card_name_shipped_suites() -> None:
    cards = [one.suite for one in suite.shipped_suites() if isinstance(one.suite, CompoundSuite)]
    assert [card.name for card in cards] == ["card-dflash2", "card-dflash2-preview", "card-dspark"]
    for card in cards:
        for cell in card.cells:
            assert suite.find(cell.suite).simple.name == cell.suite
            assert cell.rows == "cell" or len(set(cell.order)) == 11


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('file = "tea.jsonl"', 'file = "tea.jsonl"\nlocal = ["x.jsonl"]', "data.local is for data.hub"),
        ('file = "tea.jsonl"', 'file = "tea.jsonl"\nsplit = "test"', "data.split is for data.hub"),
        ('file = "tea.jsonl"', 'file = "tea.jsonl"\nrevision = "c0ffee0"', "data.revision is for data.hub"),
        ('id = "id"', 'id = "id"\ncategory = "kind"\ncategory_name = "tea"', "both category and category_name"),
    ],
)
def test_a_key_that_another_one_makes_void_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    message = refusal(tmp_path, GOOD.replace(old, new))
    assert says in message
    assert "drop" in message


@pytest.mark.parametrize(
    ("more", "says"),
    [('order = ["green"]', "order has no effect on one row"), ('rows = "category"\norder = ["a", "a"]', "'a' twice")],
)
def test_an_order_that_cannot_be_followed_is_refused(tmp_path: Path, more: str, says: str) -> None:
    cell = f'[[cells]]\nid = "tea"\nsuite = "tea.toml"\ntable = "T"\ntitle = "Tea"\n{more}\n'
    text = f'schema_version = 1\nname = "card"\ntitle = "Card"\n[sampling]\ntemperature = 0.0\n{cell}'
    assert says in refusal(tmp_path, text)


def test_a_name_that_no_file_can_have_is_no_suite() -> None:
    with pytest.raises(UsageError, match="no suite 'x"):
        suite.find("x" * 5000)


def test_a_throughput_suite_says_its_window_and_the_order_of_cells() -> None:
    found = suite.find("throughput-humaneval").suite
    assert isinstance(found, suite.ThroughputSuite)
    assert (found.prompts, found.sampling.max_tokens, found.sampling.thinking) == ("humaneval", 32768, True)
    window = found.window
    assert (window.concurrency, window.warmup_s, window.duration_s) == ((1, 4, 8, 16, 32, 64, 128), 30, 180)
    assert (window.grace_s, window.repeats) == (0, 2)
    assert window.cells()[:2] + window.cells()[7:8] == ((1, 1), (4, 1), (1, 2))
    by_level = window.model_copy(update={"order": "concurrency"})
    assert by_level.cells()[:3] == ((1, 1), (1, 2), (4, 1))


def test_every_shipped_throughput_suite_has_prompts_of_a_shipped_simple_one() -> None:
    found = [one.suite for one in suite.shipped_suites() if isinstance(one.suite, suite.ThroughputSuite)]
    assert len(found) == 10
    for one in found:
        assert suite.find(one.prompts).simple.name == one.prompts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("concurrency = [1, 1]", "names a level twice"),
        ("concurrency = [0]", "greater than 0"),
        ("concurrency = []", "at least 1 item"),
    ],
)
def test_levels_of_concurrency_are_different_and_positive(tmp_path: Path, change: str, message: str) -> None:
    text = (suite.find("throughput-humaneval").text).replace("concurrency = [1, 4, 8, 16, 32, 64, 128]", change)
    path = tmp_path / "load.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        suite.read(path)
