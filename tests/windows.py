"""Run folders of throughput suites, built without AIPerf; every expected number stays in the tests themselves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spec_eval.store import PromptRef, Target
from spec_eval.store.plan import Member
from spec_eval.store.windows import (
    OK,
    Drafts,
    Dropped,
    Outcome,
    Requests,
    ServerWindow,
    Tool,
    WindowCell,
    WindowFolder,
    WindowManifest,
    WindowPlan,
    WindowSession,
)
from spec_eval.suite import Sampling, Window

# concurrency → (X, Y) of each repeat, or the name of an outcome without figures
Curve = Mapping[int, Sequence[tuple[float, float] | Outcome]]


def plan(run_id: str, drafter: str | None, curve: Curve, **changes: Any) -> WindowPlan:
    repeats = max(len(tried) for tried in curve.values())
    window = Window(concurrency=tuple(curve), warmup_s=30, duration_s=180, repeats=repeats)
    prompts = PromptRef(
        source="rows.jsonl", revision=None, files={}, sha256="ab" * 32, rows=1, units=(("p0", "coding", 1),)
    )
    made = WindowPlan(
        run_id=run_id,
        created="2026-01-01T00:00:00+00:00",
        spec_eval_version="0.1.0",
        command=("spec-eval", "run", "load"),
        suite_name="load",
        suite_text="",
        suite_sha256="cd" * 32,
        member=Member(text=""),
        member_name="pair",
        dataset="humaneval",
        title="HumanEval",
        overrides={},
        target=Target(engine="vllm", model="m", drafter=drafter, k=8, base_url="http://127.0.0.1:1/v1"),
        sampling=Sampling(temperature=0.0, max_tokens=64, thinking=True),
        window=window,
        prompts=prompts,
        seed=0,
        aiperf=Tool(path="/opt/aiperf", version="0.13.0", found="on PATH"),
    )
    return made.model_copy(update=changes)


def cell(level: int, repeat: int, tried: tuple[float, float] | Outcome, **changes: Any) -> WindowCell:
    good = not isinstance(tried, str)
    x, y = tried if not isinstance(tried, str) else (0.0, 0.0)
    made = WindowCell(
        concurrency=level,
        repeat=repeat,
        outcome=OK if good else tried,  # type: ignore[arg-type]
        folder=f"cells/c{level}-r{repeat}",
        command=("aiperf", "profile", "--concurrency", str(level)),
        started="2026-01-01T00:00:00+00:00",
        ended="2026-01-01T00:04:00+00:00",
        seconds=240.0,
        native={
            "output_token_throughput_per_user": {"unit": "tokens/sec/user", "avg": x},
            "output_token_throughput": {"unit": "tokens/sec", "avg": y},
        }
        if good
        else {},
        requests=Requests(dispatched=10, completed=8, failed=0, dropped=2) if good else Requests(),
        dropped=Dropped(share=0.2, basis="requests") if good else None,
        server_window=ServerWindow(tokens_per_second=y * 1.1, counter="vllm:generation_tokens")
        if good
        else ServerWindow(),
        drafts=Drafts(answers=8, requests=8, prompts=8, steps=100, accepted=300, drafted=800, histogram=None)
        if good
        else None,
    )
    return made.model_copy(update=changes)


def folder(
    root: Path,
    run_id: str,
    drafter: str | None,
    curve: Curve,
    *,
    version: str | None = "0.32.0",
    whole: bool = True,
    server: dict[str, Any] | None = None,
    **changes: Any,
) -> WindowFolder:
    """A run whose cells were measured in the order of `curve`."""
    made = WindowFolder(root / run_id)
    made.path.mkdir(parents=True)
    made.write_plan(plan(run_id, drafter, curve, **changes))
    server = server or {"model": "m", "k": 8, "engine_version": version}
    session = WindowSession(started="2026-01-01T00:00:00+00:00", server=server)
    made.start_session(session)
    for level, tries in curve.items():
        for repeat, tried in enumerate(tries, 1):
            made.append(cell(level, repeat, tried))
    if whole:
        made.write_manifest(
            WindowManifest(
                run_id=run_id,
                started=session.started,
                ended="2026-01-01T02:00:00+00:00",
                server=server,
                sessions=(session,),
                packages={},
                platform={},
            )
        )
    return made
