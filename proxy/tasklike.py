"""What asyncio, and libraries built on it, ask of a task that is not theirs to step: result, callbacks, name, stack.

Nearly every request ends without being asked any of this, so what answers it is made when somebody asks.
"""

from __future__ import annotations

import asyncio
import contextvars
import traceback
from collections.abc import Callable, Coroutine, Generator
from types import FrameType
from typing import Any, TextIO


class Asked:
    """What a task keeps only once somebody has asked for it, or cancelled it."""

    __slots__ = ("blocking", "callbacks", "cancelled", "cancels", "error", "message", "name")

    def __init__(self) -> None:
        self.blocking = False
        self.callbacks: list[tuple[Callable[[Any], object], contextvars.Context | None]] = []
        self.cancelled = False
        self.cancels = 0
        self.error: BaseException | None = None
        self.message: object = None
        self.name = ""


class Tasklike:
    """A task to whoever looks at it, waits for it or is told of its end; its subclass takes the steps.

    No slots here: weak references, which anyio keeps of tasks, need it also where the subclass is compiled.
    """

    _coro: Coroutine[Any, Any, None]
    _loop: asyncio.AbstractEventLoop
    _done: bool
    _asked: Asked | None

    def _ask(self) -> Asked:
        asked = self._asked
        if asked is None:
            asked = self._asked = Asked()
        return asked

    def _end(self, error: BaseException | None) -> None:
        """Note how the coroutine ended, and tell who wants to know."""
        asked = self._ask()
        asked.error = error
        asked.cancelled = isinstance(error, asyncio.CancelledError)
        callbacks, asked.callbacks = asked.callbacks, []
        for callback, context in callbacks:
            self._loop.call_soon(callback, self, context=context)

    def _cancellation(self) -> asyncio.CancelledError:
        """The exception of the latest `cancel`, with its message."""
        message = None if self._asked is None else self._asked.message
        return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)

    def done(self) -> bool:
        """Whether the coroutine has ended."""
        return self._done

    def cancelled(self) -> bool:
        """Whether it ended by a cancellation."""
        return self._done and self._asked is not None and self._asked.cancelled

    def cancelling(self) -> int:
        """How many cancellations are pending."""
        return 0 if self._asked is None else self._asked.cancels

    def uncancel(self) -> int:
        """Take one cancellation back."""
        asked = self._asked
        if asked is None:
            return 0
        asked.cancels = max(0, asked.cancels - 1)
        return asked.cancels

    def exception(self) -> BaseException | None:
        """What the coroutine failed with; raises CancelledError where it was cancelled."""
        if not self._done:
            raise asyncio.InvalidStateError("the request has not ended")
        asked = self._asked
        if asked is None:
            return None
        if asked.cancelled and asked.error is not None:
            raise asked.error
        return asked.error

    def result(self) -> None:
        """Nothing, or the exception that the coroutine ended with, raised."""
        error = self.exception()
        if error is not None:
            raise error

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Have `callback` called, in the loop's next turn, once it has ended."""
        context = contextvars.copy_context() if context is None else context
        if self._done:
            self._loop.call_soon(callback, self, context=context)
        else:
            self._ask().callbacks.append((callback, context))

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Take a callback back; how often it was there."""
        asked = self._asked
        if asked is None:
            return 0
        kept = [entry for entry in asked.callbacks if entry[0] != callback]
        removed = len(asked.callbacks) - len(kept)
        asked.callbacks = kept
        return removed

    @property
    def _asyncio_future_blocking(self) -> bool:
        """By this name asyncio knows what can be awaited like a future."""
        return self._asked is not None and self._asked.blocking

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, blocking: bool) -> None:
        self._ask().blocking = blocking

    def __await__(self) -> Generator[Any, None, None]:
        if not self._done:
            self._ask().blocking = True
            yield self
        self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop it runs on."""
        return self._loop

    def get_coro(self) -> Coroutine[Any, Any, None]:
        """The coroutine it drives."""
        return self._coro

    def get_name(self) -> str:
        """A name for debugging."""
        name = "" if self._asked is None else self._asked.name
        return name or f"request-{id(self):x}"

    def set_name(self, name: object) -> None:
        """Give it another name."""
        self._ask().name = str(name)

    def get_stack(self, *, limit: int | None = None) -> list[FrameType]:
        """The frame in which the coroutine stands, if it has not ended."""
        frame = getattr(self._coro, "cr_frame", None)
        return [] if frame is None or limit == 0 else [frame]

    def print_stack(self, *, limit: int | None = None, file: TextIO | None = None) -> None:
        """Print where the coroutine stands."""
        for frame in self.get_stack(limit=limit):
            traceback.print_stack(frame, limit, file)

    def __repr__(self) -> str:
        return f"<{self.get_name()} {'ended' if self._done else 'running'}>"
