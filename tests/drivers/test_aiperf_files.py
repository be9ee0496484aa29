import json
import math
import shutil
from pathlib import Path

import pytest

from spec_eval import engines
from spec_eval.drivers import aiperf_files
from spec_eval.drivers.aiperf import Ended
from tests.factories import DATA

DONE = Ended(0, timed_out=False, limit_s=300.0)
# The window of the recording.
START, END = 1796068518433387091, 1796068523442471848
S = 1_000_000_000
FAMILY = "vllm:generation_tokens"
ODD_PHASE = '{"phases": [{"phase_kind": "profiling", "start_ns": true, "end_ns": 7}]}'


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    folder = tmp_path / "c4-r1"
    shutil.copytree(DATA / "aiperf-cells" / "ok", folder)
    return folder


def read(folder: Path, ended: Ended = DONE, engine: str = "vllm") -> aiperf_files.Cell:
    return aiperf_files.read(folder, ended, engines.find(engine), any_version=False)


def log(folder: Path, *, sent: str = "19", completed: str = "15", cancelled: str = "4", errors: str = "0") -> None:
    (folder / "logs").mkdir(exist_ok=True)
    ended = f"completed={completed}, cancelled={cancelled}, errors={errors}"
    (folder / "logs" / "aiperf.log").write_text(
        f"Phase profiling (profiling) sending complete | sent={sent}, completed=0\n"
        f"Phase profiling (profiling) complete | {ended} | more\n",
        encoding="utf-8",
    )


