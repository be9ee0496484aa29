import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spec_eval.errors import UsageError
from spec_eval.records import RequestRecord, breach
from spec_eval.store import Records, RequestLog, read_records
from tests.factories import answered, failed, from_histogram, from_steps, not_sent

ONE = answered(from_histogram((1, 1)), prompt_id="one")
TWO = answered(from_histogram((0, 2)), prompt_id="two")


def written(path: Path, *records: RequestRecord) -> Path:
    with RequestLog(path) as log:
        for record in records:
            log.append(record)
    return path


def line(record: RequestRecord) -> bytes:
    return json.dumps(record.to_json()).encode() + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


def test_records_come_back_as_written(path: Path) -> None:
    records = (
        answered(from_steps([(3, 2), (1, 0)], k=3), prompt_id="a", raw_counters={"draft_n": 4}),
        failed(prompt_id="b"),
        not_sent(prompt_id="c"),
    )
    assert read_records(written(path, *records)) == Records(records, set_aside=(), doubles=(), lines=3)


def test_no_file_is_no_records(path: Path) -> None:
    assert read_records(path) == Records((), (), (), 0)


def test_every_line_is_there_before_the_log_is_closed(path: Path) -> None:
    with RequestLog(path) as log:
        log.append(ONE)
        assert read_records(path).records == (ONE,)
        log.append(TWO)
        assert read_records(path).lines == 2
        assert log.lines == 2


@pytest.mark.parametrize("text", ["half \ud83d", "\u2028 \u2029 \u0085 \x0b", 'line\nend\r "quoted" \\', "\x00", "🜚"])
def test_any_text_stays_on_its_line(path: Path, text: str) -> None:
    record = replace(ONE, text=text, reasoning_text=text)
    assert read_records(written(path, record, TWO)).records == (record, TWO)
    assert path.read_bytes().count(b"\n") == 2


@given(st.text(st.characters(), max_size=30))
@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_text_comes_back(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    record = replace(ONE, text=text)
    assert read_records(written(path, record)).records == (record,)


def test_numbers_that_json_has_not_are_kept_as_words(path: Path) -> None:
    raw = {"rate": float("nan"), "deep": [float("inf"), {"x": -float("inf")}, 0.5]}
    (record,) = read_records(written(path, replace(ONE, raw_counters=raw))).records
    assert record.raw_counters == {"rate": "nan", "deep": ["inf", {"x": "-inf"}, 0.5]}
    for text in path.read_text(encoding="utf-8").splitlines():
        assert "NaN" not in text
        assert "Infinity" not in text


def test_counter_that_is_no_number_stays_invalid_after_reading(path: Path) -> None:
    nan = float("nan")
    counters = replace(from_histogram((1, 1)), histogram=(1, nan))  # type: ignore[arg-type]
    (record,) = read_records(written(path, answered(counters))).records
    assert record.counters is not None
    assert breach(record.counters, None) == "not an integer count"


def test_torn_last_line_is_set_aside_and_stays(path: Path) -> None:
    content = line(ONE) + line(TWO)[:40]
    path.write_bytes(content)
    read = read_records(path)
    assert (read.records, read.lines) == ((ONE,), 1)
    assert read.set_aside == ("requests.jsonl: torn last line set aside",)
    assert path.read_bytes() == content


def test_next_record_after_a_torn_line_begins_on_its_own(path: Path) -> None:
    torn = line(ONE) + line(TWO)[:40]
    path.write_bytes(torn)
    written(path, TWO)
    assert path.read_bytes().startswith(torn + b"\n{")
    read = read_records(path)
    assert (read.records, read.lines) == ((ONE, TWO), 2)
    (note,) = read.set_aside
    assert "line 2 set aside: not JSON" in note


def test_whole_last_line_without_its_end_is_read(path: Path) -> None:
    path.write_bytes(line(ONE).rstrip(b"\n"))
    assert read_records(path).records == (ONE,)
    written(path, TWO)
    assert read_records(path) == Records((ONE, TWO), (), (), 2)


def test_opening_a_whole_log_again_adds_nothing(path: Path) -> None:
    before = written(path, ONE).read_bytes()
    with RequestLog(path):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "broken",
    [
        b"{\n",
        b"[]\n",
        b"null\n",
        b"\xff\xfe\n",
        b'{"schema_version": 1}\n',
        b'{"schema_version": "1"}\n',
        line(TWO).replace(b'"counters": {', b'"counters": {"surprise": 1, '),
        line(TWO).replace(b'"histogram": [0, 2]', b'"histogram": 2'),
        line(replace(TWO, counters=None)).replace(b'"counters": null', b'"counters": 7'),
    ],
)
def test_broken_line_is_set_aside_and_named(path: Path, broken: bytes) -> None:
    path.write_bytes(line(ONE) + broken + b"\n" + line(answered(None, prompt_id="three")))
    read = read_records(path)
    assert [r.prompt_id for r in read.records] == ["one", "three"]
    (note,) = read.set_aside
    assert note.startswith("requests.jsonl: line 2 set aside: ")


