import json
from pathlib import Path
from typing import Any

import pytest

from spec_eval.errors import UsageError
from spec_eval.importers.answers import Imported
from spec_eval.importers.vllm_bench import NO_METRICS, ZERO_DRAFTS, read
from spec_eval.store import Point

# S 400, D 1200, A 700; 320, 220 and 160 steps accepted at least one, two and three: 320 + 220 + 160 = 700
SHARES = [0.8, 0.55, 0.4]


def result(**changes: Any) -> dict[str, Any]:
    """A result of 50 prompts, of which 48 completed; a change to "absent" takes the field away."""
    made: dict[str, Any] = {
        "backend": "openai-chat",
        "model_id": "org/target-b",
        "num_prompts": 50,
        "request_rate": "inf",
        "max_concurrency": 4,
        "duration": 30.5,
        "completed": 48,
        "failed": 2,
        "output_throughput": 120.25,
        "mean_ttft_ms": 60.0,
        "mean_tpot_ms": 20.0,
        "mean_itl_ms": 55.0,
        "spec_decode_acceptance_rate": 100 * 700 / 1200,
        "spec_decode_acceptance_length": 2.75,
        "spec_decode_num_drafts": 400,
        "spec_decode_draft_tokens": 1200,
        "spec_decode_accepted_tokens": 700,
        "spec_decode_per_position_acceptance_rates": SHARES,
    }
    return {name: value for name, value in (made | changes).items() if value != "absent"}


def written(folder: Path, *results: object, between: str = "\n", tail: str = "") -> Path:
    path = folder / "bench.json"
    path.write_text(between.join(json.dumps(one) for one in results) + tail, encoding="utf-8")
    return path


def only(imported: Imported) -> Point:
    (point,) = imported.points.values()
    return point


def point(tmp_path: Path, k: int | None = None, **changes: Any) -> Point:
    return only(read(written(tmp_path, result(**changes)), k=k))


def test_result_is_one_point_and_no_request(tmp_path: Path) -> None:
    got = read(written(tmp_path, result()))
    (cell,) = got.cells
    assert (cell.cell_id, cell.dataset, cell.title, cell.concurrency) == ("c=4", "bench", "c=4", 4)
    assert (cell.sampling.temperature, cell.prompts.units, list(cell.prompts.files)) == (None, (), ["bench.json"])
    assert (got.records, got.set_aside, got.model, got.tool) == ((), (), "org/target-b", "vllm bench serve")
    assert only(got) == Point(
        planned=50,
        ok=48,
        failed=2,
        steps=400,
        drafted=1200,
        accepted=700,
        positions=(0.8, 0.55, 0.4),
        load={
            "mean_ttft_ms": 60.0,
            "mean_tpot_ms": 20.0,
            "mean_itl_ms": 55.0,
            "output_throughput": 120.25,
            "duration": 30.5,
        },
    )


def test_a_user_gets_a_token_each_tpot_and_not_each_itl(tmp_path: Path) -> None:
    assert point(tmp_path).tokens_per_second_per_user == 50.0
    assert point(tmp_path, mean_tpot_ms=0.0).tokens_per_second_per_user is None
    assert point(tmp_path, mean_tpot_ms="absent").tokens_per_second_per_user is None


def test_missing_fields_are_no_metrics(tmp_path: Path) -> None:
    bare = {name: value for name, value in result().items() if not name.startswith("spec_decode_")}
    got = only(read(written(tmp_path, bare)))
    assert (got.no_figure, got.broken, got.steps, got.positions) == (NO_METRICS, False, None, None)


