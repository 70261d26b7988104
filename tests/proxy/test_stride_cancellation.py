"""Cancellation of a request's task, and limits on its waits."""

from __future__ import annotations

import asyncio

import pytest
from fakes import run
from strides import stride, turns
from tailrace.proxy.signal import Signal


@pytest.mark.parametrize("waits_for", ["signal", "future", "sleep"])
def test_asyncio_timeout(waits_for):
    seen = []

    async def work():
        waits = {
            "signal": Signal,
            "future": asyncio.get_running_loop().create_future,
            "sleep": lambda: asyncio.sleep(9),
        }
        try:
            async with asyncio.timeout(0.01):
                await waits[waits_for]()
        except TimeoutError:
            seen.append("timeout")
        async with asyncio.timeout(1):
            await asyncio.sleep(0)
        seen.append("on")

    async def body():
        task = stride(work())
        await asyncio.sleep(0.05)
        assert (seen, task.done(), task.cancelling()) == (["timeout", "on"], True, 0)

    run(body())


def test_timeout_that_does_not_pass_leaves_no_cancellation():
    async def work(signal, seen):
        async with asyncio.timeout(5):
            seen.append(await signal)
        await asyncio.sleep(0)
        seen.append("end")

    async def body():
        signal, seen = Signal(), []
        task = stride(work(signal, seen))
        signal.set(1)
        await turns()
        assert (seen, task.cancelling()) == ([1, "end"], 0)

    run(body())


def test_outer_cancellation_is_no_timeout():
    seen = []

    async def work():
        try:
            async with asyncio.timeout(5):
                await Signal()
        except TimeoutError:
            seen.append("timeout")
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def body():
        task = stride(work())
        assert task.cancel()
        await turns()
        assert (seen, task.done()) == (["cancelled"], True)
        assert not task.cancel()

    run(body())


@pytest.mark.parametrize("waits_for", ["signal", "future", "turn", "done future"])
def test_cancellation(waits_for):
    """Thrown in at whatever is awaited, once, after the present step of whoever cancels."""
    seen = []

    async def work(waits):
        try:
            await waits
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise

    async def body():
        future = asyncio.get_running_loop().create_future()
        waits = {"signal": Signal(), "future": future, "done future": future}.get(waits_for) or asyncio.sleep(0)
        task = stride(work(waits))
        if waits_for == "done future":
            future.set_result(None)
        task.cancel()
        assert seen == []
        await turns(5)
        assert (seen, task.done()) == (["cancelled", "cleaned up"], True)
        if waits_for == "signal":
            waits.set("too late")

    run(body())


def test_a_signal_that_settles_behind_a_cancellation_changes_nothing():
    seen = []

    async def work(signal):
        try:
            seen.append(await signal)
        except asyncio.CancelledError:
            seen.append("cancelled")

    async def body():
        signal = Signal()
        task = stride(work(signal))
        task.cancel()
        signal.set(1)
        await turns()
        assert (seen, task.done()) == (["cancelled"], True)

    run(body())


def test_cancelled_by_its_own_step():
    seen = []

    async def work():
        asyncio.current_task().cancel()
        seen.append("goes on")
        try:
            await Signal()
        except asyncio.CancelledError:
            seen.append("cancelled")

    async def body():
        task = stride(work())
        await turns()
        assert (seen, task.done()) == (["goes on", "cancelled"], True)

    run(body())


def test_swallowed_cancellation_goes_on():
    async def work(signal, seen):
        try:
            await Signal()
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
        seen.append(await signal)

    async def body():
        signal, seen = Signal(), []
        task = stride(work(signal, seen))
        task.cancel()
        await turns()
        signal.set(2)
        assert (seen, task.done(), task.cancelling()) == ([2], True, 0)

    run(body())


def test_cancelled_twice_in_one_wait_is_thrown_in_once():
    seen = []

    async def work(first, second):
        try:
            await first
        except asyncio.CancelledError:
            seen.append("cancelled")
        seen.append(await second)

    async def body():
        first, second = Signal(), Signal()
        task = stride(work(first, second))
        task.cancel()
        task.cancel()
        await turns()
        assert not task.done()
        second.set("on")
        assert (seen, task.done(), task.cancelling()) == (["cancelled", "on"], True, 2)

    run(body())
