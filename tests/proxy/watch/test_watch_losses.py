"""Workers that are lost: noticed however they go, told in the log at the level that they deserve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from fakes import Connection, Upstream, chunked, decoded, json_answer, run, until
from tailrace.proxy.address import Address
from tailrace.proxy.gateway import running
from tailrace.proxy.watch import silence, watcher
from tailrace.proxy.watch.ask import ask, asking
from tailrace.proxy.watch.asked import Asked, Unanswered
from watched import chat, feeding, state, watching, worker_of, yaml


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "POLL", 0.02)
    monkeypatch.setattr(watcher, "LATEST", 0.1)


@asynccontextmanager
async def closing(port: int = 0, *, unread: bool = True) -> AsyncIterator[str]:
    """Accepts for nobody: closes at once, or when it was asked something."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not unread:
            await reader.read(1)
        writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.mark.parametrize("unread", [True, False])
def test_a_port_that_only_accepts_is_a_dead_worker_until_somebody_answers(
    unread: bool, caplog: pytest.LogCaptureFixture
):
    async def body():
        async with AsyncExitStack() as nobody:
            url = await nobody.enter_async_context(closing(unread=unread))
            async with watching(url) as process:
                worker = worker_of(process)
                await until(lambda: worker.standing.dead)
                assert "clos" in worker.standing.reason
                assert (await chat(process)).status == 503
                await asyncio.sleep(0.3)
                assert len(lines(caplog, logging.WARNING)) == 1
                await nobody.aclose()
                async with Upstream(feeding(state()), port=int(url.rpartition(":")[2])):
                    await until(lambda: worker.eligible)

    with caplog.at_level(logging.INFO):
        run(body())


def test_a_bare_engine_behind_a_port_that_only_accepts_is_dead():
    async def body():
        async with Upstream(json_answer({}, 404)) as upstream, watching(upstream.url) as process:
            worker = worker_of(process)
            await until(lambda: worker.standing.seen)
            upstream.refuse()
            async with closing(upstream._port, unread=False):
                await until(lambda: worker.standing.dead)

    run(body())


def test_a_connection_that_is_closed_before_anything_is_asked_is_no_answer():
    async def body():
        async with Upstream(json_answer({})) as upstream, running(decoded(yaml(upstream.url))) as process:
            worker = worker_of(process)
            connect = worker.connections.connect

            class Closing:
                def connect(self, done: Any, failed: Any) -> Any:
                    def then(connection: Any) -> None:
                        done(connection)
                        connection.close()
                        connection.connection_lost(None)

                    return connect(then, failed)

            class Asking:
                connections = Closing()
                headers = worker.headers
                request_line = worker.request_line

            with pytest.raises(Unanswered) as silence:
                async with asking(Asking(), "/health", Asked()):
                    raise AssertionError
            assert silence.value.unreachable
            with pytest.raises(Unanswered):
                await ask(Asking(), "/health", 1.0)

    run(body())


@asynccontextmanager
async def vanishing(monkeypatch: pytest.MonkeyPatch, script: Any, connect: str) -> AsyncIterator[Any]:
    """A gateway whose worker's host, once it was seen, answers no connection any more."""
    opened, gone = Address.open, asyncio.Event()

    async def unanswered(self: Address, *of: Any) -> None:
        if gone.is_set():
            await asyncio.sleep(60)
        await opened(self, *of)

    monkeypatch.setattr(Address, "open", unanswered)
    async with (
        Upstream(script) as upstream,
        watching(upstream.url, more=f"timeouts: {{connect: {connect}}}") as process,
    ):
        await until(lambda: worker_of(process).standing.seen)
        gone.set()
        for conn in list(upstream.connections):
            conn.rst()
        yield process


