"""How much of a stream's usage the client's kernel has taken: what is billed when the client, or this process, is gone.

Before each write it is asked how much of the earlier ones still waits here. A client that keeps up has all of them, so
the usage of the last one is told; for one that lags behind, it is kept with the place in the stream where it stood.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.proxy.fault import FAILURES
from tailrace.proxy.mishap import note
from tailrace.proxy.outcome import Usage

if TYPE_CHECKING:
    import asyncio

    from tailrace.proxy.call import Call
    from tailrace.proxy.harvest import Harvest

Numbers = tuple[int, int, int, bool]
Hook = Callable[["Call", Usage], None]


class Delivery:
    """The account of one stream; a Usage told to the hooks is only good until the next one.

    Over TLS what waits behind the encryption, a socket's buffer at most, counts as taken.
    """

    __slots__ = ("_behind", "_call", "_harvest", "_hooks", "_last", "_told", "_transport", "taken")

    def __init__(self, call: Call, harvest: Harvest, transport: asyncio.Transport, hooks: tuple[Hook, ...]) -> None:
        self._call = call
        self._harvest = harvest
        self._transport = transport
        self._hooks = hooks
        self._told = Usage()
        self._last: Numbers = (0, 0, 0, False)
        self._behind: deque[tuple[int, Numbers]] = deque()
        self.taken = 0
        """Bytes of the answer's body that were handed to the kernel, its framing included."""

    def moved(self, written: int) -> None:
        """More is about to be written; so far `written` bytes of the answer's body were."""
        waiting = self._transport.get_write_buffer_size()
        if waiting:
            self._behind.append((written, self._last))
            self.taken = taken = max(self.taken, written - waiting)
            last: Numbers | None = None
            while self._behind and self._behind[0][0] <= taken:
                last = self._behind.popleft()[1]
            if last is not None:
                self._tell(last)
        else:
            self.taken = written
            if self._behind:
                self._behind.clear()
            self._tell(self._last)
        harvest = self._harvest
        pieces = harvest.pieces
        self._last = (harvest.prompt, harvest.completion + pieces, harvest.cached, pieces > 0)

    def _tell(self, numbers: Numbers) -> None:
        told = self._told
        told.prompt, told.completion, told.cached, told.estimated = numbers
        if told.prompt or told.completion:
            for hook in self._hooks:
                try:
                    hook(self._call, told)
                except FAILURES as error:
                    note(self._call, self._call.chain.pipeline.owners[hook].name, "on_usage", error)
                    self._hooks = tuple([other for other in self._hooks if other is not hook])

    def end(self) -> Usage | None:
        """What the client has taken of an answer that it left, None where that is nothing."""
        last = self._told if self._behind else Usage(*self._last)
        return last if last.prompt or last.completion else None
