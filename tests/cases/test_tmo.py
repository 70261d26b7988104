"""Timeouts: each wait has its own limit, kept within a quarter of a second."""

from __future__ import annotations

import asyncio
import socket

import pytest
from fakes import (
    RawClient,
    Upstream,
    chat_chunk,
    chunked,
    gateway,
    json_answer,
    run,
    sse_answer,
    sse_head,
    stream_of,
    yaml_for,
)
from tailrace.proxy.outcome import AttemptEnd, Ending

from cases.scene import CHAT, DONE, END, FINISH, PATH, ROLE, STREAM, closed_promptly, framed, scene, until
from cases.scripts import WELL, head_only, silent, ticking


async def comments_only(conn, request):
    await conn.send(sse_head() + chunked(ROLE))
    while True:
        await conn.send(chunked(b": busy\n\n"))
        await asyncio.sleep(0.02)


def test_TMO_01_long_but_healthy_stream_is_not_cut():
    """It outlasts every limit but the total, which is off unless it is set."""
    names = [
        "connect",
        "first_content_base",
        "unary",
        "gap",
        "upstream_idle",
        "idle",
        "client_write",
        "client_head",
        "client_body",
        "upstream_age",
    ]
    limits = "timeouts: {" + ", ".join(f"{name}: 0.3" for name in names) + "}"

    async def body():
        async with scene(ticking(14, 0.1), more=limits) as s:
            assert s.process.settings.timeouts.total is None
            answer = await s.ask()
            assert answer.complete
            assert len(answer.events) == 17

    run(body())


@pytest.mark.parametrize("script", [silent, head_only, comments_only])
@pytest.mark.parametrize("body_of", [CHAT, STREAM])
def test_TMO_02_first_content(script, body_of):
    async def body():
        async with scene(script, more="timeouts: {first_content_base: 0.3, unary: 0.3}") as s:
            answer = await s.ask(body_of)
            if script is comments_only and "stream" not in body_of:
                assert answer.status in (200, 504)
                return
            assert answer.status == 504
            assert answer.json()["error"]["code"] == "upstream_timeout"
            kind = "unary" if body_of is CHAT and script is silent else "first content"
            assert kind in answer.json()["error"]["message"]
            assert (await s.outcome()).ending is Ending.DEADLINE
            await until(lambda: len(s.upstream.closed_at) == 1, "the worker's connection stayed open")
            assert len(s.upstream.requests) == 1, "a slow failure is not tried again by itself"

    run(body())


def test_TMO_02_hung_worker_stalls_nobody_else():
    """Calls that hang at one worker take nothing from another one's."""

    async def body():
        async with Upstream(silent) as hung, Upstream(WELL) as well:
            models = f"models: {{hung: {{workers: ['{hung.url}']}}, m: {{workers: ['{well.url}']}}}}"
            yaml = f"listen: [127.0.0.1:0]\n{models}\ntimeouts: {{unary: 0.5}}\n"
            async with gateway(yaml) as process:
                clients = [await RawClient.connect(process.doors[0].shown) for _ in range(100)]
                for client in clients:
                    await client.request("POST", PATH, b'{"model":"hung"}')
                await hung.asked(100)
                async with RawClient(process.doors[0].shown) as client:
                    for _ in range(10):
                        assert (await client.post(PATH, CHAT)).status == 200
                assert [(await client.read_answer()).status for client in clients] == [504] * 100
                await until(lambda: len(hung.closed_at) == 100, "connections to the hung worker stayed open")
                for client in clients:
                    await client.close()

    run(body())


def test_TMO_04_heartbeats_carry_a_stream_over_silence():
    """A middle hop with an idle limit sees bytes in both waits: before the first token, and in the stream."""

    async def script(conn, request):
        await asyncio.sleep(1.2)
        await conn.send(sse_head() + framed([ROLE, chat_chunk("a")]))
        await asyncio.sleep(1.2)
        await conn.send(framed([FINISH, DONE]) + END)

    async def body():
        async with scene(script, script, more="heartbeat: 0.2") as s:
            client = await s.begin()
            seen = b""
            while not seen.endswith(END):
                async with asyncio.timeout(0.8):
                    seen += await client.read_some()
            assert seen.count(b": heartbeat") >= 4

    run(body())


@pytest.mark.parametrize("more", ["heartbeat: 0", "heartbeat: 3"])
def test_TMO_04_no_heartbeat_before_its_interval(more):
    async def body():
        async with scene(ticking(2, 0.6), more=more) as s:
            assert b"heartbeat" not in (await s.ask()).body

    run(body())