def scrapes(folder: Path, *readings: tuple[int, float | None], family: str = "vllm:generation_tokens") -> None:
    lines = [
        {"timestamp_ns": at, "metrics": {} if value is None else {family: [{"labels": {}, "value": value}]}}
        for at, value in readings
    ]
    (folder / "server_metrics_export.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_without_a_log_the_requests_are_not_known(recorded: Path) -> None:
    cell = read(recorded)
    assert (cell.outcome, cell.requests.dispatched, cell.requests.dropped, cell.dropped) == ("ok", None, None, None)
    assert (cell.start_ns, cell.end_ns) == (START, END)


def test_x_and_y_are_what_the_page_says_of_them(recorded: Path) -> None:
    native = read(recorded).native
    # 1689 tokens of completed requests over the whole window, not over AIPerf's benchmark_duration of 4.783 s
    assert native["output_token_throughput"]["avg"] == pytest.approx(1689 / ((END - START) / 1e9), rel=1e-12)
    # 15 requests whose own figures add up to this
    assert native["output_token_throughput_per_user"]["avg"] == pytest.approx(1500.0636732562896 / 15, rel=1e-12)
    [first, *_] = (DATA / "aiperf" / "vllm" / "profile_export.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = {name: one["value"] for name, one in json.loads(first)["metrics"].items()}
    # its 46 tokens: latency 518.981012 ms, the first of them after 84.057751 ms, the other 45 until the end
    gap_ms = (518.981012 - 84.057751) / 45
    assert metrics["inter_token_latency"] == pytest.approx(gap_ms, rel=1e-9)
    assert metrics["output_token_throughput_per_user"] == pytest.approx(1000 / gap_ms, rel=1e-9)


def test_failed_requests_are_no_completed_ones(recorded: Path) -> None:
    log(recorded, sent="1,019", completed="1,015", errors="7")
    cell = read(recorded)
    assert cell.requests.model_dump() == {"dispatched": 1019, "completed": 1008, "failed": 7, "dropped": 4}


def series(*values: float, model: str = "m") -> list[dict[str, object]]:
    """One for each engine."""
    return [{"labels": {"engine": str(i), "model_name": model}, "value": value} for i, value in enumerate(values)]


def lines(folder: Path, *rows: object) -> None:
    """What the server showed: (time, family's series) or a line as it is."""
    made = [
        row if isinstance(row, str) else json.dumps({"timestamp_ns": row[0], "metrics": {FAMILY: row[1]}})  # type: ignore[index]
        for row in rows
    ]
    (folder / "server_metrics_export.jsonl").write_text("".join(f"{line}\n" for line in made), encoding="utf-8")


def test_series_of_several_engines_are_added(recorded: Path) -> None:
    torn = '{"timestamp_ns": 1796'
    lines(recorded, (START, series(100.0, 200.0)), (START + 4 * S, series(200.0, 400.0)), torn)
    window = read(recorded).server_window
    assert (window.tokens, window.seconds, window.tokens_per_second) == (300.0, 4.0, 75.0)


def test_a_series_that_appears_began_at_zero(recorded: Path) -> None:
    lines(recorded, (START, series(100.0)), (START + 2 * S, series(150.0)), (START + 4 * S, series(160.0, 40.0)))
    assert read(recorded).server_window.tokens == 100.0


@pytest.mark.parametrize("after", [series(0.0, 900.0), series(900.0)])
def test_one_engine_that_began_anew_is_seen_behind_the_sum(recorded: Path, after: list[dict[str, object]]) -> None:
    # the sum goes from 300 to 900
    lines(recorded, (START, series(100.0, 200.0)), (END, after))
    assert read(recorded).server_window.reason == "a counter went down: the server was started anew"


def test_a_counter_that_fell_and_rose_again_inside_the_window_is_seen(recorded: Path) -> None:
    lines(recorded, (START, series(100.0)), (START + S, series(5.0)), (END, series(400.0)))
    assert read(recorded).server_window.reason == "a counter went down: the server was started anew"


@pytest.mark.parametrize(
    "broken",
    [
        '{"timestamp_ns": 1796068519433387091, "metrics": {"vllm:generation_tokens": [{"labels": {}, "value": NaN}]}}',
        json.dumps({"timestamp_ns": START + S, "metrics": {"vllm:generation_tokens": [{"labels": {}, "value": None}]}}),
        json.dumps({"timestamp_ns": START + S, "metrics": {"vllm:generation_tokens": [{"labels": {}, "value": "7"}]}}),
        json.dumps({"timestamp_ns": START + S, "metrics": {"vllm:generation_tokens": [{"labels": {}}]}}),
        json.dumps({"timestamp_ns": START + S, "metrics": {"vllm:generation_tokens": []}}),
        json.dumps({"timestamp_ns": START + S, "metrics": {"vllm:generation_tokens": None}}),
        json.dumps({"timestamp_ns": START + S, "metrics": {}}),
        json.dumps({"timestamp_ns": START + S, "metrics": [1]}),
        json.dumps({"timestamp_ns": str(START), "metrics": {}}),
        "[" * 1000,
        "7",
        "\udcff",
    ],
)
def test_a_reading_that_is_none_is_left_out(recorded: Path, broken: str) -> None:
    lines(recorded, (START, series(100.0)), (START + 4 * S, series(500.0)))
    path = recorded / "server_metrics_export.jsonl"
    first, last = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, broken.encode(errors="surrogateescape"), last]))
    assert read(recorded).server_window.tokens_per_second == 100.0


def test_readings_at_one_end_of_the_window_alone_are_not_of_it(recorded: Path) -> None:
    # of 5.009 s
    lines(recorded, (START + 3 * S, series(100.0)), (START + 5 * S, series(300.0)))
    window = read(recorded).server_window
    assert (window.tokens_per_second, window.counter) == (None, FAMILY)
    assert window.reason == "readings over 2.0 s only of a window of 5.0 s"


def test_a_server_that_counts_for_another_model_too_has_no_figure(recorded: Path) -> None:
    ours, theirs = series(100.0), series(7.0, model="other")
    lines(recorded, (START, ours + theirs), (END, series(600.0) + theirs))
    assert read(recorded).server_window.tokens == 500.0  # the other one stood still
    lines(recorded, (START, ours + theirs), (END, series(600.0) + series(8.0, model="other")))
    assert read(recorded).server_window.reason == "the server counted for several models: m, other"