def test_calls_that_find_nobody_keep_no_worker_from_being_found_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them asks for it to be verified, sooner than the last one who asked can know."""
    monkeypatch.setattr(silence, "AGAIN", 0.0)

    async def body():
        async with vanishing(monkeypatch, feeding(state()), "400ms") as process:
            broken: Any = worker_of(process).connections.broken

            async def calling() -> None:
                while True:
                    broken(None)
                    await asyncio.sleep(0.05)

            calls = asyncio.ensure_future(calling())
            await until(lambda: worker_of(process).standing.dead)
            calls.cancel()

    run(body())


def test_a_bare_engine_that_takes_longer_to_connect_to_than_to_answer_is_found_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watcher, "ANSWER", 0.1)

    async def body():
        async with vanishing(monkeypatch, json_answer({}, 404), "200ms") as process:
            await until(lambda: worker_of(process).standing.dead)

    run(body())


def test_a_watch_that_fails_says_whose_it_is_and_begins_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    read, failures = watcher.read_feed, [KeyError("one"), KeyError("two"), KeyError("three")]

    async def failing(*of: Any) -> Any:
        if failures:
            raise failures.pop()
        return await read(*of)

    monkeypatch.setattr(watcher, "read_feed", failing)

    async def body():
        async with Upstream(feeding(state(running=2))) as upstream, watching(upstream.url) as process:
            worker = worker_of(process)
            await until(lambda: worker.standing.dead)
            assert "KeyError" in worker.standing.reason
            await until(lambda: worker.eligible)
            assert (worker.standing.running, worker.standing.reason) == (2, "")
            said = [line for line in lines(caplog, logging.ERROR) if "watch of worker" in line]
            assert len(said) == 3
            assert all(worker.name in line for line in said)

    run(body())


def test_a_loss_is_a_warning_and_a_drain_is_none(caplog: pytest.LogCaptureFixture):
    async def then(conn: Connection) -> None:
        for told in ({"ready": False, "draining": True}, {}, {"ready": False, "reason": "stuck"}, {}):
            await conn.send(chunked(state(**told)))
        await conn.wait_closed()

    async def body():
        async with Upstream(feeding(state(), then=then)) as upstream, watching(upstream.url) as process:
            name = worker_of(process).name
            await until(lambda: len(caplog.records) >= 4)
            assert lines(caplog, logging.INFO) == [
                f"worker {name} takes no calls: it is drained",
                f"worker {name} takes calls",
                f"worker {name} takes calls",
            ]
            assert lines(caplog, logging.WARNING) == [f"worker {name} takes no calls: stuck"]
            upstream.refuse()
            for conn in upstream.connections:
                conn.rst()
            await until(lambda: worker_of(process).standing.dead)
            assert "Connection refused" in lines(caplog, logging.WARNING)[-1]
            assert "this model" not in caplog.text

    with caplog.at_level(logging.INFO, "tailrace"):
        run(body())


def test_a_worker_that_has_yet_to_come_up_is_given_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    starting = state(ready=False, reason="no connection")
    go = asyncio.Event()

    async def then(conn: Connection) -> None:
        await go.wait()
        for _ in range(3):
            await conn.send(chunked(starting))
        await conn.wait_closed()

    async def body():
        async with Upstream(feeding(starting, then=then)) as upstream, watching(upstream.url) as process:
            name = worker_of(process).name
            await until(lambda: caplog.records)
            assert lines(caplog, logging.INFO) == [f"worker {name} takes no calls yet: no connection"]
            monkeypatch.setattr(watcher, "LONG", -1.0)
            go.set()
            await until(lambda: len(caplog.records) > 1)
            await asyncio.sleep(0.05)
            assert lines(caplog, logging.WARNING) == [f"worker {name} still takes no calls: no connection"]

    with caplog.at_level(logging.INFO, "tailrace"):
        run(body())


def test_a_call_over_a_connection_that_is_closed_at_once_fails_as_one_without_a_worker(
    monkeypatch: pytest.MonkeyPatch,
):
    opened = Address.open

    async def dying(self: Address, loop: Any, make: Any, *of: Any) -> None:
        connection = make()
        await opened(self, loop, lambda: connection, *of)
        connection.transport.abort()
        while connection.transport is not None:
            await asyncio.sleep(0)

    monkeypatch.setattr(Address, "open", dying)

    async def body():
        async with closing() as url, running(decoded(yaml(url))) as process:
            answer = await chat(process)
            assert (answer.status, answer.json()["error"]["code"]) == (503, "worker_unreachable")

    run(body())