def test_TMO_04_slow_upload_is_no_silence():
    """The interval of the heartbeat begins when the request is there, so an early failure is still a status."""

    async def refusing(conn, request):
        await asyncio.sleep(0.25)
        await conn.send(json_answer({"error": {"message": "no"}}, 400))

    async def body():
        async with scene(refusing, more="heartbeat: 0.5") as s:
            client = await s.client()
            payload = b'{"model":"m","stream":true}'
            await client.request("POST", PATH, payload[:9], {"content-length": str(len(payload))})
            await asyncio.sleep(0.6)
            await client.send(payload[9:])
            assert (await client.read_answer()).status == 400

    run(body())


def test_TMO_04_wait_behind_another_call_is_no_silence():
    async def refusing(conn, request):
        await asyncio.sleep(0.25)
        await conn.send(json_answer({"error": {"message": "no"}}, 400))

    async def body():
        async with scene(ticking(8, 0.1), refusing, more="heartbeat: 0.5") as s:
            client = await s.begin()
            await client.request("POST", PATH, b'{"model":"m","stream":true}')
            assert (await client.read_answer()).complete
            assert (await client.read_answer()).status == 400

    run(body())


def black_hole():
    """A listening socket whose queue is full: further SYNs are dropped."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    filling = []
    for _ in range(3):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(listening.getsockname())
        filling.append(client)
    return listening, filling


def test_TMO_06_black_holed_worker():
    """The limit on connecting passes, then another worker is asked; it does not eat the first-content limit."""
    listening, filling = black_hole()

    async def slow(conn, request):
        await asyncio.sleep(0.3)
        await conn.send(WELL)

    async def body():
        async with Upstream(slow) as well:
            dead = f"http://127.0.0.1:{listening.getsockname()[1]}"
            more = "timeouts: {connect: 0.3, first_content_base: 0.5}"
            yaml = yaml_for(dead, well, plugins="[cases.witness:Witness, cases.policies:InOrder]", more=more)
            async with gateway(yaml) as process, RawClient(process.doors[0].shown) as client:
                workers = process.pools["model:m"].workers
                witness = process.service.chain.pipeline.links[0].plugin
                assert (await client.post(PATH, CHAT)).status == 200
                await until(lambda: witness.outcomes, "the call's end")
                assert [attempt.worker for attempt in witness.attempts] == list(workers)
                assert witness.ends == [AttemptEnd.FAILED, AttemptEnd.WON]
                assert [worker.inflight for worker in workers] == [0, 0]

    try:
        run(body())
    finally:
        for sock in [listening, *filling]:
            sock.close()


def test_TMO_06_dead_worker_alone():
    async def body():
        async with Upstream(WELL) as gone:
            pass
        async with gateway(yaml_for(gone)) as process, RawClient(process.doors[0].shown) as client:
            answer = await client.post(PATH, CHAT)
            assert answer.status == 503
            assert answer.header("retry-after") == "1"
            assert answer.json()["error"]["code"] == "worker_unreachable"

    run(body())


def test_TMO_08_slow_failure_moves_only_where_a_policy_says_so():
    """Then the slow worker's connection is closed before the next one is asked, and once is all."""

    async def body():
        async with scene(
            silent,
            WELL,
            more="timeouts: {unary: 0.3}",
            plugins="[cases.policies:MoveOn, cases.witness:Witness]",
        ) as s:
            client = await s.begin({**CHAT, "messages": [{"role": "user", "content": "x" * 100_000}]})
            await s.upstream.asked(2)
            await closed_promptly(s.upstream)
            assert (await client.read_answer()).status == 200
            assert s.witness.ends == [AttemptEnd.FAILED, AttemptEnd.WON]

    run(body())


def test_TMO_08_prompt_size_widens_the_limit():
    async def slow(conn, request):
        await asyncio.sleep(0.6)
        await conn.send(sse_answer(stream_of(["b"])))

    async def body():
        limits = "timeouts: {first_content_base: 0.2, first_content_per_mib: 10}"
        async with scene(slow, more=limits) as s:
            assert (await s.ask(STREAM)).status == 504
            assert (await s.ask({**STREAM, "messages": [{"role": "user", "content": "x" * 200_000}]})).status == 200

    run(body())


def test_TMO_08_an_answer_that_is_no_stream_may_take_longer_than_the_first_content_of_one():
    async def slow(conn, request):
        await asyncio.sleep(0.8)
        await conn.send(WELL)

    async def body():
        async with scene(slow, more="timeouts: {first_content_base: 0.2}") as s:
            assert (await s.ask(CHAT)).status == 200

    run(body())


def test_TMO_08_stream_is_not_raced_by_itself():
    """Nothing but a policy starts a second attempt beside a running one."""

    async def body():
        async with scene(ticking(3, 0.1), sse_answer(stream_of(["b"])), plugins="[cases.witness:Witness]") as s:
            assert (await s.ask(STREAM)).complete
            assert len(s.upstream.requests) == 1

    run(body())
