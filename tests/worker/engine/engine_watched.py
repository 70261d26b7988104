"""A watch in the middle of an engine's life, and an engine that answers as a test says."""

import asyncio

from engine_doubles import Clock
from fakes import until
from tailrace.worker.engine.client import Unanswered
from tailrace.worker.engine.settings import WatchSettings
from tailrace.worker.engine.state import Model, Phase
from tailrace.worker.engine.watch import EngineWatch

LATE = Unanswered("no answer to /health within 2 s", late=True)
REFUSED = Unanswered("/health: refused")
FAST = WatchSettings(poll=0.001, quiet_poll=0.01, health=0.001, models=0.001, timeout=0.1)


class Script:
    """A client whose answers a test sets; an exception is raised."""

    def __init__(self) -> None:
        self.well = self.once = None
        self.figures: bytes | Exception | None = load(0, 0)
        self.listed: tuple[Model, ...] | None = ()
        self.checks = 0
        self.readings = 0

    async def health(self):
        self.checks += 1
        answer, self.once = self.once or self.well, None
        return self._answer(answer)

    async def metrics(self):
        self.readings += 1
        return self._answer(self.figures)

    async def models(self):
        return self._answer(self.listed)

    def _answer(self, answer):
        if isinstance(answer, Exception):
            raise answer
        return answer


def load(running: int, waiting: int, generated: float = 0.0, kv_use: float = 0.0) -> bytes:
    return (
        f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
        f"vllm:generation_tokens_total {generated}\nvllm:kv_cache_usage_perc {kv_use}\n"
    ).encode()


class Watched:
    """A watch in the middle of an engine's life: `async with Watched() as it`."""

    def __init__(self, settings: WatchSettings = FAST) -> None:
        self.client = Script()
        self.clock = Clock()
        self.states = []
        self.watch = EngineWatch(self.client, settings, self.states.append, self.clock)

    @property
    def state(self):
        return self.watch.state

    async def __aenter__(self) -> "Watched":
        self.watch.begin()
        self.watch.change(phase=Phase.READY)
        self.task = asyncio.ensure_future(self.watch.follow())
        return self

    async def __aexit__(self, *_) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    async def more(self, count: str, by: int = 3) -> None:
        """Wait until the client was asked some more times."""
        before = getattr(self.client, count)
        await until(lambda: getattr(self.client, count) >= before + by)
