"""When Python's garbage is collected: never in full while calls are in flight.

What the start has left over is collected before the first connection is accepted. What is alive then (modules, the
chain, code) is frozen: no collection looks at it again. The young generations are collected as usual, in steps small
enough not to be felt (a millisecond at most). A full collection, which can stall every stream for tenths of a second,
happens only while no call is running; a process that is never idle makes an exception once its memory has grown by
GROWTH since the last one, because running out of memory ends every call.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.proxy.service import Service

log = logging.getLogger("tailrace")
YOUNG = 2000
MIDDLE = 10
NEVER = 1 << 30
LOOK = 1.0
GROWTH = 512 << 20


def tidy() -> None:
    """Collect what the start has left over; takes tenths of a second, so nobody may be served yet."""
    gc.collect()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


class Collection:
    """Takes over the collector of this process."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._handle: asyncio.TimerHandle | None = None
        self._resident = 0

    def start(self) -> None:
        """Freeze what there is, which takes no time, then look for idle moments."""
        gc.freeze()
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        self._resident = resident()
        self._look()

    def stop(self) -> None:
        """Leave the collector as it is from now on."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def due(self) -> bool:
        """Whether a full collection may, or must, happen now."""
        if not gc.get_count()[2]:
            return False
        if not self._service.active:
            return True
        return resident() - self._resident > GROWTH

    def _look(self) -> None:
        self._handle = self._service.loop.call_later(LOOK, self._look)
        if self.due():
            if self._service.active:
                log.warning("memory has grown by %d MiB with no idle moment: collecting garbage", GROWTH >> 20)
            gc.collect()
            self._resident = resident()


def resident() -> int:
    """Bytes of memory that this process occupies."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
