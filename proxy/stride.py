"""The task of one request: begins at once and goes on in the very callback that brings what it waits for.

An asyncio.Task takes its first step, and every step after a wait, in a later turn of the event loop: two turns more a
request, each with a poll of the kernel. This task implementation steps directly. It follows what the Python
documentation asks of third-party tasks ("Extending asyncio": `_enter_task`, `_leave_task`), so `asyncio.timeout`,
futures, queues and locks work inside it as in any task.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.tasks import _enter_task, _leave_task, current_task
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Signal(Generic[T]):
    """One value or exception that one stride waits for; settling it resumes the stride before `set` returns."""

    __slots__ = ("_error", "_value", "settled", "stride")
    _value: T

    def __init__(self) -> None:
        self.settled = False
        self.stride: Stride | None = None
        self._error: BaseException | None = None

    def set(self, value: T) -> None:
        """Settle with a value; later calls change nothing."""
        if not self.settled:
            self.settled = True
            self._value = value
            if self.stride is not None:
                self.stride.resume()

    def fail(self, error: BaseException) -> None:
        """Settle with an exception."""
        if not self.settled:
            self.settled = True
            self._error = error
            if self.stride is not None:
                self.stride.resume()

    def __await__(self) -> Generator[Signal[T], None, T]:
        if not self.settled:
            yield self
        if self._error is not None:
            raise self._error
        return self._value


class Stride:
    """Drives one coroutine; has the part of asyncio.Task's interface that asyncio itself uses on a current task.

    The coroutine begins with the first `resume`, and runs in `context`, which is nobody else's.
    """

    __slots__ = (
        "__weakref__",
        "_cancels",
        "_coro",
        "_done",
        "_entered",
        "_loop",
        "_must_cancel",
        "_run",
        "_running",
        "_waits",
    )

    def __init__(
        self, coro: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: contextvars.Context
    ) -> None:
        self._coro = coro
        self._loop = loop
        self._waits: Signal[Any] | asyncio.Future[Any] | None = None
        self._cancels = 0
        self._must_cancel = False
        self._running = False
        self._entered = False
        self._done = False
        self._run = context.run

    def resume(self, error: BaseException | None = None) -> None:
        """Take a step; asked for while one is being taken it changes nothing: the step sees the result itself."""
        if self._running or self._done:
            return
        if self._must_cancel:
            self._must_cancel = False
            error = asyncio.CancelledError()
        self._waits = None
        loop = self._loop
        outer = current_task(loop)
        if outer is not None:
            _leave_task(loop, outer)
        _enter_task(loop, self)  # type: ignore[arg-type]
        self._running = True
        entered = self._entered
        try:
            if entered:
                waited = self._coro.send(None) if error is None else self._coro.throw(error)
            else:
                self._entered = True
                waited = self._run(self._coro.send, None) if error is None else self._run(self._coro.throw, error)
        except StopIteration:
            self._done = True
        except asyncio.CancelledError:
            self._done = True
        except Exception as failure:
            self._done = True
            loop.call_exception_handler({"message": "a request's coroutine failed", "exception": failure})
        else:
            self._waits = waited
            if isinstance(waited, Signal):
                waited.stride = self
            else:
                self._await_future(waited)
            if self._must_cancel and self._cancel_wait():
                self._must_cancel = False
        finally:
            self._running = False
            self._entered = entered
            _leave_task(loop, self)  # type: ignore[arg-type]
            if outer is not None:
                _enter_task(loop, outer)

    def within(self, work: Callable[..., object], *args: object) -> None:
        """Do some of the coroutine's own work outside its steps, in its context; a context is entered only once."""
        if self._entered:
            work(*args)
            return
        self._entered = True
        try:
            self._run(work, *args)
        finally:
            self._entered = False

    def _await_future(self, waited: asyncio.Future[Any] | None) -> None:
        if waited is None:  # asyncio.sleep(0) and bare yields: one turn of the loop
            self._loop.call_soon(self.resume)
        else:
            waited._asyncio_future_blocking = False
            waited.add_done_callback(self._woken)

    def _woken(self, future: asyncio.Future[Any]) -> None:
        if self._waits is future:
            self.resume()

    def _cancel_wait(self) -> bool:
        """End the present wait by a cancellation."""
        waits = self._waits
        if isinstance(waits, Signal):
            waits.stride = None
            self._loop.call_soon(self._resume_cancelled, waits)
            return True
        return waits is not None and waits.cancel()

    def _resume_cancelled(self, waits: Signal[Any]) -> None:
        if self._waits is waits:
            self.resume(asyncio.CancelledError())

    # What asyncio asks of a task.

    def cancel(self, msg: object = None) -> bool:
        """Throw CancelledError into the coroutine; False if it has ended."""
        if self._done:
            return False
        self._cancels += 1
        if self._running or not self._cancel_wait():
            self._must_cancel = True
        return True

    def cancelling(self) -> int:
        """How many cancellations are pending."""
        return self._cancels

    def uncancel(self) -> int:
        """Take one cancellation back."""
        self._cancels = max(0, self._cancels - 1)
        return self._cancels

    def done(self) -> bool:
        """Whether the coroutine has ended."""
        return self._done

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop it runs on."""
        return self._loop

    def get_name(self) -> str:
        """A name for debugging."""
        return f"request-{id(self):x}"

    def get_coro(self) -> Coroutine[Any, Any, None]:
        """The coroutine it drives."""
        return self._coro
