"""spec-eval serve emulator."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_eval.errors import UsageError

if TYPE_CHECKING:
    import asyncio


class Like(StrEnum):
    """Engines whose format is spoken."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM = "trtllm"


class Draw(StrEnum):
    """How steps are drawn."""

    DECK = "deck"
    RANDOM = "random"


class Timing(StrEnum):
    """When tokens come."""

    NONE = "none"
    GPU = "gpu"


class Detail(StrEnum):
    """Of vLLM's counters."""

    NONE = "none"
    SUMMARY = "summary"
    DETAILED = "detailed"


def emulator(
    like: Annotated[Like, typer.Option(help="the engine whose format it speaks")],
    profile: Annotated[
        str, typer.Option(help="CARD:TABLE:ROW, CARD:TABLE with bins, a .toml file, or CARD with --suite")
    ],
    suite: Annotated[str | None, typer.Option(help="the suite that asks for a whole card")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="folder with the suite's data, as for `run`")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="the limit that `run` is given")] = None,
    cast: Annotated[list[str] | None, typer.Option(help="CELL=PROFILE: what a cell of the suite plays instead")] = None,
    run_seed: Annotated[
        int | None, typer.Option(help="seed of the run, to tell prompts of several cells apart by")
    ] = None,
    draw: Annotated[Draw, typer.Option(help="deal a deck of 10,000 steps, or draw at random")] = Draw.DECK,
    seed: Annotated[int, typer.Option(help="of every draw")] = 0,
    hands: Annotated[int | None, typer.Option(min=1, help="hands of a deck; 80, or as many as a suite asks")] = None,
    steps: Annotated[int, typer.Option(min=1, help="steps of an answer on average, with --draw random")] = 125,
    fault: Annotated[
        list[str] | None, typer.Option(help="NAME, NAME:every=N or NAME:first=N; see docs/design/emulator.md")
    ] = None,
    timing: Annotated[Timing, typer.Option(help="all at once, or as a GPU would")] = Timing.NONE,
    prefill_tokens_per_s: Annotated[float | None, typer.Option(min=1.0, help="with --timing gpu")] = None,
    prefill_ms: Annotated[float | None, typer.Option(min=0.0, help="of an empty prompt, with --timing gpu")] = None,
    step_ms: Annotated[float | None, typer.Option(min=0.0, help="of an empty batch, with --timing gpu")] = None,
    step_ms_per_stream: Annotated[float | None, typer.Option(min=0.0, help="with --timing gpu")] = None,
    model: Annotated[str | None, typer.Option(help="served model name")] = None,
    context: Annotated[int | None, typer.Option(min=64, help="tokens of prompt and answer together")] = None,
    per_request_spec_decode_metrics: Annotated[Detail, typer.Option(help="as vLLM's flag")] = Detail.SUMMARY,
    enable_prompt_tokens_details: Annotated[
        bool, typer.Option("--enable-prompt-tokens-details", help="as vLLM's flag: usage tells of cached tokens")
    ] = False,
    host: Annotated[str, typer.Option(help="to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="to listen on; 0 for a free one")] = 0,
) -> None:
    """Answer as an engine would, with acceptance played from a published row. Prints its base URL.

    Everything it sends, and every run against it, is marked synthetic.
    """
    from spec_eval.emulator import casting, faults, server
    from spec_eval.emulator.settings import MODEL, Settings
    from spec_eval.emulator.timing import Gpu

    rates = {
        "prefill_tokens_per_s": prefill_tokens_per_s,
        "prefill_base_s": None if prefill_ms is None else prefill_ms / 1000,
        "step_base_s": None if step_ms is None else step_ms / 1000,
        "step_stream_s": None if step_ms_per_stream is None else step_ms_per_stream / 1000,
    }
    given = {name: value for name, value in rates.items() if value is not None}
    if given and timing is Timing.NONE:
        raise UsageError("speeds of a GPU without one; give --timing gpu too")
    settings = Settings(
        like=like.value,
        casting=casting.cast(
            profile,
            suite_name=suite,
            data_dir=data_dir,
            limit=limit,
            hands=hands,
            context=context or casting.CONTEXT,
            links=dict(_link(text) for text in cast or ()),
            run_seed=run_seed,
        ),
        deck=draw is Draw.DECK,
        seed=seed,
        steps=steps,
        faults=faults.Faults(tuple(faults.parse(text) for text in fault or ())),
        gpu=Gpu(**given) if timing is Timing.GPU else None,
        model=model or MODEL,
        context=context or casting.CONTEXT,
        detail=per_request_spec_decode_metrics.value,
        prompt_details=enable_prompt_tokens_details,
    )
    server.run(settings, host, port, announce=lambda url: print(url, flush=True), until=_until_told)


def _until_told(ended: "asyncio.Event") -> None:
    """SIGINT and SIGTERM end it in order."""
    import asyncio
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)


def _link(text: str) -> tuple[str, str]:
    cell, equals, profile = text.partition("=")
    if not (cell and equals and profile):
        raise UsageError(f"--cast {text}: write it as CELL=PROFILE")
    return cell, profile