@pytest.mark.parametrize("version", [0, 2, 99])
def test_other_schema_version_is_refused_with_its_number(path: Path, version: int) -> None:
    path.write_bytes(line(ONE) + line(TWO).replace(b'"schema_version": 1', b'"schema_version": %d' % version))
    with pytest.raises(UsageError, match=f"line 2 has schema version {version}, this spec-eval reads 1"):
        read_records(path)


@pytest.mark.parametrize(("version", "shown"), [("1.0", "1.0"), ("true", "True")])
def test_version_that_only_equals_ours_is_refused(path: Path, version: str, shown: str) -> None:
    path.write_bytes(line(ONE).replace(b'"schema_version": 1', b'"schema_version": ' + version.encode()))
    with pytest.raises(UsageError, match=f"line 1 has schema version {shown}, this spec-eval reads 1"):
        read_records(path)


def test_success_wins_over_the_failure_before_it(path: Path) -> None:
    lost = failed(prompt_id="one")
    again = replace(ONE, attempt=1)
    read = read_records(written(path, lost, TWO, again))
    assert read.records == (again, TWO)
    assert (read.doubles, read.lines) == ((), 3)


def test_first_success_wins_and_the_double_is_told(path: Path) -> None:
    other = replace(ONE, counters=from_histogram((9, 9)))
    read = read_records(written(path, ONE, TWO, other, other))
    assert read.records == (ONE, TWO)
    assert read.doubles == ((ONE.cell_id, "one", 0, 0),)
    assert read.lines == 4


def test_failure_after_a_success_changes_nothing(path: Path) -> None:
    read = read_records(written(path, ONE, failed(prompt_id="one")))
    assert (read.records, read.doubles) == ((ONE,), ())


def test_last_of_several_failures_counts(path: Path) -> None:
    last = failed("timeout", prompt_id="one", attempt=1)
    assert read_records(written(path, failed(prompt_id="one"), last)).records == (last,)


def test_turns_repeats_and_cells_are_units_of_their_own(path: Path) -> None:
    records = (ONE, replace(ONE, turn=1), replace(ONE, repeat=1), replace(ONE, cell_id="other"))
    assert read_records(written(path, *records)).records == records


def test_run_taken_up_again_after_its_server_died(path: Path) -> None:
    # Three lines whole, one torn; then the failed one again, the torn one, and one measured a second time.
    first = [answered(from_histogram((2, 0, 8)), prompt_id=f"s{i}") for i in range(2)]
    path.write_bytes(b"".join(map(line, [*first, failed(prompt_id="s2")])) + line(TWO)[:99])
    late = [answered(from_histogram((5, 5, 0)), prompt_id=name) for name in ("s2", "s3", "s0")]
    read = read_records(written(path, *late))
    assert [r.prompt_id for r in read.records] == ["s0", "s1", "s2", "s3"]
    assert [r.counters.accepted for r in read.records if r.counters] == [16, 16, 5, 5]
    assert [unit[1] for unit in read.doubles] == ["s0"]
    assert (read.lines, len(read.set_aside)) == (6, 1)


def test_a_line_nested_too_deeply_is_set_aside_and_no_other(path: Path) -> None:
    written(path, ONE)
    deep = b'{"schema_version": 1, "raw_counters": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    path.write_bytes(path.read_bytes() + deep + line(TWO))
    found = read_records(path)
    assert found.records == (ONE, TWO)
    assert found.set_aside == ("requests.jsonl: line 2 set aside: not JSON (nested too deeply at column 1)",)


def test_a_text_with_half_a_surrogate_pair_comes_back(path: Path) -> None:
    odd = answered(from_histogram((1, 1)), prompt_id="odd", text="a\ud800", raw_counters={"note": "\udfff"})
    assert read_records(written(path, odd)).records == (odd,)
    assert json.loads(path.read_bytes())["text"] == "a\ud800"
