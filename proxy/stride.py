"""The task of one request: begins at once and goes on in the very callback that brings what it waits for.

An asyncio.Task takes its first step, and every step after a wait, in a later turn of the event loop: two turns more a
request, each with a poll of the kernel. This task implementation steps directly. It follows what the Python
documentation asks of third-party tasks ("Extending asyncio": `_enter_task`, `_leave_task`) and answers what libraries
ask of a current task, so that whatever runs in an asyncio.Task runs in it: timeouts, task groups, anyio, aiohttp.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.tasks import _enter_task, _leave_task, current_task
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from tailrace.proxy.signal import Signal
from tailrace.proxy.tasklike import Asked, Tasklike

T = TypeVar("T")


class Apart(Generic[T]):
    """`await Apart(coroutine)`: the stride itself drives it, not the coroutine that waits.

    For code of plugins: a compiled coroutine hands a cancellation on to what it awaits while it still counts as being
    handled, for that code to find in `sys.exc_info()`.
    """

    __slots__ = ("coro",)

    def __init__(self, coro: Coroutine[Any, Any, T]) -> None:
        self.coro = coro

    def __await__(self) -> Generator[Apart[T], T, T]:
        return (yield self)


class Stride(Tasklike):
    """Drives one coroutine, from the first `resume` to its end, in `context`, which is nobody else's."""

    __slots__ = (
        "_apart",
        "_asked",
        "_coro",
        "_done",
        "_entered",
        "_loop",
        "_must_cancel",
        "_run",
        "_running",
        "_waits",
    )
    _coro: Coroutine[Any, Any, None]
    _loop: asyncio.AbstractEventLoop
    _done: bool
    _asked: Asked | None

    def __init__(
        self, coro: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: contextvars.Context
    ) -> None:
        self._coro = coro
        self._loop = loop
        self._done = False
        self._apart: Coroutine[Any, Any, Any] | None = None
        self._asked = None
        self._waits: Signal[Any] | asyncio.Future[Any] | None = None
        self._must_cancel = False
        self._running = False
        self._entered = False
        self._run = context.run

    def resume(self, error: BaseException | None = None) -> None:
        """Take a step; asked for while one is being taken it changes nothing: the step sees the result itself."""
        if self._running or self._done:
            return
        if self._must_cancel:
            self._must_cancel = False
            if not isinstance(error, asyncio.CancelledError):
                error = self._cancellation()
        self._waits = None
        loop = self._loop
        outer: asyncio.Task[Any] | None = None
        try:
            _enter_task(loop, self)  # type: ignore[arg-type]
        except RuntimeError:
            # A step taken from within another task, which is the current one again afterwards.
            outer = current_task(loop)
            if outer is not None:
                _leave_task(loop, outer)
            _enter_task(loop, self)  # type: ignore[arg-type]
        self._running = True
        entered = self._entered
        try:
            if entered:
                waited = self._step(error)
            else:
                self._entered = True
                waited = self._run(self._step, error)
        except StopIteration:
            self._done = True
            if self._asked is not None:
                self._end(None)
        except asyncio.CancelledError as cancelled:
            self._done = True
            self._end(cancelled)
        except Exception as failure:
            self._done = True
            self._end(failure)
            loop.call_exception_handler({"message": "a request's coroutine failed", "exception": failure})
        except BaseException as leaving:
            self._done = True
            self._end(leaving)
            raise
        else:
            if isinstance(waited, Signal):
                self._waits = waited
                waited.stride = self
            else:
                self._await_future(waited)
            if self._must_cancel and self._cancel_wait(None if self._asked is None else self._asked.message):
                self._must_cancel = False
        finally:
            self._running = False
            self._entered = entered
            _leave_task(loop, self)  # type: ignore[arg-type]
            if outer is not None:
                _enter_task(loop, outer)

    def _step(self, error: BaseException | None) -> Any:
        """Go on with what runs apart, if anything does; what comes of it goes to the coroutine that waits for it."""
        value: Any = None
        while True:
            apart = self._apart
            if apart is None:
                waited = self._coro.send(value) if error is None else self._coro.throw(error)
            else:
                try:
                    waited = apart.send(None) if error is None else apart.throw(error)
                except StopIteration as end:
                    value, error, self._apart = end.value, None, None
                    continue
                except BaseException as raised:
                    value, error, self._apart = None, raised, None
                    continue
            if not isinstance(waited, Apart):
                return waited
            value, error, self._apart = None, None, waited.coro

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

    def _await_future(self, waited: Any) -> None:
        if waited is None:  # asyncio.sleep(0) and bare yields: one turn of the loop
            self._loop.call_soon(self.resume)
        elif (wrong := self._misuse(waited)) is not None:
            self._loop.call_soon(self.resume, RuntimeError(wrong))
        else:
            self._waits = waited
            waited._asyncio_future_blocking = False
            waited.add_done_callback(self._woken)

    def _misuse(self, waited: Any) -> str | None:
        """Why what the coroutine waits for can never wake it."""
        blocking = getattr(waited, "_asyncio_future_blocking", None)
        if blocking is None:
            return f"a request cannot wait for {waited!r}: it is not of asyncio"
        if waited is self:
            return "a request cannot wait for itself"
        if waited.get_loop() is not self._loop:
            return f"a request cannot wait for {waited!r}: it belongs to another event loop"
        return None if blocking else f"{waited!r} was yielded, not awaited"

    def _woken(self, future: asyncio.Future[Any]) -> None:
        if self._waits is future:
            self.resume()

    @property
    def _fut_waiter(self) -> asyncio.Future[Any] | None:
        """By this name anyio knows what a task waits for."""
        waits = self._waits
        return None if isinstance(waits, Signal) else waits

    def cancel(self, msg: object = None) -> bool:
        """Throw CancelledError into the coroutine; False if it has ended."""
        if self._done:
            return False
        asked = self._ask()
        asked.cancels += 1
        asked.message = msg
        if self._running or not self._cancel_wait(msg):
            self._must_cancel = True
        return True

    def _cancel_wait(self, message: object) -> bool:
        """End the present wait by a cancellation."""
        waits = self._waits
        if isinstance(waits, Signal):
            waits.stride = None
            self._loop.call_soon(self._resume_cancelled, waits)
            return True
        return waits is not None and waits.cancel(msg=message)

    def _resume_cancelled(self, waits: Signal[Any]) -> None:
        if self._waits is waits:
            self.resume(self._cancellation())
