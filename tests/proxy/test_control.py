"""The channel between a supervisor and its processes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fakes import run
from tailrace.proxy.control import Answer, Channel, Gone, Refused


@asynccontextmanager
async def pair(answer: Answer) -> AsyncIterator[tuple[Channel, Channel]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    asking, answering = await Channel.over(ours), await Channel.over(theirs, answer)
    try:
        yield asking, answering
    finally:
        await asking.close()
        await answering.close()


async def echo(what: str, fields: dict[str, Any]) -> Any:
    if what == "wait":
        await asyncio.sleep(fields["seconds"])
    if what == "refuse":
        raise Refused("I would rather not")
    return {what: fields}


def test_questions_are_answered_each_in_its_own_time() -> None:
    async def body() -> None:
        async with pair(echo) as (channel, _):
            slow = asyncio.ensure_future(channel.ask("wait", seconds=0.1))
            assert await channel.ask("hear", text="x" * 300_000) == {"hear": {"text": "x" * 300_000}}
            assert not slow.done()
            assert await slow == {"wait": {"seconds": 0.1}}

    run(body())


def test_refusal_carries_its_reason() -> None:
    async def body() -> None:
        async with pair(echo) as (channel, other):
            with pytest.raises(Refused, match="I would rather not"):
                await channel.ask("refuse")
            with pytest.raises(Refused, match="nobody answers here"):
                await other.ask("anything")

    run(body())


def test_other_end_that_goes_ends_every_question() -> None:
    async def body() -> None:
        async with pair(echo) as (channel, other):
            asked = asyncio.ensure_future(channel.ask("wait", seconds=10))
            await channel.ask("hear")
            await other.close()
            with pytest.raises(Gone):
                await asked
            await channel.closed()
            with pytest.raises(Gone):
                await channel.ask("hear")

    run(body())


def test_question_that_is_given_up_is_forgotten() -> None:
    async def body() -> None:
        async with pair(echo) as (channel, _):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await channel.ask("wait", seconds=0.05)
            await asyncio.sleep(0.06)
            assert await channel.ask("hear") == {"hear": {}}

    run(body())


def test_nonsense_from_the_other_end_closes_the_channel() -> None:
    async def body() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        channel = await Channel.over(ours)
        theirs.sendall(b"nonsense\n")
        await channel.closed()
        await channel.close()
        theirs.close()

    run(body())
