"""Reading beside the loop, for so long: a file may lie on a mount that hangs, and nothing else is to wait for that.

Each in a thread that keeps neither the loop nor the program from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
LIMIT: Final = 2.0
"""Seconds that a file is waited for."""


class Beside(Generic[T]):
    """Does one and the same work, whenever asked, never twice at once; what it raises is what it gives."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._out: asyncio.Future[T] | None = None

    async def ask(self) -> T:
        """What the work gives; raises TimeoutError, and then waits for the same again when asked again."""
        out = self._out
        if out is None:
            out = self._out = asyncio.get_running_loop().create_future()
            threading.Thread(target=_do, args=(self._work, out), daemon=True).start()
        await asyncio.wait((out,), timeout=LIMIT)
        if not out.done():
            raise TimeoutError
        self._out = None
        return out.result()


def in_time(work: Callable[[], T]) -> T:
    """The same for whoever has no loop: what the work gives; raises TimeoutError."""
    given: list[T] = []
    raised: list[BaseException] = []

    def do() -> None:
        try:
            given.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    thread.join(LIMIT)
    if raised:
        raise raised[0]
    if not given:
        raise TimeoutError
    return given[0]


def _do(work: Callable[[], T], out: asyncio.Future[T]) -> None:
    given: Any = None
    raised: BaseException | None = None
    try:
        given = work()
    except BaseException as error:
        raised = error
    with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
        out.get_loop().call_soon_threadsafe(_tell, out, given, raised)


def _tell(out: asyncio.Future[Any], given: Any, raised: BaseException | None) -> None:
    if out.cancelled():
        return
    if raised is None:
        out.set_result(given)
    else:
        out.set_exception(raised)
        out.exception()  # whoever waited may have gone: that is no news
