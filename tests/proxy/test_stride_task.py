"""A request's task as others see it: awaited, asked for its end, named, and given what it cannot wait for."""

from __future__ import annotations

import asyncio
import contextvars
import types
import weakref

import pytest
from fakes import run
from strides import stride, turns
from tailrace.proxy.signal import Signal
from tailrace.proxy.stride import Stride

VAR: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="")


async def waits(signal):
    await signal


async def fails(signal):
    await signal
    raise KeyError("x")


def test_can_be_awaited_like_a_task():
    async def body():
        signal = Signal()
        task = stride(waits(signal))
        assert asyncio.isfuture(task)
        others = [asyncio.ensure_future(awaiting) for awaiting in (asyncio.wait([task]), asyncio.shield(task))]
        others += [asyncio.create_task(forwarded(task)), asyncio.create_task(asyncio.wait_for(task, 9))]
        await turns()
        assert not any(other.done() for other in others)
        signal.set(None)
        assert (await asyncio.gather(*others))[1:] == [None, "seen", None]
        assert (await task, task.result(), task.exception(), task.cancelled()) == (None, None, None, False)

    async def forwarded(task):
        await task
        return "seen"

    run(body())


def test_its_failure_is_its_awaiters():
    async def body():
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        signal = Signal()
        task = stride(fails(signal))
        with pytest.raises(asyncio.InvalidStateError):
            task.exception()
        waiter = asyncio.ensure_future(asyncio.wait_for(task, 9))
        await turns()
        signal.set(None)
        with pytest.raises(KeyError):
            await waiter
        assert isinstance(task.exception(), KeyError)
        assert not task.cancelled()

    run(body())


def test_its_cancellation_has_the_message_that_was_given():
    async def body(waited):
        task = stride(waits(waited))
        task.cancel("why")
        await turns()
        assert (task.done(), task.cancelled(), task.cancelling()) == (True, True, 1)
        with pytest.raises(asyncio.CancelledError, match="why"):
            task.result()
        with pytest.raises(asyncio.CancelledError, match="why"):
            await task

    async def each():
        for waited in (Signal(), asyncio.get_running_loop().create_future(), asyncio.sleep(0)):
            await body(waited)

    run(each())


def test_cancelling_who_awaits_it_cancels_it():
    async def body():
        task = stride(waits(Signal()))
        waiter = asyncio.ensure_future(asyncio.wait([task]))
        other = asyncio.create_task(forwarded(task))
        await turns()
        other.cancel("from outside")
        await turns()
        assert task.cancelled()
        assert other.cancelled()
        await waiter

    async def forwarded(task):
        await task

    run(body())


def test_callbacks():
    seen = []

    async def body():
        signal = Signal()
        task = stride(waits(signal))
        dropped = seen.append
        VAR.set("adder")
        task.add_done_callback(lambda ended: seen.append((ended is task, VAR.get())))
        task.add_done_callback(lambda _: seen.append(VAR.get()), context=contextvars.Context())
        task.add_done_callback(dropped)
        assert (task.remove_done_callback(dropped), task.remove_done_callback(dropped)) == (1, 0)
        VAR.set("later")
        signal.set(None)
        assert seen == []
        await turns()
        assert seen == [(True, "adder"), ""]
        task.add_done_callback(lambda _: seen.append("at once"))
        await turns()
        assert seen[2:] == ["at once"]

    run(body())


def test_is_seen_by_name_and_stack_and_held_weakly(capsys):
    async def body():
        signal = Signal()
        task = stride(waits(signal))
        task.set_name("mine")
        assert (task.get_name(), repr(task)) == ("mine", "<mine running>")
        (frame,) = task.get_stack()
        assert frame.f_code is waits.__code__
        task.print_stack()
        assert "in waits" in capsys.readouterr().err
        seen = weakref.WeakKeyDictionary({task: 1})
        signal.set(None)
        assert (task.get_stack(), len(seen)) == ([], 1)

    run(body())


@types.coroutine
def yielded(value):
    return (yield value)


@pytest.mark.parametrize("what", ["number", "itself", "other loop", "not awaited"])
def test_what_can_never_wake_it_is_an_error_where_it_is_awaited(what):
    seen = []

    async def work(value):
        try:
            await yielded(value if what != "itself" else asyncio.current_task())
        except RuntimeError as error:
            seen.append(str(error))

    async def body():
        other = asyncio.new_event_loop()
        foreign = other.create_future()
        foreign._asyncio_future_blocking = True
        task = stride(
            work(
                {"number": 3, "other loop": foreign, "not awaited": asyncio.get_running_loop().create_future()}.get(
                    what
                )
            )
        )
        await turns()
        other.close()
        assert task.done()
        assert len(seen) == 1

    run(body())


def test_leaving_the_process_is_passed_on():
    async def work():
        raise SystemExit(3)

    async def body():
        task = Stride(work(), asyncio.get_running_loop(), contextvars.copy_context())
        with pytest.raises(SystemExit):
            task.resume()
        assert task.done()
        assert isinstance(task.exception(), SystemExit)

    run(body())
