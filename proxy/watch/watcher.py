"""Keeps one worker's standing current: by its sidecar's feed or, where there is none, by asking the engine.

What was said last counts until something else is heard, but a load only while it is fresh. A worker to which no
connection can be had, or none that anybody answers on, is dead for this gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Any, Protocol

from tailrace.proxy import trouble
from tailrace.proxy.fleet import Worker
from tailrace.proxy.lines import Lines
from tailrace.proxy.progress import progresses
from tailrace.proxy.sweep import Clock
from tailrace.proxy.watch.ask import ask, read_feed
from tailrace.proxy.watch.asked import Unanswered
from tailrace.proxy.watch.bare import models_in, trouble_in, verdict
from tailrace.proxy.watch.feed import age_of, apply, beat_of
from tailrace.proxy.watch.scraping import scraping
from tailrace.proxy.watch.subscription import End

log = logging.getLogger("tailrace")

MISSES = 2
"""Connections in a row that could not be opened, or were closed unanswered, until the worker counts as dead."""
SOONEST = 0.05
LATEST = 2.0
POLL = 1.0
"""A bare engine is asked every POLL to 2 * POLL seconds."""
ANSWER = 2.0
LOOK_AGAIN = 30.0
"""Seconds after which a bare engine may have got a sidecar."""
LASTING = 1.0
"""Seconds that a feed lasted which is read again at once when it breaks off."""
LONG = 10.0
"""Seconds after which a worker that has never been ready is worth a warning."""


class Hears(Protocol):
    """Who wants to know of changes."""

    def changed(self, worker: Worker) -> None:
        """Who may get which calls has changed."""

    def known(self, worker: Worker, *, bare: bool) -> None:
        """It turned out whether the worker is a bare engine."""

    def heard(self, worker: Worker) -> None:
        """It has said something, if only that it is there."""

    def promised(self, worker: Worker, beat: float) -> None:
        """It says that it will say something every `beat` seconds; 0 where it makes no promise."""

    def unreached(self, worker: Worker) -> None:
        """No connection to it came about, or that of its feed broke off."""


class WorkerWatch:
    """Watches one worker until cancelled."""

    def __init__(
        self, worker: Worker, hears: Hears, clock: Clock, lines: Lines, draw: Callable[[], float] = random.random
    ) -> None:
        self.worker = worker
        self.bare = False
        self.connecting = False
        """Whether it waits for a connection: it will tell by itself whether there is one to be had."""
        self._hears = hears
        self._clock = clock
        self._lines = lines
        self._draw = draw
        self._misses = 0
        self._failures = 0
        self._shown = worker.standing.takes_calls
        self._served = False
        self._met = ""
        self._warned = False
        self._began = clock.now

    async def run(self) -> None:
        """Subscribe, and again, for ever; a fault of the watch itself ends neither it nor what is known."""
        while True:
            try:
                again_at_once = await self._subscribe()
            except Exception as error:
                log.exception("the watch of worker %s failed and begins anew", self.worker.name)
                self.worker.standing.forget_load()
                with contextlib.suppress(Exception):
                    self._missed(f"its watch failed ({type(error).__name__})")
                again_at_once = False
            if not again_at_once:
                await asyncio.sleep(self._pause())

    async def _subscribe(self) -> bool:
        """Read the worker's feed to its end; whether it may be read again without a pause."""
        began = self._clock.now
        try:
            self.connecting = True
            end, why = await read_feed(self.worker, self._heard, self._connected)
        except Unanswered as silence:
            self._missed(str(silence))
            return False
        finally:
            self._connected()
        if end is End.CLOSED:
            self._missed(why)
            return False
        self._misses = 0
        if end is End.BROKEN:
            return self._broken_off(began)
        if end is not End.LOST:
            self._hears.heard(self.worker)
        if end is End.BARE or end is End.REFUSED:
            self._hears.promised(self.worker, 0.0)
        if end is End.BARE:
            self._know(bare=True)
            await self._ask_for_a_while()
            return True
        if end is End.REFUSED and self.bare:
            # It got a sidecar meanwhile, to which we have shown no key yet.
            self._know(bare=False)
            return True
        if end is End.REFUSED:
            self._refused(why)
        if end is End.OVER:
            self._failures = 0
        return False

    def _connected(self) -> None:
        self.connecting = False

    def _pause(self) -> float:
        """Doubles from failure to failure, and differs from gateway to gateway."""
        bound = min(SOONEST * 2.0 ** min(self._failures, 16), LATEST)
        self._failures += 1
        return bound * (0.5 + 0.5 * self._draw())

    def _broken_off(self, began: float) -> bool:
        """Whoever wrote the feed is gone, or its way is: the next connection tells which."""
        self._hears.unreached(self.worker)
        return self._clock.now - began > LASTING

    def _heard(self, state: dict[str, Any] | None) -> None:
        if state is None:
            self._hears.heard(self.worker)
            return
        self._failures = 0
        standing = self.worker.standing
        standing.hop_refused = False
        if self.bare:
            self._know(bare=False)
        was_dead = standing.dead
        changed = apply(standing, state, self._clock.now)
        if standing.dead and not was_dead:
            self.worker.died = asyncio.get_running_loop().time() - age_of(state)
        if changed:
            self._tell()
        self._hears.promised(self.worker, beat_of(state))
        self._hears.heard(self.worker)
        self._served = self._served or standing.takes_calls
        self._warn_of_a_long_start()

    def _missed(self, why: str) -> None:
        self._misses += 1
        self._hears.unreached(self.worker)
        if self._misses >= MISSES:
            self._dead(why)

    def _dead(self, why: str) -> None:
        standing = self.worker.standing
        standing.reason = why
        if not standing.dead:
            took_calls = self._shown
            standing.dead = True
            standing.forget_load()
            self._tell()
            if self._served and not took_calls:
                # That it is no longer there is news, though it got no calls any more.
                self._lines.warning("worker %s is gone: %s", self.worker.name, why)

    def _refused(self, why: str) -> None:
        """Every call would be refused as well."""
        standing = self.worker.standing
        if standing.ready or standing.reason != why:
            standing.ready, standing.reason, standing.hop_refused = False, why, True
            # It answers, and what it said before the keys came to differ is no news any more.
            standing.dead = standing.draining = False
            self._lines.error("worker %s takes no calls: %s", self.worker.name, why)
            self._shown, self._warned = standing.takes_calls, True
            self._tell()

    def _know(self, *, bare: bool) -> None:
        if bare != self.bare:
            self.bare = bare
            self._hears.known(self.worker, bare=bare)

    def _tell(self) -> None:
        standing = self.worker.standing
        if standing.takes_calls is not self._shown:
            self._shown = standing.takes_calls
            if self._shown:
                self._warned = False
                self._lines.info("worker %s takes calls", self.worker.name)
            else:
                self._tell_of_loss()
        self._hears.changed(self.worker)

    def _tell_of_loss(self) -> None:
        """Nobody asked for it, unless the worker is drained; one that has yet to come up is given time."""
        standing = self.worker.standing
        if standing.draining and not standing.dead:
            self._lines.info("worker %s takes no calls: it is drained", self.worker.name)
        elif standing.dead or self._served:
            self._warn("takes no calls")
        else:
            self._lines.info("worker %s takes no calls yet: %s", self.worker.name, standing.reason or "it is not ready")

    def _warn_of_a_long_start(self) -> None:
        standing = self.worker.standing
        late = self._clock.now - self._began > LONG
        if late and not (self._warned or self._served or standing.takes_calls or standing.draining):
            self._warn("still takes no calls")

    def _warn(self, what: str) -> None:
        self._warned = True
        self._lines.warning(
            "worker %s %s: %s", self.worker.name, what, self.worker.standing.reason or "it is not ready"
        )

    # An engine without a sidecar.

    async def _ask_for_a_while(self) -> None:
        """Ask now and then how the engine is, until it may be worth looking for a sidecar again."""
        standing, loop = self.worker.standing, asyncio.get_running_loop()
        if not standing.ready or standing.draining:
            standing.ready, standing.draining = True, False
            self._tell()
        until = loop.time() + LOOK_AGAIN * (0.5 + 0.5 * self._draw())
        async with scraping(self.worker, self._clock, self._draw):
            await self._ask_until(until)

    async def _ask_until(self, until: float) -> None:
        standing, loop = self.worker.standing, asyncio.get_running_loop()
        while loop.time() < until:
            was_dead = standing.dead
            await self._ask()
            if was_dead and not standing.dead:
                return
            await asyncio.sleep(SOONEST if 0 < self._misses < MISSES else POLL * (1.0 + self._draw()))

    async def _ask(self) -> None:
        try:
            self.connecting = True
            health = await ask(self.worker, "/health", ANSWER, self._connected)
        except Unanswered as silence:
            # A busy engine answers late: that alone is no reason to give it up.
            if silence.unreachable:
                self._missed(str(silence))
            return
        finally:
            self._connected()
        self._misses = 0
        self._hears.heard(self.worker)
        why = verdict(health.status)
        if why is not None and progresses(self.worker, self._clock.now):
            return  # what it does counts for more than what it says
        if why is not None:
            self._dead(why)
            return
        standing = self.worker.standing
        standing.seen = self._clock.now
        models = await self._models(health.status)
        before = (standing.dead, standing.models)
        standing.dead, standing.reason = False, ""
        self._served = True
        if models is not None:
            standing.models = models
        if before != (standing.dead, standing.models):
            self._tell()

    async def _models(self, health: int) -> dict[str, str] | None:
        try:
            answer = await ask(self.worker, "/v1/models", ANSWER)
        except Unanswered:
            return None
        met = trouble_in(health, answer.status)
        for why in (trouble.CREDENTIALS, trouble.NO_SERVER):
            if why == met:
                trouble.meet(self.worker, why)
            elif why == self._met:
                trouble.end(self.worker, why)
        self._met = met
        return models_in(answer.body) if answer.status == 200 else None
