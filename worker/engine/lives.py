"""The lives of an engine, one after another: start, warm-up, service, death, and the pause before the next."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from tailrace.worker.engine.back_off import BackOff
from tailrace.worker.engine.body import Body
from tailrace.worker.engine.client import EngineClient
from tailrace.worker.engine.command import EngineError
from tailrace.worker.engine.settings import EngineSettings
from tailrace.worker.engine.state import Phase
from tailrace.worker.engine.told import telling
from tailrace.worker.engine.warmup import WarmupFailed, warm_up
from tailrace.worker.engine.watch import Died, EngineWatch

log = logging.getLogger(__name__)

LONG = 10.0
"""Seconds after which a warm-up is worth a warning."""


class Lives:
    """Runs life after life until cancelled; an engine that dies while it drains is not brought back."""

    def __init__(
        self,
        body: Body,
        client: EngineClient,
        watch: EngineWatch,
        settings: EngineSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._body = body
        self._client = client
        self._watch = watch
        self._settings = settings
        self._clock = clock
        self._back_off = BackOff(settings.start)
        self._warming = ""

    async def run(self) -> None:
        """Live, die, wait, live again."""
        while not self._watch.state.draining:
            await self._body.appear(self._watch)
            self._watch.begin()
            ready_at: float | None = None
            try:
                async with self._body.life(self._watch):
                    await self._come_up()
                    ready_at = self._clock()
                    await self._watch.follow()
            except (Died, EngineError, WarmupFailed) as end:
                reason = str(end)
            except Exception as end:
                # The next life may well be better, and without this task there would be none.
                log.exception("the engine's life ended by a fault of the sidecar")
                reason = f"fault of the sidecar: {type(end).__name__}"
            pause = self._back_off.after(0.0 if ready_at is None else self._clock() - ready_at)
            if self._body.longest_pause is not None:
                pause = min(pause, self._body.longest_pause)
            self._report(self._body.obituary(reason), pause)
            await asyncio.sleep(pause)

    async def _come_up(self) -> None:
        watch, limit = self._watch, self._body.start_limit
        began = self._clock()
        async with telling(lambda: self._tell_of_start(began)):
            try:
                async with asyncio.timeout(limit):
                    await watch.unless_dead(watch.healthy())
            except TimeoutError:
                raise EngineError(f"not healthy after {limit:g} s") from None
        await watch.unless_dead(watch.read_models())
        watch.change(phase=Phase.WARMING, reason="")
        self._warming, warming_since = "", self._clock()
        async with telling(lambda: self._tell_of_warm_up(warming_since)):
            work = warm_up(self._client, self._settings.warmup, watch.state.models, note=self._note_warm_up)
            warmth = await watch.unless_dead(work)
        watch.change(phase=Phase.READY, reason="", warmth=warmth)
        log.info("engine ready after %.1f s", self._clock() - began)

    def _tell_of_start(self, began: float) -> None:
        self._tell_progress(logging.INFO, f"starting for {self._clock() - began:.0f} s", self._body.news())

    def _note_warm_up(self, what: str) -> None:
        self._warming = what

    def _tell_of_warm_up(self, began: float) -> None:
        passed = self._clock() - began
        level = logging.INFO if passed < LONG else logging.WARNING
        self._tell_progress(level, f"warming up for {passed:.0f} s", self._warming)

    def _tell_progress(self, level: int, text: str, news: str) -> None:
        text += f": {news}" if news else ""
        log.log(level, "engine %s", text)
        self._watch.change(reason=text)

    def _report(self, reason: str, pause: float) -> None:
        failures = self._back_off.failures
        if self._back_off.looping:
            reason = f"crash loop, {failures} failures in a row, the last: {reason}"
            log.error("engine in a %s; %s", reason, self._body.next_life(pause))
        else:
            log.warning("engine gone: %s; %s", reason, self._body.next_life(pause))
        self._watch.change(phase=Phase.DEAD, reason=reason, failures=failures)