def test_zero_drafts_measure_nothing_whatever_else_is_there(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"spec_decode_num_drafts": 0, "spec_decode_acceptance_length": 0.0}
    got = point(tmp_path, **changes, spec_decode_per_position_acceptance_rates=[])
    assert (got.no_figure, got.steps, got.drafted, got.accepted) == (ZERO_DRAFTS, None, None, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"spec_decode_num_drafts": "absent"}, "no count in spec_decode_num_drafts"),
        ({"spec_decode_draft_tokens": 1200.5}, "no count in spec_decode_draft_tokens"),
        ({"spec_decode_accepted_tokens": 1201}, "accepted > drafted"),
        ({"spec_decode_draft_tokens": 399, "spec_decode_accepted_tokens": 300}, "steps > drafted"),
        ({"spec_decode_draft_tokens": 1201}, "drafted > k x steps"),
        ({"spec_decode_acceptance_length": 2.76}, "spec_decode_acceptance_length is not 1 + accepted / steps"),
        # a fraction where the tool writes a percentage
        ({"spec_decode_acceptance_rate": 0.58}, "spec_decode_acceptance_rate is not the percentage"),
        (
            {"spec_decode_per_position_acceptance_rates": [0.8, 0.55, 0.43]},
            "positions do not add up to accepted / steps",
        ),
        ({"spec_decode_per_position_acceptance_rates": [0.8, 0.4, 0.55]}, "positions rise"),
        ({"spec_decode_per_position_acceptance_rates": [1.2, 0.55, 0.0]}, "a position is no share"),
    ],
)
def test_contradictions_are_named_and_give_no_figure(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    got = point(tmp_path, **changes)
    assert (got.no_figure, got.broken, got.steps, got.positions) == (reason, True, None, None)
    assert (got.planned, got.ok, got.failed) == (50, 48, 2)


def test_printed_digits_decide_how_near_a_figure_must_be(tmp_path: Path) -> None:
    # 700 / 1200 = 58.33…%; each of three positions may be off by half a hundredth, so 0.015 together
    assert point(tmp_path, spec_decode_acceptance_rate=58.33).no_figure is None
    assert point(tmp_path, spec_decode_acceptance_rate=58.34).broken
    assert point(tmp_path, spec_decode_acceptance_length=2.8).no_figure is None
    assert point(tmp_path, spec_decode_per_position_acceptance_rates=[0.8, 0.56, 0.4]).no_figure is None


def test_k_of_the_user_is_held_against_the_file(tmp_path: Path) -> None:
    assert point(tmp_path, k=5).positions == (0.8, 0.55, 0.4, 0.0, 0.0)
    assert point(tmp_path, k=2).no_figure == "drafted > k x steps"


def test_nominal_drafts_are_not_kept(tmp_path: Path) -> None:
    got = only(read(written(tmp_path, result()), nominal_drafts=True))
    assert (got.steps, got.drafted, got.accepted) == (400, None, 700)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_missing_and_named(tmp_path: Path, word: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(result()).replace('"mean_tpot_ms": 20.0', f'"mean_tpot_ms": {word}'), encoding="utf-8")
    got = read(path)
    assert only(got).missing == (f"mean_tpot_ms is {word}",)
    assert got.set_aside == (f"bench.json: c=4: mean_tpot_ms is {word}: read as missing",)
    assert (only(got).load["mean_tpot_ms"], only(got).tokens_per_second_per_user) == (None, None)
    assert only(got).steps == 400


@pytest.mark.parametrize("number", ["1e400", "1e-999999999", "-1e999999"])
def test_numbers_beyond_measure_are_not_worked_with(tmp_path: Path, number: str) -> None:
    path = tmp_path / "bench.json"
    text = json.dumps(result()).replace('"mean_tpot_ms": 20.0', f'"mean_tpot_ms": {number}')
    path.write_text(text.replace('length": 2.75', f'length": {number}'), encoding="utf-8")
    got = only(read(path))
    assert (got.load["mean_tpot_ms"], got.steps, got.no_figure) == (None, 400, None)


def test_position_that_is_no_number_leaves_no_positions(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(result()).replace("0.55", "NaN"), encoding="utf-8")
    got = only(read(path))
    assert got.missing == ("spec_decode_per_position_acceptance_rates[1] is NaN",)
    assert (got.steps, got.positions, got.no_figure) == (400, None, None)


def test_count_that_is_no_number_leaves_no_figure(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(result()).replace('_num_drafts": 400', '_num_drafts": NaN'), encoding="utf-8")
    assert only(read(path)).no_figure == "no count in spec_decode_num_drafts"


@pytest.mark.parametrize("between", ["\n", "", "  \r\n\n"])
def test_appended_results_are_points(tmp_path: Path, between: str) -> None:
    more = [result(max_concurrency=8), result(max_concurrency=None, request_rate=2.5), result()]
    got = read(written(tmp_path, result(), *more, between=between, tail="\n"))
    assert [cell.cell_id for cell in got.cells] == ["c=4", "c=8", "rate 2.5", "c=4, point 4"]
    assert [cell.concurrency for cell in got.cells] == [4, 8, None, 4]
    assert list(got.points) == ["c=4", "c=8", "rate 2.5", "c=4, point 4"]


def test_models_that_differ_are_no_model(tmp_path: Path) -> None:
    assert read(written(tmp_path, result(), result(model_id="org/other"))).model is None


def test_torn_end_is_set_aside_and_the_rest_kept(tmp_path: Path) -> None:
    torn = json.dumps(result(max_concurrency=8))[:60]
    got = read(written(tmp_path, result(), tail="\n" + torn))
    assert list(got.points) == ["c=4"]
    (note,) = got.set_aside
    assert note.startswith("bench.json: object 2 is torn")


@pytest.mark.parametrize("between", [",", " ,\n", "\n,"])
def test_results_with_commas_between_lose_none_unseen(tmp_path: Path, between: str) -> None:
    path = written(tmp_path, result(), result(max_concurrency=8), between=between)
    with pytest.raises(UsageError) as caught:
        read(path)
    assert str(caught.value) == (f"{path}: a comma behind object 1; write results one after another, without commas")


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"failed": "absent"}, (50, 48, 2)),  # older versions count no failures
        ({"num_prompts": "absent"}, (50, 48, 2)),
        ({"failed": 0}, (50, 48, 0)),
        ({"num_prompts": 10}, (50, 48, 2)),
    ],
)
def test_requests_are_told_as_far_as_the_file_tells(
    tmp_path: Path, changes: dict[str, Any], counts: tuple[int, int, int]
) -> None:
    got = point(tmp_path, **changes)
    assert (got.planned, got.ok, got.failed) == counts


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "nothing in it"),
        ("not json", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "object 1 is a list; write results one after another, without brackets"),
        ("7", "object 1 is no result"),
        ('{"a": 1}', "object 1 is no result"),
        ('{"num_prompts": 5, "completed": "many"}', "completed is 'many', not a count"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=words):
        read(path)


def test_bytes_that_are_no_text_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        read(path)
    with pytest.raises(UsageError, match="no such file"):
        read(tmp_path / "none.json")


def test_model_that_is_no_text_is_no_model(tmp_path: Path) -> None:
    assert read(written(tmp_path, result(model_id=["a"]))).model is None


def test_negative_time_is_missing_and_named(tmp_path: Path) -> None:
    found = point(tmp_path, mean_tpot_ms=-5)
    assert found.tokens_per_second_per_user is None
    assert found.missing == ("mean_tpot_ms is -5",)


def test_more_positions_than_any_drafter_has_are_no_positions(tmp_path: Path) -> None:
    shares = [*result()["spec_decode_per_position_acceptance_rates"], *[0.0] * 2000]
    assert point(tmp_path, spec_decode_per_position_acceptance_rates=shares).no_figure == "more than 1024 positions"
