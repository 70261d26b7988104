"""Processes that cannot be replaced at once, and a supervisor that cannot go on."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
from pathlib import Path

import pytest
from fakes import CHAT, GOOD, PATH, RawClient, Upstream, run, until, yaml_for
from served import QUICK, alive, ended, engine, serving
from tailrace.proxy.configuration import understand
from tailrace.proxy.control import Start
from tailrace.proxy.crew import Crew, StartFailed
from tailrace.proxy.supervisor import Fatal, Supervisor
from tailrace.proxy.tally import Tally


def test_a_process_is_replaced_once_the_system_lets_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with (
            Upstream(engine(GOOD)) as upstream,
            serving(tmp_path, yaml_for(upstream, more=QUICK + "processes: 2\n")) as it,
        ):
            supervisor = it.process.pid
            before = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
            resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, before[1]))
            lost, kept = it.processes
            os.kill(lost, signal.SIGKILL)
            while len(refused := [line for line in it.log if "cannot be replaced" in line]) < 2:
                await asyncio.sleep(0.01)
            assert all("the system refused: Too many open files" in line for line in refused)
            resource.prlimit(supervisor, resource.RLIMIT_NOFILE, before)
            while (await it.get("/readyz")).json()["processes"] != {"serving": 2, "wanted": 2}:
                await asyncio.sleep(0.01)
            assert kept in it.processes
            async with RawClient(it.url) as client:
                assert (await client.post(PATH, CHAT)).status == 200

    run(body())


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_start_that_the_system_refuses_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        tally = Tally()
        crew = Crew(1, lambda _seat, metrics: start(metrics), tally)
        gc.collect()  # what tests before this one have left behind
        held = open_files(os.getpid())
        with pytest.raises(StartFailed, match="the system refused: No such file or directory"):
            await crew.start()
        await crew.kill()
        assert open_files(os.getpid()) == held

    monkeypatch.setattr("sys.executable", "/nowhere/python")
    run(body())


def start(metrics: int) -> Start:
    return Start(
        role="gateway",
        name="test.yaml",
        text="",
        sockets=(),
        tenure={},
        index=0,
        count=1,
        generation=1,
        metrics=metrics,
        board=None,
        births=metrics,
        drained=(),
        host_unready=(),
        found={"number": 1, "members": {}, "same": {}},
        who="test",
    )


def test_a_mistake_at_the_start_ends_the_start() -> None:
    async def body() -> None:
        crew = Crew(2, orders, Tally())
        with pytest.raises(StartFailed, match=r"process . cannot be kept any more: ZeroDivisionError: told"):
            await crew.start()
        await crew.kill()

    def orders(_seat: int, _metrics: int) -> Start:
        raise ZeroDivisionError("told")

    run(body())


def test_a_mistake_while_a_process_is_replaced_ends_the_supervisor(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def orders(_seat: int, _metrics: int) -> Start:
        raise ZeroDivisionError("told")

    async def stream(conn, _request) -> None:
        await conn.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await conn.wait_closed()

    async def body() -> None:
        async with Upstream(engine(stream)) as upstream:
            yaml = yaml_for(upstream, more=QUICK + "processes: 2\nadmin: 'off'\n")
            said: list[str] = []
            supervisor = Supervisor(understand(yaml, "test.yaml"), said.append)
            running = asyncio.ensure_future(supervisor.run())
            await until(lambda: said or running.done())
            pids = [member.process.pid for member in supervisor.crew.serving]
            async with RawClient(said[0].removeprefix("ready ")) as client:
                await client.request("POST", PATH, b'{"model":"m","messages":[],"stream":true}')
                await until(lambda: any(request.method == "POST" for request in upstream.requests))
                monkeypatch.setattr(supervisor.crew, "_orders", orders)
                serves = max(supervisor.crew.serving, key=lambda member: member.index)
                os.kill(supervisor.crew.serving[0].process.pid, signal.SIGKILL)
                with pytest.raises(Fatal, match="process 0 cannot be kept any more: ZeroDivisionError: told"):
                    await running
                assert not alive(serves.process.pid)
            await ended(*pids)

    monkeypatch.setattr("tailrace.proxy.supervisor.raise_file_limit", lambda _connections: None)
    run(body())
    assert "the keeper of process 0 failed" in caplog.text