def test_one_server_at_two_addresses_is_counted_once(recorded: Path) -> None:
    rows = [
        {"endpoint_url": f"http://127.0.0.1:1/{where}", "timestamp_ns": at, "metrics": {FAMILY: series(value)}}
        for where, at, value in (
            ("metrics", START, 100.0),
            ("other/metrics", START + 1, 100.0),
            ("metrics", END - 9, 600.0),
            ("other/metrics", END, 600.0),
        )
    ]
    lines(recorded, *map(json.dumps, rows))
    window = read(recorded).server_window
    assert (window.tokens, window.seconds) == (500.0, (END - 9 - START) / 1e9)


def test_counters_of_another_engine_are_not_taken_for_ours(recorded: Path) -> None:
    scrapes(recorded, (START, 0.0), (END, 900.0), family="sglang:generation_tokens")
    window = read(recorded).server_window
    assert (window.tokens_per_second, window.reason) == (None, "the server shows no vllm:generation_tokens")


def test_a_server_that_stood_still_counted_zero_and_that_is_a_figure(recorded: Path) -> None:
    lines(recorded, (START, series(7.0)), (END, series(7.0)))
    assert read(recorded).server_window.tokens_per_second == 0.0


@pytest.mark.parametrize(
    ("readings", "reason"),
    [
        ((), "no reading of the server's counters inside the window"),
        (((START - 1, 5.0), (END + 1, 9.0)), "no reading of the server's counters inside the window"),
        (((START, 5.0),), "a single reading of the server's counters inside the window"),
        (((START, 5.0), (END, 4.0)), "a counter went down: the server was started anew"),
        (((START, None), (END, None)), "the server shows no vllm:generation_tokens"),
    ],
)
def test_a_window_that_was_not_counted_says_why(
    recorded: Path, readings: tuple[tuple[int, float | None], ...], reason: str
) -> None:
    scrapes(recorded, *readings)
    window = read(recorded).server_window
    assert (window.tokens_per_second, window.reason) == (None, reason)


def test_an_engine_without_a_counter_and_a_run_without_a_window(recorded: Path) -> None:
    cell = read(recorded, engine="trtllm")
    assert cell.server_window.reason == "this engine counts no generated tokens"
    (recorded / "phase_manifest.json").unlink()
    assert read(recorded).server_window.reason == "AIPerf noted no window"


def test_the_share_is_of_requests_where_tokens_do_not_tell(recorded: Path) -> None:
    log(recorded)
    # 2,000 tokens in 5 s are 400 a second; AIPerf says 337.1873469778463
    scrapes(recorded, (START, 0.0), (START + 5_000_000_000, 2000.0))
    dropped = read(recorded).dropped
    assert dropped is not None
    assert dropped.basis == "tokens"
    assert dropped.share == pytest.approx(1 - 337.1873469778463 / 400)
    # a server that counts at an answer's end
    scrapes(recorded, (START, 0.0), (START + 5_000_000_000, 2000.0), family="llamacpp:tokens_predicted")
    dropped = read(recorded, engine="llamacpp").dropped
    assert (dropped and dropped.basis, dropped and dropped.share) == ("requests", 4 / 19)
    # fewer than AIPerf's
    scrapes(recorded, (START, 0.0), (START + 5_000_000_000, 1500.0))
    dropped = read(recorded).dropped
    assert (dropped and dropped.basis) == "requests"
    log(recorded, cancelled="0", sent="15")
    dropped = read(recorded).dropped
    assert dropped is not None
    assert dropped.share == 0.0


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        # sent and never back: in none of AIPerf's figures, like what was cancelled
        ({"sent": "30", "completed": "15", "cancelled": "4"}, (30, 15, 0, 15)),
        ({"sent": "18", "completed": "15", "cancelled": "4"}, (19, 15, 0, 4)),
        ({"sent": "4", "completed": "0", "cancelled": "4"}, (4, 0, 0, 4)),
        # more errors than requests that came back: nothing is known of them
        ({"sent": "19", "completed": "15", "cancelled": "4", "errors": "16"}, (19, None, None, None)),
    ],
)
def test_what_was_sent_is_what_came_back_and_what_was_dropped(
    recorded: Path, counts: dict[str, str], told: tuple[int | None, ...]
) -> None:
    log(recorded, **counts)
    found = read(recorded).requests
    assert (found.dispatched, found.completed, found.failed, found.dropped) == told


