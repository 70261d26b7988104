"""The state feed: one long answer of lines to each gateway, so that it knows of changes, and of life, at once.

Ten times a second a line comes: the whole state where it has changed, and twice a second in any case, else an empty one
as a sign of life. A change after a calm is told in its own moment, and so is whether calls may come. A subscriber that
does not read holds nothing: its next line is made when it takes one, from the state of that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.reply import Reply
from tailrace.proxy.watch.feed import BEAT, MEDIA, SIGN_OF_LIFE
from tailrace.worker.report import Report

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

GATHER = 0.1
"""Seconds for which changes are gathered."""
REPEAT = 0.5
"""Seconds after which the state is told again."""
MOST = 256
"""Subscribers at once: every process of every gateway is one."""


class _Subscriber:
    __slots__ = ("changed", "due", "told")

    def __init__(self) -> None:
        self.due = asyncio.Event()
        self.changed = False
        self.told = 0.0

    def wants_all(self, now: float) -> bool:
        """Whether its next line is the whole state."""
        return self.changed or now - self.told > REPEAT - BEAT / 2


class StateFeed:
    """Tells every subscriber what the report says."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._subscribers: set[_Subscriber] = set()
        self._pulse: asyncio.TimerHandle | None = None
        self._closed = False
        report.changed = self._wake

    @property
    def subscribers(self) -> int:
        """How many are listening."""
        return len(self._subscribers)

    def open(self, call: Call) -> Reply:
        """Begin an answer that ends when its reader leaves, with the chain it belongs to, or by `close`."""
        if len(self._subscribers) >= MOST:
            raise Reject(503, "too_many_subscribers", "Too many read this feed.", retry_after=5.0, whose=Whose.GATEWAY)
        return Reply(200, self._lines(call), content_type=MEDIA, source="state")

    def close(self) -> None:
        """End every feed; new ones end after a line."""
        self._closed = True
        self._wake(True)

    async def _lines(self, call: Call) -> AsyncIterator[bytes]:
        me = _Subscriber()
        self._subscribers.add(me)
        service = call.client.service
        service.began_to_listen()
        loop = service.loop
        if self._pulse is None:
            self._pulse = loop.call_later(BEAT, self._beat, loop)
        models: object = None
        try:
            while True:
                me.changed, me.told = False, loop.time()
                known, models = models, self._report.engine.models
                yield self._report.line(models=models is not known)
                while True:
                    # A chain that was replaced lives as long as its calls: this one would keep it for ever.
                    if self._closed or call.chain is not service.chain:
                        return
                    await me.due.wait()
                    me.due.clear()
                    if me.wants_all(loop.time()):
                        break
                    yield SIGN_OF_LIFE
        finally:
            self._subscribers.discard(me)
            service.ended_listening()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._pulse = loop.call_later(BEAT, self._beat, loop) if self._subscribers else None
        for subscriber in self._subscribers:
            subscriber.due.set()

    def _wake(self, urgent: bool) -> None:
        if not self._subscribers:
            return
        calm = asyncio.get_running_loop().time() - GATHER
        for subscriber in self._subscribers:
            subscriber.changed = True
            if urgent or subscriber.told <= calm:
                subscriber.due.set()
