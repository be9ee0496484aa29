import json
import shutil
from pathlib import Path

import pytest

from spec_eval.drivers import aiperf_files
from spec_eval.drivers.aiperf import Ended
from spec_eval.engines.base import LLAMACPP_TOKENS, VLLM_TOKENS, TokenCounter
from tests.factories import DATA

DONE = Ended(0, timed_out=False, limit_s=300.0)
# The window of the recording.
START, END = 1796068518433387091, 1796068523442471848


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    folder = tmp_path / "c4-r1"
    shutil.copytree(DATA / "aiperf-cells" / "ok", folder)
    return folder


def read(folder: Path, ended: Ended = DONE, counter: TokenCounter = VLLM_TOKENS) -> aiperf_files.Cell:
    return aiperf_files.read(folder, ended, (counter,), any_version=False)


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


def test_failed_requests_are_no_completed_ones(recorded: Path) -> None:
    log(recorded, sent="1,019", completed="1,015", errors="7")
    cell = read(recorded)
    assert cell.requests.model_dump() == {"dispatched": 1019, "completed": 1008, "failed": 7, "dropped": 4}


def test_series_of_several_engines_are_added(recorded: Path) -> None:
    lines = [
        {"timestamp_ns": at, "metrics": {"vllm:generation_tokens": [{"value": n}, {"value": 2 * n}]}}
        for at, n in ((START, 100.0), (START + 2_000_000_000, 200.0))
    ]
    path = recorded / "server_metrics_export.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"timestamp_ns": 1796', encoding="utf-8")
    window = read(recorded).server_window
    assert (window.tokens, window.seconds, window.tokens_per_second) == (300.0, 2.0, 150.0)


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
    cell = aiperf_files.read(recorded, DONE, (), any_version=False)
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
    dropped = read(recorded, counter=LLAMACPP_TOKENS).dropped
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
    ("ended", "change", "outcome"),
    [
        (Ended(-15, timed_out=True, limit_s=9), {}, "timed out"),
        (Ended(-9, timed_out=False, limit_s=9), {}, "killed"),
        (DONE, {"was_cancelled": True}, "killed"),
        (DONE, {"is_complete": False}, "killed"),
        (DONE, {"aiperf_version": "0.14.0"}, "another AIPerf"),
        (DONE, {"output_token_throughput": None}, "AIPerf failed"),
        (DONE, {"output_token_throughput": {"unit": "tokens/sec"}}, "AIPerf failed"),
        (Ended(1, timed_out=False, limit_s=9), {}, "AIPerf failed"),
    ],
)
def test_what_is_not_ok_has_no_figures(recorded: Path, ended: Ended, change: dict[str, object], outcome: str) -> None:
    log(recorded)
    path = recorded / "profile_export_aiperf.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    cell = read(recorded, ended)
    assert (cell.outcome, cell.native) == (outcome, {})


def test_half_a_summary_is_none(recorded: Path) -> None:
    (recorded / "profile_export_aiperf.json").write_text('{"aiperf_version": "0.1', encoding="utf-8")
    assert read(recorded).outcome == "AIPerf failed"
