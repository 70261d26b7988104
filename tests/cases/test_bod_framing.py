"""Request bodies: what comes with them, such as chunk sizes, extensions and trailers."""

from __future__ import annotations

import asyncio
import itertools
import sys

import pytest
from fakes import GOOD, chunked, run, until

from cases.edge import BODY, CHUNKED, GET, answers_in, post
from cases.scene import scene

HEAD = 64 << 10
PIECE = 16 << 10
LARGE = b'{"model":"m","messages":[],"x":"%b"}' % (b"x" * 400_000)
# Where each goes on without end: what comes first, and what comes again and again.
ENDLESS = {
    "trailer": (chunked(BODY) + b"0\r\nx: ", b"a" * PIECE),
    "trailer's name": (chunked(BODY) + b"0\r\n", b"a" * PIECE),
    "trailer behind a large body": (chunked(LARGE) + b"0\r\nx: ", b"a" * PIECE),
    "trailers": (chunked(BODY) + b"0\r\n", b"x: b\r\n" * (PIECE // 6)),
    "extension": (b"1;a=", b"a" * PIECE),
    "extension of the last chunk": (chunked(BODY) + b"0;a=", b"a" * PIECE),
    "an extension for each byte": (b"", (b"1;a=%b\r\n \r\n" % (b"a" * 200)) * (PIECE // 200)),
    "zeros before a size": (b"", b"0" * PIECE),
}


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind another"])
@pytest.mark.parametrize(("first", "again"), ENDLESS.values(), ids=ENDLESS)
def test_BOD_08_what_comes_with_a_body_has_a_bound(first, again, behind):
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            await client.send(b"".join([post() * behind, post(CHUNKED, first), again]))
            await until(lambda: s.process.service.connections)
            (connection,) = s.process.service.connections
            sent = PIECE
            while not connection._lingering:
                assert sent < 32 * HEAD, "no end of it"
                await client.send(again)
                await asyncio.sleep(0)
                sent += PIECE
            shown = answers_in(await client.read_until_close())
            assert [answer.status for answer in shown] == [200, 431][not behind :]
            assert b"`limits.head`" in shown[-1].body
            assert len(s.upstream.requests) == behind

    run(body())


@pytest.mark.parametrize("size", [1, 2, 100])
def test_BOD_08_small_chunks_are_no_excess(size):
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            pieces = [LARGE[at : at + size] for at in range(0, len(LARGE), size)]
            await client.send(post(CHUNKED, b"".join(map(chunked, pieces)) + b"0\r\n\r\n") + GET)
            assert [(await client.read_answer()).status for _ in "12"] == [200, 200]
            assert s.upstream.requests[0].body == LARGE

    run(body())


def test_BOD_08_trailers_below_the_bound_are_dropped():
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            trailers = b"".join([b"x-%d: %b\r\n" % (number, b"a" * 500) for number in range(100)])
            for _ in "123":
                await client.send(post(CHUNKED, chunked(BODY)))
                await client.send(b"0\r\n")
                for at in range(0, len(trailers), 700):
                    await client.send(trailers[at : at + 700])
                await client.send(b"\r\n")
                assert (await client.read_answer()).status == 200
            assert b"x-1:" not in s.upstream.requests[0].head

    run(body())


SIZES = {
    "two bytes": [2],
    "one byte": [1],
    "around what counts as small": [511, 512, 513],
    "mixed": [1, 4000, 1, 1, 600, 2],
    "small behind large": [100_000, 3, 3],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_BOD_08_a_body_in_small_parts_takes_the_memory_that_is_counted(sizes):
    async def body():
        async with scene(GOOD) as s:
            client = await s.client()
            turns = itertools.cycle(sizes)
            cuts = [0]
            while cuts[-1] < len(LARGE):
                cuts.append(cuts[-1] + next(turns))
            pieces = [LARGE[start:end] for start, end in itertools.pairwise(cuts)]
            await client.send(post(CHUNKED, b"".join(map(chunked, pieces))))
            await until(lambda: s.process.service.memory.used == len(LARGE))
            (connection,) = s.process.service.connections
            parts = connection._reading._parts
            assert sys.getsizeof(parts) + sum(map(sys.getsizeof, parts)) < 1.3 * len(LARGE)
            await client.send(b"0\r\n\r\n")
            assert (await client.read_answer()).status == 200
            assert s.upstream.requests[0].body == LARGE

    run(body())
