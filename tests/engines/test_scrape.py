import pytest

from spec_eval.engines.scrape import CounterReset, Totals, delta, parse
from tests.factories import DATA

P = "spec_decode_num"


def exposition(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


# Two data-parallel engines, k = 3. Steps 40 + 25, drafted 120 + 75, accepted 70 + 31.
TWO_ENGINES = exposition(
    f"# TYPE vllm:{P}_drafts_total counter",
    f'vllm:{P}_drafts_total{{engine="0",model_name="m"}} 40.0',
    f'vllm:{P}_drafts_total{{engine="1",model_name="m"}} 25.0',
    f"# TYPE vllm:{P}_drafts_created gauge",
    f'vllm:{P}_drafts_created{{engine="0",model_name="m"}} 1.893553445e+09',
    f'vllm:{P}_drafts_created{{engine="1",model_name="m"}} 1.893553446e+09',
    f"# TYPE vllm:{P}_draft_tokens_total counter",
    f'vllm:{P}_draft_tokens_total{{engine="0",model_name="m"}} 120.0',
    f'vllm:{P}_draft_tokens_total{{engine="1",model_name="m"}} 75.0',
    f"# TYPE vllm:{P}_accepted_tokens_total counter",
    f'vllm:{P}_accepted_tokens_total{{engine="0",model_name="m"}} 70.0',
    f'vllm:{P}_accepted_tokens_total{{engine="1",model_name="m"}} 31.0',
    f"# TYPE vllm:{P}_accepted_tokens_per_pos_total counter",
    f'vllm:{P}_accepted_tokens_per_pos_total{{engine="0",position="0"}} 34.0',
    f'vllm:{P}_accepted_tokens_per_pos_total{{engine="0",position="1"}} 24.0',
    f'vllm:{P}_accepted_tokens_per_pos_total{{engine="0",position="2"}} 12.0',
    f'vllm:{P}_accepted_tokens_per_pos_total{{engine="1",position="0"}} 17.0',
    f'vllm:{P}_accepted_tokens_per_pos_total{{engine="1",position="1"}} 9.0',
    f'vllm:{P}_accepted_tokens_per_pos_total{{engine="1",position="2"}} 5.0',
    f"# TYPE vllm:{P}_accepted_tokens_per_pos_created gauge",
    f'vllm:{P}_accepted_tokens_per_pos_created{{engine="0",position="0"}} 1.893553445e+09',
    f'vllm:{P}_accepted_tokens_per_pos_created{{engine="1",position="7"}} 1.893553445e+09',
)


def plain(drafts: object, tokens: object, accepted: object, suffix: str = "_total") -> str:
    return exposition(
        f"llamacpp:{P}_drafts{suffix} {drafts}",
        f"llamacpp:{P}_draft_tokens{suffix} {tokens}",
        f"llamacpp:{P}_accepted_tokens{suffix} {accepted}",
    )


def test_engines_are_summed_and_time_stamps_are_not_counters() -> None:
    totals = parse(TWO_ENGINES, "vllm:")
    assert totals == Totals(steps=65, drafted=195, accepted=101, positions=(51, 33, 17))
    assert totals.consistent


def test_recorded_totals_of_a_synthetic_drafter() -> None:
    totals = parse((DATA / "llamacpp" / "b-synth.metrics.txt").read_text(encoding="utf-8"), "llamacpp:")
    assert totals == Totals(steps=718, drafted=2806, accepted=1389, positions=(573, 424, 266, 126))
    assert totals.consistent


def test_recorded_totals_among_all_other_families() -> None:
    totals = parse((DATA / "llamacpp" / "draft.metrics.txt").read_text(encoding="utf-8"), "llamacpp:")
    assert totals == Totals(steps=25, drafted=121, accepted=121, positions=(25, 25, 24, 24, 23))


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("suffix", ["", "_total"])
def test_both_spellings_are_read(suffix: str, typed: bool) -> None:
    kinds = [f"# TYPE llamacpp:{P}_{name}{suffix} counter" for name in ("drafts", "draft_tokens", "accepted_tokens")]
    values = plain(7, 20, 11, suffix).splitlines()
    lines = [line for pair in zip(kinds, values, strict=True) for line in pair] if typed else values
    position = f'llamacpp:{P}_accepted_tokens_per_pos{suffix}{{position="0"}} 11'
    assert parse(exposition(*lines, position), "llamacpp:") == Totals(7, 20, 11, (11,))


@pytest.mark.parametrize("typed", [True, False])
def test_spelling_with_total_wins_where_both_stand(typed: bool) -> None:
    lines = []
    for suffix in ("", "_total"):
        for name, value in (("drafts", 7), ("draft_tokens", 20), ("accepted_tokens", 11)):
            lines += [f"# TYPE llamacpp:{P}_{name}{suffix} counter"] if typed else []
            lines.append(f"llamacpp:{P}_{name}{suffix} {value}")
        lines += [f"# TYPE llamacpp:{P}_accepted_tokens_per_pos{suffix} counter"] if typed else []
        lines.append(f'llamacpp:{P}_accepted_tokens_per_pos{suffix}{{position="0"}} 11')
    assert parse(exposition(*lines), "llamacpp:") == Totals(7, 20, 11, (11,))


def test_missing_positions_accepted_nothing_yet() -> None:
    assert parse(plain(3, 9, 0), "llamacpp:") == Totals(3, 9, 0, ())
    gap = plain(3, 9, 4) + exposition(f'llamacpp:{P}_accepted_tokens_per_pos_total{{position="2"}} 4')
    totals = parse(gap, "llamacpp:")
    assert totals is not None
    assert totals.positions == (0, 0, 4)
    assert [totals.position(i) for i in range(5)] == [0, 0, 4, 0, 0]


def test_families_of_another_engine_are_foreign() -> None:
    assert parse(TWO_ENGINES, "llamacpp:") is None
    assert parse(TWO_ENGINES + plain(3, 9, 0), "llamacpp:") == Totals(3, 9, 0, ())
    similar = exposition(f"myllamacpp:{P}_drafts_total 5", f"llamacpp:{P}_drafts_total_seconds 8")
    assert parse(similar + plain(3, 9, 0), "llamacpp:") == Totals(3, 9, 0, ())


@pytest.mark.parametrize("missing", ["drafts_total", "draft_tokens_total", "accepted_tokens_total"])
def test_incomplete_families_are_no_totals(missing: str) -> None:
    lines = [line for line in plain(3, 9, 4).splitlines() if not line.startswith(f"llamacpp:{P}_{missing} ")]
    assert len(lines) == 2
    assert parse(exposition(*lines), "llamacpp:") is None


def test_text_without_any_family_is_no_totals() -> None:
    assert parse("", "llamacpp:") is None
    assert parse("# just a comment\n", "llamacpp:") is None


@pytest.mark.parametrize("value", ["2.5", "NaN", "+Inf", "-4"])
def test_value_that_is_not_whole_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        parse(plain(3, 9, value), "llamacpp:")


@pytest.mark.parametrize("text", ["<html><body>nginx</body></html>", '{"detail":"Not Found"}', "Not found"])
def test_text_that_is_no_exposition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(text, "llamacpp:")


@pytest.mark.parametrize(
    "labels", ["", '{position=""}', '{position="-1"}', '{position="1.0"}', '{position="first"}', '{position="²"}']
)
def test_series_of_no_position_is_refused(labels: str) -> None:
    with pytest.raises(ValueError, match="is no position of a draft token"):
        parse(plain(3, 9, 4) + f"llamacpp:{P}_accepted_tokens_per_pos_total{labels} 4\n", "llamacpp:")


@pytest.mark.parametrize("place", ["1024", "99999999", "9" * 30])
def test_position_that_no_drafter_reaches_is_refused(place: str) -> None:
    line = f'llamacpp:{P}_accepted_tokens_per_pos_total{{position="{place}"}} 4\n'
    with pytest.raises(ValueError, match="is no position of a draft token"):
        parse(plain(3, 9, 4) + line, "llamacpp:")


def test_byte_order_mark_and_any_line_end_are_read_over() -> None:
    text = "\ufeff" + TWO_ENGINES.replace("\n", "\r\n")
    assert parse(text, "vllm:") == Totals(steps=65, drafted=195, accepted=101, positions=(51, 33, 17))


def test_delta_takes_positions_absent_before_as_zero() -> None:
    before, after = Totals(10, 30, 4, (4,)), Totals(15, 45, 13, (8, 3, 2))
    assert delta(before, after) == Totals(5, 15, 9, (4, 3, 2))


def test_nothing_happened_is_a_delta_of_zeros() -> None:
    same = Totals(10, 30, 4, (4, 0))
    assert delta(same, same) == Totals(0, 0, 0, (0, 0))


@pytest.mark.parametrize(
    "after",
    [
        Totals(9, 40, 20, (10, 9)),
        Totals(11, 29, 20, (10, 9)),
        Totals(11, 40, 11, (10, 9)),
        Totals(11, 40, 20, (10, 3)),
        Totals(11, 40, 20, (10,)),
    ],
)
def test_counter_that_went_down_is_a_reset(after: Totals) -> None:
    with pytest.raises(CounterReset):
        delta(Totals(10, 30, 12, (8, 4)), after)


def test_positions_that_do_not_add_up_are_not_consistent() -> None:
    assert not Totals(10, 30, 12, (8, 3)).consistent
    assert Totals(10, 30, 12, (8, 4)).consistent