def test_a_log_that_breaks_off_tells_what_was_sent(recorded: Path) -> None:
    log(recorded)
    path = recorded / "logs" / "aiperf.log"
    path.write_text(path.read_text(encoding="utf-8").splitlines()[0], encoding="utf-8")
    cell = read(recorded)
    assert (cell.requests.dispatched, cell.requests.completed, cell.dropped) == (19, None, None)


def test_the_warm_up_is_in_no_count(recorded: Path) -> None:
    (recorded / "logs").mkdir()
    (recorded / "logs" / "aiperf.log").write_text(
        "Phase warmup (warmup) sending complete | sent=9, completed=8\n"
        "Phase warmup (warmup) complete | completed=8, cancelled=1, errors=8 | more\n",
        encoding="utf-8",
    )
    assert read(recorded).requests.model_dump() == dict.fromkeys(("dispatched", "completed", "failed", "dropped"))


@pytest.mark.parametrize(
    ("ended", "change", "outcome"),
    [
        (Ended(-15, timed_out=True, limit_s=9), {}, "timed out"),
        (Ended(-9, timed_out=False, limit_s=9), {}, "killed"),
        (DONE, {"was_cancelled": True}, "killed"),
        (DONE, {"is_complete": False}, "killed"),
        (DONE, {"aiperf_version": "0.14.0"}, "another AIPerf"),
        (DONE, {"output_token_throughput": None}, "AIPerf failed"),
        (DONE, {"output_token_throughput": {"unit": "tokens/sec"}}, "AIPerf failed"),
        (DONE, {"output_token_throughput": {"unit": "tokens/sec", "avg": None}}, "AIPerf failed"),
        (DONE, {"output_token_throughput": {"unit": "tokens/sec", "avg": math.nan}}, "AIPerf failed"),
        (DONE, {"output_token_throughput_per_user": {"avg": math.inf}}, "AIPerf failed"),
        (DONE, {"output_token_throughput_per_user": {"avg": True}}, "AIPerf failed"),
        (DONE, {"output_token_throughput_per_user": {"avg": "100"}}, "AIPerf failed"),
        (DONE, {"output_token_throughput_per_user": {"avg": -1.0}}, "AIPerf failed"),
        (DONE, {"output_token_throughput_per_user": {"avg": 10**400}}, "AIPerf failed"),
        (Ended(1, timed_out=False, limit_s=9), {}, "AIPerf failed"),
    ],
)
def test_what_is_not_ok_has_no_figures(recorded: Path, ended: Ended, change: dict[str, object], outcome: str) -> None:
    log(recorded)
    path = recorded / "profile_export_aiperf.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    cell = read(recorded, ended)
    assert (cell.outcome, cell.native) == (outcome, {})


def test_a_metric_that_is_missing_is_named(recorded: Path) -> None:
    path = recorded / "profile_export_aiperf.json"
    summary = json.loads(path.read_text(encoding="utf-8"))
    del summary["output_token_throughput_per_user"]
    path.write_text(json.dumps(summary), encoding="utf-8")
    log(recorded)
    assert read(recorded).detail == "no output_token_throughput_per_user; exit code 0"


