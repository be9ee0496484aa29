"""One server for as long as the user wants it."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from spec_eval import recipe as recipes
from spec_eval.engines.launch import LOOPBACK
from spec_eval.errors import EnvironmentFault
from spec_eval.interrupts import terminate_as_interrupt
from spec_eval.serve.choosing import EMBEDDED_ENGINE, Choice, Wish, choose
from spec_eval.serve.embedded import EmbeddedServer, find_model, serve_embedded, with_model
from spec_eval.serve.process import EngineServer, require_free, root_of, serve_process

_EMBEDDED_SLOTS = 4
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Held:
    """A healthy server, until the block is left."""

    base_url: str
    log: Path
    _server: EngineServer | EmbeddedServer

    def wait(self) -> None:
        """Until somebody interrupts, which is the way to end it; EnvironmentFault where it ends by itself."""
        while (code := self._server.process.poll()) is None:
            time.sleep(_LOOK_EVERY_S)
        told = f": {self._server.last_words()}" if isinstance(self._server, EngineServer) else ""
        raise EnvironmentFault(f"the server ended by itself, exit code {code}{told}; its log is {self.log}")


def command(name: str, wish: Wish, *, host: str, port: int, say: Callable[[str], None]) -> str:
    """What `hold` would run: exports and one command line; `say` gets what is worth knowing about it."""
    choice = _chosen(name, wish, host, port, say)
    line = choice.launcher.command(choice.launch)
    say(f"found {line.program}" if line.program else f"{choice.engine.name} is not on this machine")
    return line.shell()


@contextlib.contextmanager
def hold(
    name: str, wish: Wish, *, host: str, port: int, startup_s: float, say: Callable[[str], None]
) -> Iterator[Held]:
    """The recipe's server, healthy. Ended in order when the block is left, SIGTERM and Ctrl-C included."""
    choice = _chosen(name, wish, host, port, say)
    handle, path = tempfile.mkstemp(prefix=f"spec-eval-{choice.recipe.name}-{choice.engine.name}-", suffix=".log")
    os.close(handle)
    log = Path(path)
    with terminate_as_interrupt():
        if choice.engine.name == EMBEDDED_ENGINE:
            require_free(host, port)
            say(f"llamacpp: starting; its log is {log}")
            with serve_embedded(choice.launch, log=log) as embedded:
                yield Held(f"{root_of(host, port)}/v1", log, embedded)
            return
        with serve_process(
            choice.launch, choice.launcher, choice.hardware, log=log, startup_s=startup_s, say=say
        ) as process:
            yield Held(f"{process.root}/v1", log, process)


def _chosen(name: str, wish: Wish, host: str, port: int, say: Callable[[str], None]) -> Choice:
    choice = choose(recipes.find(name), wish)
    launch = replace(choice.launch, host=host, port=port)
    if choice.engine.name == EMBEDDED_ENGINE:
        target = choice.recipe.target
        model = find_model(target.file if target else None, wish.model)
        named = target.name if target and model.as_pinned else model.path.name
        launch = replace(with_model(launch, model.path, name=named), slots=_EMBEDDED_SLOTS)
    for note in choice.notes:
        say(note)
    if host not in (LOOPBACK, "localhost", "::1"):
        say(f"warning: --host {host}: whoever reaches this machine can use the server")
    return replace(choice, launch=launch)
