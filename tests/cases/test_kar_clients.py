"""Keep-alive on the client side: idle limits and pipelining."""

from __future__ import annotations

import asyncio

from fakes import (
    RawClient,
    chat_answer,
    chat_chunk,
    json_answer,
    run,
    sse_answer,
    sse_head,
    stream_of,
)

from cases.scene import CHAT, PATH, ROLE, framed, scene, until
from cases.scripts import WELL


def test_KAR_08_idle_limit_meets_a_request():
    """A client at its idle limit is answered or finds the connection closed, and never gets half an answer."""

    async def body():
        async with scene(WELL, more="timeouts: {idle: 0.2}") as s:

            async def one(pause):
                async with RawClient(s.url) as client:
                    await client.post(PATH, CHAT)
                    await asyncio.sleep(pause)
                    try:
                        answer = await client.post(PATH, CHAT)
                    except (ConnectionError, asyncio.IncompleteReadError) as error:
                        assert not getattr(error, "partial", b"")
                        return 0
                    assert answer.complete
                    return 1

            answered = await asyncio.gather(*[one(0.15 + step * 0.01) for step in range(40)])
            assert 0 < sum(answered) < 40

    run(body())


def test_KAR_08_pipelined_requests_are_answered_in_order():
    async def numbered(conn, request):
        number = request.json()["n"]
        await asyncio.sleep(0.03 - number * 0.01)
        if number == 1:
            await conn.send(sse_answer([ROLE, chat_chunk("1"), *stream_of(["x"])[2:]]))
        else:
            await conn.send(json_answer(chat_answer(str(number))))

    def wire(number):
        payload = b'{"model":"m","n":%d,"stream":%s}' % (number, b"true" if number == 1 else b"false")
        return b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (PATH.encode(), len(payload), payload)

    async def body():
        async with scene(numbered) as s:
            client = await s.client()
            await client.send(wire(0) + wire(1) + wire(2))
            texts = [(await client.read_answer()).body for _ in range(3)]
            assert [str(number).encode() in text for number, text in enumerate(texts)] == [True] * 3
            assert texts[1].endswith(b"[DONE]\n\n")

    run(body())


def test_KAR_08_pipelined_request_is_not_run_for_a_client_that_left():
    async def streaming(conn, request):
        await conn.send(sse_head() + framed([ROLE, chat_chunk("first")]))
        await conn.wait_closed()

    async def body():
        async with scene(streaming, WELL) as s:
            client = await s.begin()
            await client.request("POST", PATH, b'{"model":"m"}')
            await client.read_until(b"first")
            client.rst()
            await s.outcome()
            await s.at_rest()
            assert len(s.upstream.requests) == 1

    run(body())


def test_KAR_08_answers_do_not_pile_up_for_a_client_that_reads_none():
    """Pipelined requests wait while the client takes no answers: the gateway holds one at most."""
    large = json_answer(chat_answer("x" * 1_000_000))

    async def body():
        async with scene(large) as s:
            client = await s.client()
            for _ in range(15):
                await client.request("POST", PATH, b'{"model":"m"}')
            await until(lambda: bool(s.witness.outcomes), "the first answer")
            connection = next(iter(s.process.service.connections))
            await until(lambda: connection.paused, "backpressure")
            await asyncio.sleep(0.2)
            assert len(s.witness.outcomes) < 15
            assert connection.transport.get_write_buffer_size() < 2_000_000
            for _ in range(15):
                answer = await client.read_answer()
                assert answer.complete
                assert len(answer.body) > 1_000_000

    run(body())