def test_a_number_that_is_none_is_kept_as_null_beside_good_ones(recorded: Path) -> None:
    path = recorded / "profile_export_aiperf.json"
    summary = json.loads(path.read_text(encoding="utf-8"))
    summary["request_latency"]["std"] = math.nan
    summary["time_to_first_token"] = {"unit": "ms", "avg": math.inf, "all": [1.0, -math.inf]}
    path.write_text(json.dumps(summary), encoding="utf-8")
    cell = read(recorded)
    assert cell.outcome == "ok"
    assert cell.native["request_latency"]["std"] is None
    assert cell.native["request_latency"]["avg"] == 1180.7171534666666
    assert cell.native["time_to_first_token"] == {"unit": "ms", "avg": None, "all": [1.0, None]}
    json.dumps(cell.native, allow_nan=False)


@pytest.mark.parametrize(
    "text", ["[]", "7", "null", "{", "\udcff", "[" * 5000, '{"phases": 7}', '{"phases": [7, {}]}', ODD_PHASE]
)
def test_no_file_of_another_shape_is_more_than_a_hole(recorded: Path, text: str) -> None:
    for name in ("profile_export_aiperf.json", "phase_manifest.json", "server_metrics_export.jsonl"):
        (recorded / name).write_bytes(text.encode(errors="surrogateescape"))
    cell = read(recorded)
    assert (cell.outcome, cell.native, cell.start_ns) == ("AIPerf failed", {}, None)
    assert cell.server_window.reason == "AIPerf noted no window"


def test_a_folder_that_never_came_to_be_is_a_hole(tmp_path: Path) -> None:
    cell = read(tmp_path / "c1-r1", Ended(1, timed_out=False, limit_s=9))
    assert (cell.outcome, cell.detail, cell.dropped) == ("AIPerf failed", "exit code 1", None)


def test_the_dropped_share_of_a_server_that_lost_ground_is_of_requests(recorded: Path) -> None:
    log(recorded)
    lines(recorded, (START, series(7.0)), (END, series(7.0)))
    dropped = read(recorded).dropped
    assert dropped is not None
    assert (dropped.basis, dropped.share) == ("requests", 4 / 19)


def test_half_a_summary_is_none(recorded: Path) -> None:
    (recorded / "profile_export_aiperf.json").write_text('{"aiperf_version": "0.1', encoding="utf-8")
    assert read(recorded).outcome == "AIPerf failed"


def cached(folder: Path, *readings: tuple[int, list[float], list[float]]) -> None:
    """(time, queries, hits) of each engine."""
    rows = []
    for at, queries, hits in readings:
        families = {"vllm:prefix_cache_queries": series(*queries), "vllm:prefix_cache_hits": series(*hits)}
        rows.append(json.dumps({"timestamp_ns": at, "metrics": families}))
    (folder / "server_metrics_export.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


def test_what_came_out_of_the_prefix_cache_is_counted_inside_the_window(recorded: Path) -> None:
    cached(
        recorded,
        (START - S, [0.0, 0.0], [0.0, 0.0]),
        (START, [100.0, 50.0], [10.0, 0.0]),
        (START + 4 * S, [900.0, 250.0], [410.0, 48.0]),
        (END + S, [9900.0, 250.0], [9000.0, 48.0]),
    )
    cache = read(recorded).prefix_cache
    assert cache is not None
    assert (cache.queries, cache.hits) == (800 + 200, 400 + 48)
    assert read(recorded, engine="llamacpp").prefix_cache is None


@pytest.mark.parametrize(
    "readings",
    [
        [(START, [100.0], [10.0])],
        [(START, [100.0], [10.0]), (END, [100.0], [10.0])],  # nothing was asked
        [(START, [100.0], [10.0]), (END, [60.0], [6.0])],  # began anew
        [(START, [100.0], [10.0]), (END, [110.0], [60.0])],  # more found than looked for
        [(START, [100.0], [math.nan]), (END, [200.0], [math.nan])],
    ],
)
def test_a_cache_that_was_not_counted_is_not_known(
    recorded: Path, readings: list[tuple[int, list[float], list[float]]]
) -> None:
    cached(recorded, *readings)
    assert read(recorded).prefix_cache is None
