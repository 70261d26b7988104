"""The state feed: one long answer of JSON lines to each gateway, a line at once, on every change, and as a heartbeat.

Changes are gathered for a tenth of a second, but whether calls may come is told in the same moment. A subscriber that
does not read holds nothing: its next line is made when it takes one, from the state of that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.reply import Reply
from tailrace.proxy.watch.feed import MEDIA
from tailrace.worker.report import Report

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

GATHER = 0.1
HEARTBEAT = 0.5
MOST = 256
"""Subscribers at once: every process of every gateway is one."""


class _Subscriber:
    __slots__ = ("urgent", "woken")

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.urgent = asyncio.Event()

    async def wait(self) -> None:
        """Return when another line is due, counted from now."""
        loop = asyncio.get_running_loop()
        sent = loop.time()
        await _within(self.woken, HEARTBEAT)
        left = sent + GATHER - loop.time()
        if left > 0:
            await _within(self.urgent, left)
        self.woken.clear()
        self.urgent.clear()


class StateFeed:
    """Tells every subscriber what the report says."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._subscribers: set[_Subscriber] = set()
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
        told: object = None
        try:
            while True:
                models = self._report.engine.models
                yield self._report.line(models=models is not told)
                told = models
                # A chain that was replaced lives as long as its calls: this one would keep it for ever.
                if self._closed or call.chain is not service.chain:
                    return
                await me.wait()
        finally:
            self._subscribers.discard(me)
            service.ended_listening()

    def _wake(self, urgent: bool) -> None:
        for subscriber in self._subscribers:
            subscriber.woken.set()
            if urgent:
                subscriber.urgent.set()


async def _within(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
