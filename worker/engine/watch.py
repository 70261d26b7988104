"""Keeps the engine's state current: load, health, models and progress, and tells each change the moment it is seen."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from tailrace.proxy.watch.exposition import Load, parse
from tailrace.worker.engine.client import EngineClient, Unanswered
from tailrace.worker.engine.progress import Progress
from tailrace.worker.engine.settings import WatchSettings
from tailrace.worker.engine.state import EngineState, Phase, Warmth

__all__ = ["EngineState", "EngineWatch", "Phase"]

log = logging.getLogger(__name__)
T = TypeVar("T")

RECHECK = 0.2
"""Seconds to the next health check after one that failed."""
SECONDS_PER_BYTE = 2.5e-6
"""How far readings are spaced out by their size, for an engine that gives all its metrics instead of those asked for.

48 KB cost vLLM 6 ms of its server's time, so this keeps the readings to a twentieth of it. How long an answer takes
would be the wrong measure: that grows with the engine's load, which is when fresh readings matter.
"""
SMOOTHING = 1.0
"""Seconds over which the token rate is averaged."""


class Died(Exception):  # noqa: N818 - a fact about the engine
    """The engine is dead; the message says how that is known."""


class EngineWatch:
    """Holds the state of one engine through all its lives.

    Whoever runs the engine calls `begin` for each life, `move` as it gets further, and `died` when its process ends;
    `follow` then reads load, health and models until death. `on_change` is called on the loop with every state that
    differs from the last one; what it raises is logged and goes no further.
    """

    def __init__(
        self,
        client: EngineClient,
        settings: WatchSettings,
        on_change: Callable[[EngineState], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._settings = settings
        self._on_change = on_change
        self._clock = clock
        self._death: asyncio.Future[str] | None = None
        self._stirred = asyncio.Event()
        self._doubted = asyncio.Event()
        self._quiet = False
        self._misses = 0
        self._last: tuple[float, Load] | None = None
        self._asked = 0.0
        self.progress = Progress(clock)
        self.state = EngineState(since=clock())

    def now(self) -> float:
        """The time on the clock that the state's times are of."""
        return self._clock()

    def change(self, **fields: Any) -> None:
        """Replace fields of the state, and tell if that made a difference."""
        before = self.state
        if fields.get("phase", before.phase) is not before.phase:
            fields["since"] = self._clock()
        self.state = dataclasses.replace(before, **fields)
        if self.state != before:
            try:
                self._on_change(self.state)
            except Exception:
                log.exception("a change of the engine's state was not taken")

    def begin(self, reason: str = "") -> None:
        """A new life: nothing of the last one's load or models counts."""
        self._death = asyncio.get_running_loop().create_future()
        self._last = None
        self._asked = 0.0
        self._misses = 0
        self.change(
            phase=Phase.STARTING,
            reason=reason,
            running=0,
            waiting=0,
            kv_use=0.0,
            tokens_per_second=0.0,
            models=(),
            warmth=Warmth(),
            pid=None,
            sampled=0.0,
        )

    def died(self, reason: str) -> None:
        """The engine is gone; told at once, and only the first time in a life."""
        if self._death is not None and not self._death.done():
            self._death.set_result(reason)
            self.change(phase=Phase.DEAD, reason=reason, running=0, waiting=0, kv_use=0.0, tokens_per_second=0.0)

    async def unless_dead(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which is cancelled with `Died` when the engine dies first."""
        death = self._death
        assert death is not None, "begin() comes first"
        task: asyncio.Future[Any] = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
            if death.done():
                raise Died(death.result())
            return cast(T, task.result())
        finally:
            task.cancel()
            # Not by awaiting the task itself: that could not tell its cancellation from our own.
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()

    async def healthy(self, doubted: Callable[[str], None] | None = None) -> None:
        """Return once the health check answers well; no limit of its own. `doubted` is told each time why not."""
        while True:
            try:
                fault = await self._client.health()
            except Unanswered as silence:
                fault = str(silence)
            if fault is None:
                return
            if doubted is not None:
                doubted(fault)
            await asyncio.sleep(RECHECK)

    async def read_models(self) -> None:
        """Bring the list of models up to date; an engine that does not tell keeps the last one."""
        with contextlib.suppress(Unanswered):
            models = await self._client.models()
            if models is not None:
                self.change(models=models)

    async def follow(self) -> None:
        """Read load, health and models until the engine dies; ends with `Died` only."""
        self.progress.reset()
        await self.unless_dead(self._read())

    async def _read(self) -> None:
        async with asyncio.TaskGroup() as group:
            for work in (self._loads, self._checks, self._lists):
                group.create_task(work())

    def stir(self) -> None:
        """Work is on its way: read the load at the busy pace again."""
        if self._quiet:
            self._stirred.set()

    def knows_since(self, moment: float) -> bool:
        """Whether the load in the state was asked for after `moment`, or was in vain and the engine tells none."""
        return self.state.sampled > moment or (not self.state.sampled and self._asked > moment)

    async def _loads(self) -> None:
        pause = self._settings.poll
        while True:
            busy, size = self.progress.inside > 0, 0
            asked = self._clock()
            try:
                text = await self._client.metrics()
            except Unanswered:
                self.doubt()
            else:
                size = len(text or b"")
                load = parse(text) if text is not None else None
                if load is not None and self._take(load, asked):
                    busy = True
            self._asked = asked
            pause = self._settings.poll if busy else min(pause * 2, self._settings.quiet_poll)
            self._quiet = pause > self._settings.poll
            if await _either(self._stirred, max(pause, size * SECONDS_PER_BYTE)):
                pause = self._settings.poll

    def _take(self, load: Load, asked: float) -> bool:
        """Note a reading that was asked for at a time; True if there is or was anything to see."""
        now = self._clock()
        rate, moved = 0.0, True
        if self._last is not None:
            then, last = self._last
            moved = load != last
            passed = max(now - then, 1e-6)
            made = max(load.generated - last.generated, 0.0) / passed
            weight = 1.0 - math.exp(-passed / SMOOTHING)
            rate = self.state.tokens_per_second + weight * (made - self.state.tokens_per_second)
        self._last = (now, load)
        if moved:
            self.progress.made()
        self.change(
            running=load.running,
            waiting=load.waiting,
            kv_use=round(load.kv_use, 2),
            tokens_per_second=rate if rate >= 0.05 else 0.0,
            sampled=asked,
        )
        return moved or not self.state.idle

    def doubt(self) -> None:
        """Check its health now: something failed."""
        self._doubted.set()

    async def _checks(self) -> None:
        recheck, doubted = min(RECHECK, self._settings.health), False
        while True:
            await self._check()
            if self._misses:
                await asyncio.sleep(recheck)
                continue
            if doubted:
                # A healthy engine may fail many requests: they bring no more checks than this.
                await asyncio.sleep(recheck)
            doubted = await _either(self._doubted, self._settings.health)

    async def _check(self) -> None:
        began = self._clock()
        fault, late = None, False
        try:
            fault = await self._client.health()
        except Unanswered as silence:
            fault, late = str(silence), silence.late
        if fault is not None and late and self.progress.at > began:
            # Too busy to answer us, but its streams go on.
            return
        self._misses = 0 if fault is None else self._misses + 1
        if self._misses >= self._settings.failures:
            self.died(f"{fault}, {self._misses} times in a row")
        elif fault is None:
            self._judge_progress()
        elif not late or self._misses > 1:
            self._suspect(fault)

    def _judge_progress(self) -> None:
        still = self.progress.still(working=not self.state.idle)
        settings = self._settings
        if settings.hung and still >= settings.hung:
            self.died(f"healthy by its own account, but no progress for {still:.0f} s")
        elif settings.stall and still >= settings.stall:
            self._suspect(f"no progress with work in it for {settings.stall:g} s")
        elif self.state.phase is Phase.SUSPECT:
            self.change(phase=Phase.READY, reason="")

    def _suspect(self, reason: str) -> None:
        if self.state.phase in (Phase.READY, Phase.SUSPECT):
            self.change(phase=Phase.SUSPECT, reason=reason)

    async def _lists(self) -> None:
        while True:
            await asyncio.sleep(self._settings.models)
            await self.read_models()


async def _either(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event or the time; True if it was the event, which is cleared."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    was = event.is_set()
    event.clear()
    return was
