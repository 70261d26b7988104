"""What is counted for each worker is back at 0 when nothing runs, however calls ended (DIS-08)."""

from __future__ import annotations

import asyncio
import random

import orjson
from fakes import chat_answer, json_answer, run, sending, sse_answer, sse_head, stream_of

from cases.scene import END, PATH, ROLE, STREAM, framed, scene
from cases.scripts import TEXT

CALLS = 1000
AT_ONCE = 20
REFUSAL = json_answer({"error": {"message": "busy"}}, 503, b"x-tailrace-load: running=1;waiting=1;kv=0.00;unsent\r\n")


async def reset_early(conn, request):
    conn.rst()


async def reset_midway(conn, request):
    await conn.send(sse_head() + framed(TEXT))
    conn.rst()


async def closed_midway(conn, request):
    await conn.send(sse_head() + framed([ROLE]))
    conn.close()


async def held(conn, request):
    await conn.wait_closed()


async def held_midway(conn, request):
    await conn.send(sse_head() + framed(TEXT))
    await conn.wait_closed()


WORKS = {
    "unary": sending(json_answer(chat_answer("x"))),
    "stream": sending(sse_answer(stream_of(["x", "y"]))),
    "refused": sending(REFUSAL),
    "500": sending(json_answer({"error": {"message": "x"}}, 500)),
    "garbage": sending(b"SMTP ready\r\n\r\n"),
    "half": sending(sse_head() + framed([ROLE]) + END),
    "reset early": reset_early,
    "reset midway": reset_midway,
    "closed midway": closed_midway,
    "held": held,
    "held midway": held_midway,
}


async def script(conn, request):
    await WORKS[request.header("x-work")](conn, request)


async def one(s, chance: random.Random) -> None:
    """A call whose client may leave at any moment; of one that the worker holds it has to."""
    work = chance.choice(list(WORKS))
    body = {**STREAM, "stream": work not in ("unary", "500")}
    client = await s.client()
    await client.request("POST", PATH, orjson.dumps(body), {"x-work": work, "connection": "close"})
    if work.startswith("held") or chance.random() < 0.3:
        for _ in range(chance.randrange(8)):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            client.rst()
        else:
            await client.close()
    else:
        await client.read_until_close()
        await client.close()


def test_DIS_08_in_flight_counters_do_not_drift():
    """A thousand calls at three workers, one of which cannot be reached half of the time: aborts, failed connections,
    resets, retries. Nothing may be left, nor anything be given back twice.
    """
    chance = random.Random(8)
    lowest = []

    async def body():
        async with scene(script, script, script, workers=3) as s:
            workers = list(s.process.roster.workers)
            for step in range(CALLS // AT_ONCE):
                third = s.upstreams[2]
                if step % 2:
                    await third.listen_again()
                else:
                    third.refuse()
                    for connection in third.connections:
                        if connection.closed_at is None:
                            connection.rst()
                await asyncio.gather(*[one(s, chance) for _ in range(AT_ONCE)])
                lowest.append(min(worker.inflight for worker in workers))
            await s.at_rest()
            assert {worker.inflight for worker in workers} == {0}
            assert min(lowest) >= 0
            assert len(s.witness.outcomes) <= CALLS
            tried = [attempt for call in s.witness.calls for attempt in call.tries]
            whys = {attempt.why for attempt in tried}
            faults = {attempt.fault.kind for attempt in tried if attempt.fault is not None}
            assert whys == {"first", "retry"}
            assert {"connect_failed", "connection_lost", "http_error", "bad_answer", "false_end"} <= faults

    run(body(), limit=60.0)
