"""Wakes the event loop at a given moment, to the microseconds that the kernel can give.

An event loop's own timers count in milliseconds, which would put up to one of them into every latency
that is counted from a scheduled time; a timerfd does not.
"""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
_NS = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("interval", _Timespec), ("value", _Timespec)]


_libc = ctypes.CDLL(None, use_errno=True)


class Alarm:
    """Calls `ring` once the clock of `time.monotonic_ns` has passed the time that was set last. Linux only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._timer: int = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        loop.add_reader(self._timer, self._on_ready)

    def set(self, moment: int) -> None:
        """Ring at `moment`, soon if that is past, and no longer at the moment set before."""
        seconds, nanoseconds = divmod(max(moment, 1), _NS)
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        if _libc.timerfd_settime(self._timer, _ABSOLUTE, ctypes.byref(spec), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def close(self) -> None:
        self._loop.remove_reader(self._timer)
        os.close(self._timer)

    def _on_ready(self) -> None:
        try:
            os.read(self._timer, 8)
        except BlockingIOError:  # it was set anew since the kernel reported it
            return
        self._ring()


class Heartbeat:
    """Beats on a fixed grid and notes how late each beat was: how late anything else in this loop was.

    A stall is charged to every beat that it swallowed, or one long stall would count as one sample.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, period: int, beat: Callable[[int], None]) -> None:
        self.lags: list[int] = []
        self._period = period
        self._beat = beat
        self._due = time.monotonic_ns() + period
        self._alarm = Alarm(loop, self._on_alarm)
        self._alarm.set(self._due)

    def close(self) -> None:
        self._alarm.close()

    def _on_alarm(self) -> None:
        now = time.monotonic_ns()
        self._due = missed_beats(self._due, now, self._period, self.lags)
        self._alarm.set(self._due)
        self._beat(now)


def missed_beats(due: int, now: int, period: int, lags: list[int]) -> int:
    """Note the lag of each beat that was due by `now`; returns when the next one is."""
    while due <= now:
        lags.append(now - due)
        due += period
    return due
