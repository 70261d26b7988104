"""The life of `tailrace serve`: what happens to clients when its processes die, drain and end."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from fakes import (
    CHAT,
    GOOD,
    PATH,
    Connection,
    RawClient,
    Request,
    Upstream,
    chat_chunk,
    chunked,
    event,
    run,
    sse_head,
    yaml_for,
)
from served import QUICK, Served, alive, ended, engine, serving

STREAM = CHAT | {"stream": True}


class Slow:
    """A stream that stops after its first word until `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, conn: Connection, _request: Request) -> None:
        await conn.send(sse_head() + chunked(chat_chunk("one")))
        await self.go.wait()
        await conn.send(chunked(chat_chunk("two")) + chunked(chat_chunk(finish="stop")))
        await conn.send(chunked(event("[DONE]")) + chunked(b""))


async def begin_stream(client: RawClient) -> None:
    await client.request("POST", PATH, b'{"model":"m","messages":[],"stream":true}')
    await client.read_until(b'"one"')


async def finish_stream(client: RawClient) -> bytes:
    return await client.read_until(b"0\r\n\r\n")


async def clients_of(served: Served, count: int, stack: AsyncExitStack) -> dict[str, list[RawClient]]:
    """So many connected clients by the process that serves them."""
    found: dict[str, list[RawClient]] = {}
    for _ in range(count):
        client = await stack.enter_async_context(RawClient(served.url))
        request_id = (await client.get("/healthz")).header("x-request-id")
        assert request_id is not None
        found.setdefault(request_id[:16], []).append(client)
    return found


def test_processes_share_connections_evenly(tmp_path: Path) -> None:
    async def body() -> None:
        yaml = yaml_for("http://127.0.0.1:1", more=QUICK + "processes: 2")
        async with serving(tmp_path, yaml) as it, AsyncExitStack() as stack:
            groups = await clients_of(it, 20, stack)
            # A process that does not get the CPU for a moment loses its turn.
            assert len(groups) == 2
            assert min(map(len, groups.values())) >= 7

    run(body())


def test_killed_process_is_replaced_while_the_others_go_on(tmp_path: Path) -> None:
    async def body() -> None:
        slow = Slow()
        async with (
            Upstream(engine(slow)) as upstream,
            serving(tmp_path, yaml_for(upstream, more=QUICK + "processes: 2")) as it,
            AsyncExitStack() as stack,
        ):
            groups = await clients_of(it, 8, stack)
            assert len(groups) == 2
            streams = [group[0] for group in groups.values()]
            for stream in streams:
                await begin_stream(stream)
            before = it.processes
            os.kill(before[0], signal.SIGKILL)
            await it.until("SIGKILL; it is replaced")
            slow.go.set()
            rests = await asyncio.gather(*(stream.read_until_close_or(b"0\r\n\r\n") for stream in map(Reader, streams)))
            assert sorted(rest.endswith(b"0\r\n\r\n") for rest in rests) == [False, True]
            while len(set(it.processes) - set(before)) != 1:
                await asyncio.sleep(0.01)
            while (await it.get("/readyz")).json()["processes"] != {"serving": 2, "wanted": 2}:
                await asyncio.sleep(0.01)
            # The survivor still has its clients; the new process catches up before both take turns.
            assert len(await clients_of(it, 12, stack)) == 2
            text = (await it.get("/metrics")).body.decode()
            assert "tailrace_process_restarts_total 1" in text

    run(body())


class Reader:
    """Reads a client's connection to a mark or to its end."""

    def __init__(self, client: RawClient) -> None:
        self._client = client

    async def read_until_close_or(self, mark: bytes) -> bytes:
        data = b""
        while mark not in data:
            try:
                more = await self._client.read_some()
            except ConnectionResetError:
                break
            if not more:
                break
            data += more
        return data


def test_sigterm_lets_a_running_stream_finish(tmp_path: Path) -> None:
    async def body() -> None:
        slow = Slow()
        async with (
            Upstream(engine(slow, GOOD)) as upstream,
            serving(tmp_path, yaml_for(upstream, more="pre_stop: 0.5\ndrain: 10")) as it,
            RawClient(it.url) as stream,
            RawClient(it.url) as kept,
        ):
            await begin_stream(stream)
            while (await kept.get("/readyz")).status != 200:
                await asyncio.sleep(0.02)
            it.signal(signal.SIGTERM)
            await it.until("stopping")
            while (answer := await kept.get("/readyz")).status == 200:
                pass
            assert answer.json()["reasons"] == ["shutting down"]
            assert answer.header("connection") == "close"
            assert (await it.get("/readyz")).status == 503
            async with RawClient(it.url) as late:
                served_late = await late.post(PATH, CHAT)
            assert served_late.status == 200
            assert served_late.header("connection") == "close"
            await refused(it.url)
            assert alive(it.process.pid)
            slow.go.set()
            assert b"[DONE]" in await finish_stream(stream)
            assert await it.end() == 0
            assert not [line for line in it.log if "error" in line]

    run(body())


async def refused(url: str) -> None:
    """Wait until nobody listens any more."""
    while True:
        try:
            async with RawClient(url):
                pass
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            pass  # it was about to be accepted when the listener was closed
        await asyncio.sleep(0.02)


def test_stream_that_outlasts_the_drain_is_told_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with (
            Upstream(engine(Slow())) as upstream,
            serving(tmp_path, yaml_for(upstream, more=QUICK + "drain: 0.2")) as it,
            RawClient(it.url) as stream,
        ):
            await begin_stream(stream)
            it.signal(signal.SIGTERM)
            rest = await stream.read_until_close()
            assert b"server_shutting_down" in rest
            assert b"[DONE]" not in rest
            assert not rest.endswith(b"0\r\n\r\n")
            assert await it.end() == 0

    run(body())


def test_second_signal_ends_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with (
            Upstream(engine(Slow())) as upstream,
            serving(tmp_path, yaml_for(upstream, more="pre_stop: 1h\ndrain: 1h")) as it,
            RawClient(it.url) as stream,
        ):
            await begin_stream(stream)
            it.signal(signal.SIGINT)
            await it.until("stopping: ")
            it.signal(signal.SIGINT)
            assert b"server_shutting_down" in await stream.read_until_close()
            assert await it.end() == 0

    run(body())


def test_call_that_waits_for_its_first_content_is_refused_at_the_end(tmp_path: Path) -> None:
    async def silent(conn: Connection, _request: Request) -> None:
        await conn.wait_closed()

    async def body() -> None:
        async with (
            Upstream(engine(silent)) as upstream,
            serving(tmp_path, yaml_for(upstream, more=QUICK + "drain: 0.1")) as it,
            RawClient(it.url) as client,
        ):
            asked = asyncio.ensure_future(client.post(PATH, CHAT))
            while not any(request.method == "POST" for request in upstream.requests):
                await asyncio.sleep(0.01)
            it.signal(signal.SIGTERM)
            answer = await asked
            assert answer.status == 503
            assert answer.json()["error"]["code"] == "server_shutting_down"
            assert await it.end() == 0

    run(body())


def test_processes_of_a_killed_supervisor_finish_and_end(tmp_path: Path) -> None:
    async def body() -> None:
        slow = Slow()
        async with (
            Upstream(engine(slow)) as upstream,
            serving(tmp_path, yaml_for(upstream, more="processes: 2\npre_stop: 1h")) as it,
            RawClient(it.url) as stream,
        ):
            await begin_stream(stream)
            orphans = it.processes
            it.signal(signal.SIGKILL)
            await it.process.wait()
            await refused(it.url)
            slow.go.set()
            assert b"[DONE]" in await finish_stream(stream)
            await stream.close()
            await ended(*orphans)

    run(body())


def test_process_that_is_told_to_end_drains_and_is_replaced(tmp_path: Path) -> None:
    async def body() -> None:
        slow = Slow()
        async with (
            Upstream(engine(slow)) as upstream,
            serving(tmp_path, yaml_for(upstream, more=QUICK)) as it,
            RawClient(it.url) as stream,
        ):
            await begin_stream(stream)
            (old,) = it.processes
            os.kill(old, signal.SIGTERM)
            slow.go.set()
            assert b"[DONE]" in await finish_stream(stream)
            await it.until("process 0 ended, with exit code 0; it is replaced")
            while (await it.get("/readyz")).status != 200:
                await asyncio.sleep(0.01)
            assert it.processes != [old]

    run(body())


def test_unix_socket_is_removed_at_the_end(tmp_path: Path) -> None:
    async def body() -> None:
        path = tmp_path / "data.sock"
        yaml = yaml_for("http://127.0.0.1:1", more=QUICK).replace("[127.0.0.1:0]", f"unix:{path}")
        async with serving(tmp_path, yaml) as it:
            assert it.url == f"unix:{path}"
            async with RawClient(it.url) as client:
                assert (await client.get("/healthz")).status == 200
            it.signal(signal.SIGTERM)
            assert await it.end() == 0
            assert not path.exists()
            assert not (tmp_path / "admin.sock").exists()

    run(body())
