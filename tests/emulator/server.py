"""The emulator in a thread of its own, so that plain tests and the client's own loops may ask it."""

import asyncio
import threading
from types import TracebackType
from typing import Any

from spec_eval.emulator import Settings
from spec_eval.emulator.casting import CONTEXT, cast
from spec_eval.emulator.faults import Faults, parse
from spec_eval.emulator.server import Emulator, base_url, bind

HUMANEVAL = "glm-5.3-dflash2-preview:basic-t0:HumanEval"


def settings(profile: str = HUMANEVAL, *, like: Any = "vllm", fault: tuple[str, ...] = (), **more: Any) -> Settings:
    """Of one row; options of the casting go to it."""
    names = ("hands", "suite_name", "data_dir", "limit", "links", "run_seed")
    given = {name: more.pop(name) for name in names if name in more}
    casting = cast(profile, context=more.get("context", CONTEXT), **given)
    return Settings(like=like, casting=casting, faults=Faults(tuple(map(parse, fault))), **more)


class EmulatorServer:
    """Use as a context manager."""

    def __init__(self, of: Settings | None = None, *, port: int = 0, **more: Any) -> None:
        self.settings = of or settings(**more)
        self._port = port
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.url = ""

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    @property
    def port(self) -> int:
        return int(self.root.rpartition(":")[2])

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self.emulator = Emulator(self.settings)
        bound = bind("127.0.0.1", self._port)
        self.url = base_url(bound)
        await self.emulator.serve(bound, self._ended, self._ready.set)

    def __enter__(self) -> "EmulatorServer":
        self._thread.start()
        assert self._ready.wait(10), "the emulator did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the emulator did not stop"
