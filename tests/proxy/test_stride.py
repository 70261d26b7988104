"""The request's task: steps at once, and is a task to everything in asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import itertools

from fakes import run
from strides import stride, turns
from tailrace.proxy.signal import Signal

VAR: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="outside")


def test_begins_at_once():
    seen = []

    async def work():
        seen.append(1)

    async def body():
        task = stride(work())
        assert seen == [1]
        assert task.done()

    run(body())


def test_a_signal_resumes_before_set_returns():
    seen = []

    async def work(signal):
        seen.append(await signal)

    async def body():
        signal = Signal()
        task = stride(work(signal))
        signal.set("value")
        assert seen == ["value"]
        signal.set("later")
        signal.fail(ValueError())
        assert task.done()

    run(body())


def test_a_settled_signal_does_not_wait():
    async def work(good, bad):
        seen.append(await good)
        try:
            await bad
        except ValueError:
            seen.append("bad")

    async def body():
        good, bad = Signal(), Signal()
        good.set(1)
        bad.fail(ValueError("bad"))
        assert stride(work(good, bad)).done()
        assert seen == [1, "bad"]

    seen = []
    run(body())


def test_a_failed_signal_raises_where_it_is_awaited():
    seen = []

    async def work(signal):
        try:
            await signal
        except KeyError as error:
            seen.append(error.args)

    async def body():
        signal = Signal()
        task = stride(work(signal))
        signal.fail(KeyError("x"))
        assert (seen, task.done()) == ([("x",)], True)

    run(body())


def test_futures_tasks_queues_locks_and_sleeps():
    seen = []

    async def work(queue, lock, event):
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        seen.append(await queue.get())
        async with lock:
            seen.append("lock")
        await event.wait()
        seen.append(await asyncio.create_task(asyncio.sleep(0, "task")))
        seen.append(await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2)))
        seen.append(await asyncio.to_thread(lambda: "thread"))
        done.set_result(None)

    async def body():
        nonlocal done
        done = asyncio.get_running_loop().create_future()
        queue, lock, event = asyncio.Queue(), asyncio.Lock(), asyncio.Event()
        await lock.acquire()
        stride(work(queue, lock, event))
        await asyncio.sleep(0.005)
        queue.put_nowait("item")
        await turns()
        lock.release()
        await turns()
        event.set()
        await done
        assert seen == ["item", "lock", "task", [1, 2], "thread"]

    done = None
    run(body())


def test_is_the_current_task_of_its_own_steps_only():
    async def inner(signal, seen):
        seen.append(asyncio.current_task())
        await signal
        seen.append(asyncio.current_task())

    async def body():
        signal, seen = Signal(), []
        outer = asyncio.current_task()
        task = stride(inner(signal, seen))
        assert asyncio.current_task() is outer
        signal.set(None)
        assert asyncio.current_task() is outer
        assert seen == [task, task]

    run(body())


def test_context_is_its_own():
    seen = []

    async def work(signal):
        VAR.set("inside")
        await signal
        seen.append(VAR.get())
        await asyncio.sleep(0)
        seen.append(VAR.get())

    async def body():
        VAR.set("caller")
        signal = Signal()
        stride(work(signal))
        assert VAR.get() == "caller"
        signal.set(None)
        await turns()
        assert (VAR.get(), seen) == ("caller", ["inside", "inside"])

    run(body())


def test_context_comes_from_the_creator():
    seen = []

    async def work():
        seen.append(VAR.get())

    async def body():
        VAR.set("creator")
        stride(work())
        assert seen == ["creator"]

    run(body())


def test_one_stride_wakes_another_and_itself_meanwhile():
    """A step that settles what the waker waits for next is seen by the waker, not run inside it."""
    seen = []

    async def first(ping, pong):
        await ping
        seen.append("first")
        pong.set(None)
        seen.append("first again")

    async def second(ping, pong):
        ping.set(None)
        seen.append("second")
        await pong
        seen.append("second again")

    async def body():
        ping, pong = Signal(), Signal()
        stride(first(ping, pong))
        stride(second(ping, pong))
        assert seen == ["first", "first again", "second", "second again"]

    run(body())


def test_deep_chain_of_wakes():
    async def link(mine, following, seen):
        await mine
        seen.append(len(seen))
        following.set(None)

    async def body():
        signals, seen = [Signal() for _ in range(50)], []
        for mine, following in itertools.pairwise(signals):
            stride(link(mine, following, seen))
        signals[0].set(None)
        assert seen == list(range(49))

    run(body())


def test_an_exception_is_reported_and_ends_it():
    reported = []

    async def work(signal):
        await signal
        raise RuntimeError("boom")

    async def body():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        signal = Signal()
        task = stride(work(signal))
        signal.set(None)
        assert task.done()
        assert [str(error) for error in reported] == ["boom"]
        assert asyncio.current_task() is not task

    run(body())


def test_task_interface():
    async def work():
        await Signal()

    async def body():
        coro = work()
        task = stride(coro)
        assert task.get_loop() is asyncio.get_running_loop()
        assert task.get_coro() is coro
        assert task.get_name().startswith("request-")
        assert not task.done()
        task.cancel()
        await turns()

    run(body())
