"""A suite or a run folder of either kind: requests that we send ourselves, or windows of load that AIPerf makes."""

from dataclasses import replace
from pathlib import Path

from spec_eval import suite
from spec_eval.errors import UsageError
from spec_eval.render.progress import Progress
from spec_eval.run import driving, planning, window_planning, windows
from spec_eval.run.options import RunOptions
from spec_eval.store import kind_of
from spec_eval.suite import ThroughputSuite

Finished = driving.Finished | windows.Finished


def is_throughput(options: RunOptions) -> bool:
    """Whether the suite is measured in windows; UsageError where there is no such suite."""
    return isinstance(suite.find(options.suite).suite, ThroughputSuite)


def start(options: RunOptions, progress: Progress) -> Finished:
    """Plan, open a run folder, and measure."""
    if is_throughput(options):
        refuse_beside_windows(options)
        return windows.start(options, progress)
    refuse_beside_requests(options)
    return driving.start(options, progress)


def resume(path: Path, progress: Progress, *, base_url: str | None = None) -> Finished:
    """Go on with what is missing, at the settings of the plan."""
    if kind_of(path) is not None:
        return windows.resume(path, progress, base_url=base_url)
    return driving.resume(path, progress, base_url=base_url)


def dry_run(options: RunOptions) -> str:
    """What `run` would do, for people; sends nothing and writes nothing."""
    if is_throughput(options):
        refuse_beside_windows(options)
        return window_planning.dry_run(options)
    refuse_beside_requests(options)
    return planning.dry_run(options)


def refuse_beside_requests(options: RunOptions) -> None:
    """UsageError for options of throughput suites beside a suite of another kind."""
    given = {
        "--duration": options.duration,
        "--warmup": options.warmup,
        "--aiperf": options.aiperf,
        "--any-aiperf": options.any_aiperf or None,
        "--tokenizer": options.tokenizer,
    }
    if idle := [name for name, value in given.items() if value is not None]:
        raise UsageError(f"{', '.join(idle)}: for throughput suites alone; name one of those, or drop it")


def refuse_beside_windows(options: RunOptions) -> None:
    """UsageError for options of other suites beside a throughput suite."""
    given = {"--no-cache-salt": not options.cold_cache, "--reasoning-in-history": options.reasoning_in_history}
    if idle := [name for name, there in given.items() if there]:
        raise UsageError(f"{', '.join(idle)}: of no effect on a throughput suite; drop it")


def of_its_kind(options: RunOptions) -> RunOptions:
    """Without the options that only suites of the other kind take, where they were given for suites of both."""
    if is_throughput(options):
        return replace(options, cold_cache=True, reasoning_in_history=False)
    return replace(options, duration=None, warmup=None, aiperf=None, any_aiperf=False, tokenizer=None)
