"""The server of a plan, and its counters at rest."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from spec_eval.engines import Engine
from spec_eval.engines.endpoint import Endpoint, key_from_environment
from spec_eval.engines.scrape import Totals, find
from spec_eval.run import targets
from spec_eval.serve import Choice, serve_embedded, serve_process
from spec_eval.serve.choosing import EMBEDDED_ENGINE
from spec_eval.serve.embedded import beside_load, find_model, threads, with_model
from spec_eval.serve.process import free_port
from spec_eval.store import Target

SETTLE_S = 5.0
_BETWEEN_READINGS_S = 0.2


class Planned(Protocol):
    """What a plan of either kind says of its server."""

    @property
    def target(self) -> Target:
        """What is measured."""

    @property
    def api_key_env(self) -> str | None:
        """Variable with the key."""

    @property
    def trust_remote_code(self) -> bool:
        """Of a served model."""

    @property
    def slots(self) -> int:
        """Requests at a time, at most; for a server that spec-eval starts."""

    @property
    def load_is_heavy(self) -> bool:
        """Whether the load is made by a program that needs a processor of its own."""


@dataclass(frozen=True)
class Server:
    """version: where spec-eval knows it better than the server. facts: for the manifest."""

    endpoint: Endpoint
    version: str | None
    facts: dict[str, str] = field(default_factory=dict)


def stamp(plan: Planned) -> str | None:
    """What an emulated server that runs already says of itself; null of a real one, and of one that we start."""
    if plan.target.recipe is not None:
        return None
    return Endpoint.at(str(plan.target.base_url), key_from_environment(plan.api_key_env)).stamp()


@contextlib.contextmanager
def serve(log: Path, plan: Planned, say: Callable[[str], None]) -> Iterator[Server]:
    """The server of the plan: one that runs already, or the recipe's, started for as long as the block lasts.

    log: gets the output of one that is started. `say` gets lines for a person while it starts.
    """
    if plan.target.recipe is None:
        yield Server(Endpoint.at(str(plan.target.base_url), key_from_environment(plan.api_key_env)), None)
        return
    choice = targets.served(plan.target, trust_remote_code=plan.trust_remote_code)
    for note in choice.notes:
        say(note)
    if choice.engine.name == EMBEDDED_ENGINE:
        with _embedded(log, plan, choice) as server:
            yield server
        return
    launch = replace(choice.launch, port=free_port())
    with serve_process(launch, choice.launcher, choice.hardware, log=log, say=say) as process:
        command = choice.launcher.command(launch)
        yield Server(Endpoint.at(process.root), None, {"command": command.shell(), "program": process.program})


@contextlib.contextmanager
def _embedded(log: Path, plan: Planned, choice: Choice) -> Iterator[Server]:
    target = choice.recipe.target
    model = find_model(target.file if target else None, plan.target.model_file)
    ours = plan.target.model_file is not None or model.as_pinned
    name = str(plan.target.model) if ours else f"{model.path.name} (not the recipe's)"
    launch = replace(
        with_model(choice.launch, model.path, name=name),
        slots=plan.slots,
        synthetic_rates=plan.target.synthetic_rates,
    )
    if plan.load_is_heavy:
        launch = beside_load(launch)
    facts = {"model_file_sha256": model.sha256, "threads": str(threads(launch))}
    with serve_embedded(launch, log=log) as child:
        yield Server(Endpoint.at(child.root), child.version, facts)


def settled(endpoint: Endpoint, engine: Engine) -> str | None:
    """The counters' page once the probe's own steps are in it: until two readings agree, for a few seconds at most."""
    deadline = time.monotonic() + SETTLE_S
    held = endpoint.metrics(engine.metrics_path)
    while held is not None and time.monotonic() < deadline:
        time.sleep(_BETWEEN_READINGS_S)
        again = endpoint.metrics(engine.metrics_path)
        if again is None or _totals(again) == _totals(held):
            break
        held = again
    return held


def _totals(text: str) -> tuple[str, Totals] | None:
    try:
        return find(text)
    except (ValueError, KeyError):
        return None
