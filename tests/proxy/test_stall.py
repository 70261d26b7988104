"""The watch over the event loop: what it says of a stall."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType

import pytest
from fakes import run
from tailrace.proxy.stall import LIMIT, QUIET, STARVED, Watchdog, place

PLUGIN = """
import time

def blocking_lookup(seconds):
    time.sleep(seconds)

def frame():
    import sys
    return sys._getframe()
"""


@pytest.fixture
def plugin() -> ModuleType:
    module = ModuleType("acme_plugins.lookup")
    exec(compile(PLUGIN, "/acme/lookup.py", "exec"), module.__dict__)
    return module


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "stood still" in record.getMessage()]


def test_stall_is_told_with_the_plugin_it_happened_in(plugin: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        watchdog = Watchdog(asyncio.get_running_loop())
        watchdog.start()
        await asyncio.sleep(0.05)
        plugin.blocking_lookup(LIMIT * 4)
        while not told(caplog):
            await asyncio.sleep(0.01)
        watchdog.stop()

    run(body())
    (line,) = told(caplog)
    assert "in acme_plugins.lookup.blocking_lookup (/acme/lookup.py:5)" in line


class Late:
    """A clock that is behind by what is asked each time it is looked at after a tick was due."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looked = 0

    def __call__(self) -> float:
        self.looked += 1
        return self.now

    async def stall(self, seconds: float) -> None:
        """Let so many seconds pass, and the loop's next tick see it."""
        self.now += seconds
        looked = self.looked
        # The thread looks as well: three looks hold a tick.
        while self.looked < looked + 6:
            await asyncio.sleep(0.01)


def test_stalls_that_follow_are_counted_and_told_later(caplog: pytest.LogCaptureFixture) -> None:
    clock = Late()

    async def body() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), clock=clock, used=lambda: clock.now)
        watchdog.start()
        for _ in range(3):
            await clock.stall(LIMIT * 2)
        assert len(told(caplog)) == 1
        await clock.stall(QUIET)
        watchdog.stop()

    run(body())
    first, second = told(caplog)
    assert "more since" not in first
    assert "(2 more since the last such line)" in second


def test_a_machine_that_is_busy_elsewhere_is_blamed_only_where_it_matters(caplog: pytest.LogCaptureFixture) -> None:
    clock = Late()

    async def body() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), clock=clock, used=lambda: 0.0)
        watchdog.start()
        for _ in range(3):
            await clock.stall(STARVED / 2)
        assert not told(caplog)
        await clock.stall(STARVED * 2)
        watchdog.stop()

    run(body())
    (line,) = told(caplog)
    assert "for want of processor time" in line
    assert "more since" not in line


def test_loop_that_runs_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Ticks that come when the clock says so are no stall; the clock stands still here."""
    clock = Late()

    async def body() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), clock=clock)
        watchdog.start()
        while clock.looked < 12:
            await asyncio.sleep(0.01)
        watchdog.stop()

    run(body())
    assert not told(caplog)


def test_innermost_frame_outside_core_and_library_is_named(plugin: ModuleType) -> None:
    assert place(plugin.frame()) == "in acme_plugins.lookup.frame (/acme/lookup.py:9)"
    assert place(None) == ""
    ours = place(sys._getframe())
    assert ours.startswith("in test_stall.test_innermost_frame_outside_core_and_library_is_named")
