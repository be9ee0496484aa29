import re
from pathlib import Path

import pytest
from pydantic import Field

from spec_eval import toml
from spec_eval.errors import UsageError
from spec_eval.toml import Frozen

WHERE = Path("tea.toml")


class Leaf(Frozen):
    colour: str
    grams: int = Field(default=1, gt=0)


class Pot(Frozen):
    schema_version: int
    leaf: Leaf | None = None
    leaves: tuple[Leaf, ...] = ()
    names: tuple[str, ...] = ()


def parsed(text: str) -> Pot:
    return toml.parse(Pot, f"schema_version = 1\n{text}", WHERE)


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parsed(text)
    message = str(caught.value)
    assert message.startswith("tea.toml: ")
    assert "\n" not in message
    return message


def test_tables_become_frozen_types() -> None:
    pot = parsed('names = ["a"]\n[leaf]\ncolour = "green"\n[[leaves]]\ncolour = "black"\ngrams = 3')
    assert pot.leaf == Leaf(colour="green")
    assert pot.leaves == (Leaf(colour="black", grams=3),)
    with pytest.raises(ValueError, match="frozen"):
        pot.names = ()


@pytest.mark.parametrize(
    ("text", "place", "nearest"),
    [
        ("leavs = 1", "leavs", "did you mean 'leaves'?"),
        ('[leaf]\ncolor = "green"', "leaf.color", "did you mean 'colour'?"),
        ('[[leaves]]\ncolour = "a"\n[[leaves]]\ncolour = "b"\ngram = 1', "leaves.1.gram", "did you mean 'grams'?"),
        ('[leaf]\ncolour = "a"\nzzz = 1', "leaf.zzz", "known: colour, grams"),
    ],
)
def test_unknown_key_names_its_place_and_the_nearest_one(text: str, place: str, nearest: str) -> None:
    message = refusal(text)
    assert f"unknown key {place!r}" in message
    assert message.endswith(nearest)


def test_misspelling_is_told_before_what_is_missing_because_of_it() -> None:
    assert "unknown key 'leaf.color'" in refusal('[leaf]\ncolor = "green"')


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[leaf]\ngrams = 1", "leaf.colour: Field required"),
        ('[leaf]\ncolour = "a"\ngrams = 0', "leaf.grams: Input should be greater than 0"),
        ('[[leaves]]\ncolour = "a"\n[[leaves]]\ncolour = 7', "leaves.1.colour: Input should be a valid string"),
        ("names = [1, 2]", r"names.0: Input should be a valid string \(and 1 more\)"),
    ],
)
def test_value_that_cannot_be_used_names_its_place(text: str, place: str) -> None:
    assert re.search(place, refusal(text))


@pytest.mark.parametrize(
    ("version", "shown"), [("2", "2"), ('"1"', "'1'"), ("1.5", "1.5"), ("1.0", "1.0"), ("true", "True")]
)
def test_other_schema_version_is_refused_with_its_number(version: str, shown: str) -> None:
    with pytest.raises(UsageError, match=f"schema_version {shown}, this spec-eval reads 1; set `schema_version = 1`"):
        toml.parse(Pot, f"schema_version = {version}\nnonsense = 1", WHERE)


def test_missing_schema_version_is_told_before_anything_else() -> None:
    with pytest.raises(UsageError, match="schema_version None"):
        toml.parse(Pot, "nonsense = 1", WHERE)


def test_text_that_is_no_toml_says_where() -> None:
    assert re.search(r"not TOML: .*line 3", refusal("\n= 1"))


def test_tables_are_given_raw() -> None:
    assert toml.tables("schema_version = 1\n[a]\nb = 2", WHERE) == {"schema_version": 1, "a": {"b": 2}}


@pytest.mark.parametrize("content", [None, b"caf\xe9 = 1"])
def test_file_that_is_not_there_or_not_utf8_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tea.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=re.escape(f"{path}: ")) as caught:
        toml.read_text(path)
    assert "UTF-8 TOML file" in str(caught.value)


def test_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "tea.toml"
    path.write_text("a = 'é'\n", encoding="utf-8")
    assert toml.read_text(path) == "a = 'é'\n"


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("smok", ["smoke", "gsm8k"], ", did you mean 'smoke'?"),
        ("zzz", ["smoke", "gsm8k"], "; known: smoke, gsm8k"),
        ("zzz", [], ""),
    ],
)
def test_nearest_word_or_all_of_them(word: str, known: list[str], expected: str) -> None:
    assert toml.nearest(word, known) == expected
