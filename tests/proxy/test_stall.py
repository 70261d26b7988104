"""The watch over the event loop: what it says of a stall."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from types import ModuleType

import pytest
from fakes import run
from tailrace.proxy.stall import LIMIT, Watchdog, place

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


def test_stall_is_told_with_the_plugin_it_happened_in(plugin: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    lags: list[float] = []

    async def body() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), lags.append)
        watchdog.start()
        await asyncio.sleep(0.05)
        plugin.blocking_lookup(LIMIT * 4)
        while max(lags) < LIMIT:
            await asyncio.sleep(0.01)
        watchdog.stop()

    with caplog.at_level(logging.WARNING, "tailrace"):
        run(body())
    (line,) = [record.getMessage() for record in caplog.records if "stood still" in record.getMessage()]
    assert "in acme_plugins.lookup.blocking_lookup (/acme/lookup.py:5)" in line


def test_stalls_that_follow_are_counted_not_told(caplog: pytest.LogCaptureFixture) -> None:
    lags: list[float] = []

    async def body() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), lags.append)
        watchdog.start()
        for number in range(1, 4):
            time.sleep(LIMIT * 2)
            while sum(lag >= LIMIT for lag in lags) < number:
                await asyncio.sleep(0.01)
        watchdog.stop()

    with caplog.at_level(logging.WARNING, "tailrace"):
        run(body())
    assert len([record for record in caplog.records if "stood still" in record.getMessage()]) == 1


def test_loop_that_runs_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Ticks that come when the clock says so are no stall; the clock is ours."""
    lags: list[float] = []
    now = [0.0]

    async def body() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), lags.append, clock=lambda: now[0])
        watchdog.start()
        while len(lags) < 3:
            await asyncio.sleep(0.01)
        watchdog.stop()

    run(body())
    assert lags == [0.0, 0.0, 0.0]
    assert not caplog.records


def test_innermost_frame_outside_core_and_library_is_named(plugin: ModuleType) -> None:
    assert place(plugin.frame()) == "in acme_plugins.lookup.frame (/acme/lookup.py:9)"
    assert place(None) == ""
    ours = place(sys._getframe())
    assert ours.startswith("in test_stall.test_innermost_frame_outside_core_and_library_is_named")
