"""Notices when the event loop stands still, and says in whose code.

The loop ticks every TICK; a thread looks whether it did. A stall of LIMIT or more is logged with the innermost frame of
the loop's thread at that moment and the plugin it lies in, at most once in QUIET seconds. Code that holds the
interpreter's lock hides its frame from the thread; its length is then still known from the tick that came late.
Where no code was seen and the loop's thread has hardly used the processor, nobody's code is to blame: the machine was
busy with something else, or asleep. That is worth a line only from STARVED on.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

log = logging.getLogger("tailrace")
TICK = 0.025
LIMIT = 0.05
QUIET = 10.0
STARVED = 0.5
_CORE = "tailrace.proxy"
_WAITING = frozenset({"asyncio.runners", "asyncio.base_events", "selectors"})
"""Where a loop's thread stands while it has nothing to do."""


class Watchdog:
    """Watches the loop it is started on; `clock` counts the seconds, `used` those that its thread has computed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.thread_time,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._used = used
        self._used_before = 0.0
        self._due = 0.0
        self._seen = ""
        self._told = float("-inf")
        self._untold = 0
        self._handle: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stall", daemon=True)

    def start(self) -> None:
        """Begin; call it in the loop's own thread."""
        self._ident = threading.get_ident()
        self._used_before = self._used()
        self._due = self._clock() + TICK
        self._handle = self._loop.call_later(TICK, self._tick)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        if self._handle is not None:
            self._handle.cancel()
        self._stopped.set()
        self._thread.join()

    def _tick(self) -> None:
        late, used = self._clock() - self._due, self._used()
        if late >= LIMIT:
            starved = not self._seen and used - self._used_before < late / 2
            if not starved:
                self._tell(late, self._seen or "in code that could not be looked at")
            elif late >= STARVED:
                self._tell(late, "for want of processor time: the machine was busy with something else, or asleep")
        self._seen, self._used_before = "", used
        self._due = self._clock() + TICK
        self._handle = self._loop.call_later(TICK, self._tick)

    def _tell(self, late: float, where: str) -> None:
        now = self._clock()
        if now - self._told < QUIET:
            self._untold += 1
            return
        more = f" ({self._untold} more since the last such line)" if self._untold else ""
        log.warning("the event loop stood still for %.0f ms %s%s", late * 1000, where, more)
        self._told, self._untold = now, 0

    def _watch(self) -> None:
        while not self._stopped.wait(TICK):
            if not self._seen and self._clock() - self._due >= LIMIT:
                self._seen = place(sys._current_frames().get(self._ident))


def place(frame: FrameType | None) -> str:
    """Where a stack stands, in words: its innermost frame, and the innermost one outside core and library."""
    if frame is None or _module(frame) in _WAITING:
        return ""
    innermost = _shown(frame)
    walk: FrameType | None = frame
    while walk is not None:
        module = _module(walk)
        if not module.startswith(_CORE) and module.partition(".")[0] not in sys.stdlib_module_names:
            return f"in {_shown(walk)}" if walk is frame else f"in {_shown(walk)}, at {innermost}"
        walk = walk.f_back
    return f"in {innermost}"


def _module(frame: FrameType) -> str:
    """A frame's module; the one that was started with `-m` calls itself by another name."""
    spec = frame.f_globals.get("__spec__")
    return str(frame.f_globals.get("__name__", "?") if spec is None else spec.name)


def _shown(frame: FrameType) -> str:
    code = frame.f_code
    return f"{_module(frame)}.{code.co_qualname} ({code.co_filename}:{frame.f_lineno})"
