import csv
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from spec_eval import profiles, shipped
from spec_eval.errors import UsageError

CSV = shipped.folder("profiles") / "published.csv"


def rows() -> list[dict[str, str]]:
    with CSV.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def positions_of(row: dict[str, str]) -> list[str]:
    return [row[f"position_{i}_pct"] for i in range(1, int(row["k"]) + 1)]


def half_a_unit(text: str) -> Decimal:
    """By how much a printed number may be off: half of its last digit."""
    exponent = Decimal(text).as_tuple().exponent
    assert isinstance(exponent, int)
    return Decimal(1).scaleb(exponent) / 2


def test_every_row_of_the_cards_is_there_by_name() -> None:
    found = profiles.published()
    assert len(found) == 47
    assert Counter(name.rsplit(":", 1)[0] for name in found) == {
        "glm-5.3-dflash2:speed-bench-throughput-low-entropy": 5,
        "glm-5.3-dflash2:speed-bench-qualitative": 11,
        "glm-5.3-dflash2-preview:basic-t0": 4,
        "glm-5.3-dflash2-preview:basic-t1": 4,
        "glm-5.3-dflash2-preview:speed-bench-qualitative-t0": 11,
        "glm-5.3-dflash2-preview:speed-bench-qualitative-t1": 11,
        "glm-5.3-dflash2-preview:mrcr-8needle": 1,
    }
    assert all(name == profile.name for name, profile in found.items())


def test_row_is_read_as_printed() -> None:
    got = profiles.find("glm-5.3-dflash2-preview:basic-t0:HumanEval")
    assert got.positions == pytest.approx((0.8349, 0.6830, 0.5605, 0.4644, 0.3908, 0.3336, 0.2884, 0.2518))
    assert (got.k, got.temperature, got.acceptance_length) == (8, 0.0, 4.8074)
    assert got.acceptance_rate == pytest.approx(0.4759)
    assert got.source == "model card RedHatAI/GLM-5.3-speculator.dflash2-preview"
    assert got.printed[:3] == ("4.8074", "47.59", "83.49")
    assert got.printed[9] == "25.18"


def test_rate_that_a_card_does_not_print_is_null() -> None:
    got = profiles.find("glm-5.3-dflash2:speed-bench-throughput-low-entropy:1k")
    assert (got.acceptance_rate, got.printed[1]) == (None, "")


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['table']}-{row['row']}")
def test_printed_length_is_one_plus_the_positions_within_what_was_printed(row: dict[str, str]) -> None:
    shares = positions_of(row)
    length = 1 + sum(map(Decimal, shares), Decimal(0)) / 100
    slack = half_a_unit(row["acceptance_length"]) + sum(map(half_a_unit, shares), Decimal(0)) / 100
    assert abs(Decimal(row["acceptance_length"]) - length) <= slack
    if rate := row["acceptance_rate_pct"]:
        k = int(row["k"])
        assert abs(Decimal(rate) - sum(map(Decimal, shares), Decimal(0)) / k) <= half_a_unit(rate) + half_a_unit(
            shares[0]
        )


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['table']}-{row['row']}")
def test_positions_fall(row: dict[str, str]) -> None:
    shares = [Decimal(share) for share in positions_of(row)]
    assert sorted(shares, reverse=True) == shares
    assert 0 <= shares[-1] <= shares[0] <= 100


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("glm-5.3-dflash2-preview:basic-t0:humaneval", ", did you mean 'glm-5.3-dflash2-preview:basic-t0:HumanEval'?"),
        ("?", ";"),
    ],
)
def test_unknown_name_gives_the_nearest_and_the_list(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        profiles.find(name)
    assert str(caught.value).startswith(f"no profile {name!r}{hint}")
    assert "`spec-eval list profiles`" in str(caught.value)


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_file_gives_a_profile_of_its_own(tmp_path: Path) -> None:
    got = profiles.find(
        written(tmp_path, 'schema_version = 1\npositions = [1, 0.5, 0.5, 0]\nsource = "bench of May"\n')
    )
    assert (got.name, got.positions, got.k, got.source) == ("mine", (1.0, 0.5, 0.5, 0.0), 4, "bench of May")
    assert (got.temperature, got.acceptance_length, got.acceptance_rate, got.printed) == (None, None, None, ())


def test_file_without_a_source_names_itself(tmp_path: Path) -> None:
    assert profiles.find(written(tmp_path, "schema_version = 1\npositions = [0.5]\n")).source == "mine.toml"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("positions = [0.5]", "schema_version None; set `schema_version = 1`"),
        ("schema_version = 2\npositions = [0.5]", "schema_version 2"),
        ("schema_version = true\npositions = [0.5]", "schema_version True"),
        ("schema_version = 1.0\npositions = [0.5]", "schema_version 1.0"),
        ("schema_version = 1", "positions is not a list of shares"),
        ("schema_version = 1\npositions = []", "positions is not a list of shares"),
        ("schema_version = 1\npositions = 0.5", "positions is not a list of shares"),
        ('schema_version = 1\npositions = ["0.5"]', "positions is not a list of shares"),
        ("schema_version = 1\npositions = [true]", "positions is not a list of shares"),
        ("schema_version = 1\npositions = [0.5, 0.6]", "do not fall from at most 1"),
        ("schema_version = 1\npositions = [1.5]", "do not fall from at most 1"),
        ("schema_version = 1\npositions = [0.5, -0.1]", "do not fall from at most 1"),
        ("schema_version = 1\npositions = [nan]", "do not fall from at most 1"),
        ("schema_version = 1\npositions = [83.49, 68.3]", "do not fall from at most 1"),
        ("schema_version = 1\npositions = [0.5]\nsourc = 'x'", "unknown key 'sourc'; known keys: "),
        ("{not toml", "a profile is a TOML file"),
    ],
)
def test_file_that_is_no_profile_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        profiles.find(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert words in message
    assert "\n" not in message


def test_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"nowhere\.toml"):
        profiles.find("nowhere.toml")


def test_rows_that_print_a_length_only_get_positions_that_fit_it() -> None:
    found = profiles.by_length()
    assert len(found) == 5
    one = found["glm-5.3-dflash2-preview:mrcr-8needle-bins:0-8192"]
    assert (one.acceptance_length, one.printed) == (6.919, ("6.9190", "73.99"))
    assert "prints no positions, these are made up" in one.source
    for profile in found.values():
        shares = [round(share * 10_000) for share in profile.positions]
        assert len(shares) == 8
        assert 10_000 + sum(shares) == round(float(profile.printed[0]) * 10_000)
        assert shares == sorted(shares, reverse=True)
        # one probability for every draft, but for the roundings
        ratios = [b / a for a, b in zip([10_000, *shares], shares, strict=False)]
        assert max(ratios) - min(ratios) < 0.001


def test_table_has_its_rows_by_label() -> None:
    found = profiles.table("glm-5.3-dflash2-preview:basic-t0")
    assert list(found) == ["HumanEval", "GSM8K", "MATH500", "MT-Bench"]
    assert next(iter(profiles.table("glm-5.3-dflash2-preview:mrcr-8needle-bins"))) == "0-8192"
    with pytest.raises(UsageError, match=r"no table '.*:basic' of a published card, did you mean '.*:basic-t1'"):
        profiles.table("glm-5.3-dflash2-preview:basic")


def test_made_up_positions_are_found_by_name_and_not_listed_among_the_printed() -> None:
    name = "glm-5.3-dflash2-preview:mrcr-8needle-bins:0-8192"
    assert profiles.find(name) == profiles.by_length()[name]
    assert name not in profiles.published()
