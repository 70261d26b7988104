"""One timer for the budgets of all calls: those due at about the same time share a slot, and most leave it long before.

A timer of its own for each call costs several times as much as all else that its budget takes. What is due within
SOON is kept to within FINE, what is due later to within COARSE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace.proxy.call import Call

FINE: Final = 2_000_000
COARSE: Final = 50_000_000
SOON: Final = 2_000_000_000
_S: Final = 1e-9


class Alarms:
    """Calls by the slot in which they are due; slots are moments in monotonic nanoseconds."""

    def __init__(self, clock: Callable[[], int], ring: Callable[[Call], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._slots: dict[int, dict[Call, int]] = {}
        self._order: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0

    def set(self, call: Call, due_ns: int, now_ns: int) -> int:
        """Have `ring` called when a call is due, never before; gives the slot for `drop`."""
        grain = FINE if due_ns - now_ns < SOON else COARSE
        slot = (due_ns // grain + 1) * grain
        calls = self._slots.get(slot)
        if calls is None:
            calls = self._slots[slot] = {}
            heappush(self._order, slot)
            if self._timer is None or slot < self._next:
                self._arm(call.client.loop, slot, now_ns)
        calls[call] = slot
        return slot

    def drop(self, call: Call, slot: int) -> None:
        """It does not matter any more; any number of times."""
        calls = self._slots.get(slot)
        if calls is not None and calls.get(call) is not None:
            # The slot stays, if empty, until its moment: the next call for it would enter it in the order once more.
            del calls[call]

    def _arm(self, loop: asyncio.AbstractEventLoop, slot: int, now_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = slot
        self._timer = loop.call_later(max(0.0, (slot - now_ns) * _S), self._due, loop)

    def _due(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = self._clock()
        order, slots = self._order, self._slots
        over: list[Call] = []
        while order and (order[0] <= now or not slots[order[0]]):
            over.extend(slots.pop(heappop(order)))
        # Before anybody is told: whose call ends may have another one come at once, which is due much later.
        if order:
            self._arm(loop, order[0], now)
        for call in over:
            self._ring(call)

    def stop(self) -> None:
        """Nothing is due any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.clear()
        self._order.clear()
