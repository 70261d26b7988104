"""Hosts that fall silent, as real processes: frozen, cut off, and killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import RawClient, run
from partitions import Cable, Network, can_isolate, network
from served import Served, children
from sidecars import CHAT, HELLO, STREAMED

KEY = "a-key-that-hops-share"
ENGINE = "{sim: {model: tiny, ttft_ms: 5, itl_ms: 20, answer_tokens: 2000}, warmup: {kind: 'off'}}"


def process(folder: Path, yaml: str, prefix: Sequence[str] = ()) -> AbstractAsyncContextManager[Served]:
    """A `tailrace serve` that runs with a prefix; its admin port is a Unix socket."""
    folder.mkdir()
    admin = f"unix:{folder / 'admin.sock'}"
    file = folder / "it.yaml"
    file.write_text(f"{yaml}\nadmin: {admin}\npre_stop: 0\nhop_key: {KEY}\n")
    command = "from tailrace.proxy.cli import main; raise SystemExit(main())"
    return program(prefix, ["-c", command, "serve", str(file)], file, admin)


def bare(address: str, prefix: Sequence[str]) -> AbstractAsyncContextManager[Served]:
    """An engine without a sidecar."""
    engine = f"--host {address} --port 0 --model tiny --ttft-ms 5 --itl-ms 20 --answer-tokens 2000"
    return program(prefix, ["-m", "tailrace.worker.sim", *engine.split()], Path(), "")


@asynccontextmanager
async def program(prefix: Sequence[str], arguments: Sequence[str], file: Path, admin: str) -> AsyncIterator[Served]:
    started = await asyncio.create_subprocess_exec(
        *prefix, sys.executable, *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    served = Served(started, file, admin)
    try:
        served.url = (await served.until("ready ", served.out)).removeprefix("ready ")
        yield served
    finally:
        # What has been started there holds its pipes, and would be missed by nobody.
        served.seen.update(family(started.pid))
        await served.kill()


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    return [pid, *(other for child in children(pid) for other in family(child))]


def freeze(served: Served, number: signal.Signals = signal.SIGSTOP) -> None:
    for pid in family(served.process.pid):
        os.kill(pid, number)


class Scene:
    """A gateway with two workers, the first of which can be cut off; some streams run."""

    def __init__(self, net: Network, gateway: Served, far: Served, url: str, near: str) -> None:
        self.net = net
        self.gateway = gateway
        self.far = far
        self.url = url
        self.near = near
        self._streams: list[RawClient] = []

    @property
    def front(self) -> str:
        return self.gateway.url

    async def value(self, name: str, **labels: str) -> float | None:
        """A metric of the worker that can be cut off."""
        lines = (await self.gateway.get("/metrics")).body.decode().splitlines()
        wanted = [f'worker="{self.url}"', *(f'{label}="{value}"' for label, value in labels.items())]
        found = [line for line in lines if line.startswith(f"tailrace_{name}{{") and all(one in line for one in wanted)]
        return sum(float(line.split()[-1]) for line in found) if found else None

    async def until(self, name: str, value: float, **labels: str) -> None:
        async with asyncio.timeout(20):
            while await self.value(name, **labels) != value:
                await asyncio.sleep(0.05)

    async def stream(self, count: int) -> None:
        for _ in range(count):
            client = await RawClient.connect(self.front)
            self._streams.append(client)
            await client.request("POST", CHAT, json.dumps(STREAMED | {"max_tokens": 2000}).encode())
            assert (await client.read_head()).status == 200
            await client.read_chunk()

    async def stream_there(self, count: int) -> None:
        """Streams that run at the worker that can be cut off."""
        async with RawClient(self.gateway.admin) as admin:
            assert (await admin.post("/admin/workers/drain", {"worker": self.near})).status == 200
            await self.stream(count)
            assert (await admin.post("/admin/workers/undrain", {"worker": self.near})).status == 200

    async def chat(self) -> Any:
        async with RawClient(self.front) as client:
            return await client.post(CHAT, HELLO)

    async def close(self) -> None:
        while self._streams:
            await self._streams.pop().close()


@asynccontextmanager
async def scene(folder: Path, net: Network, streams: int, *, sidecars: bool = True) -> AsyncIterator[Scene]:
    def worker(name: str, address: str, prefix: Sequence[str]) -> AbstractAsyncContextManager[Served]:
        yaml = f"role: worker\nengine: {ENGINE}\nlisten: {address}:0"
        return process(folder / name, yaml, prefix) if sidecars else bare(address, prefix)

    async with AsyncExitStack() as stack:
        far, near = await asyncio.gather(
            stack.enter_async_context(worker("far", net.address, net.there)),
            stack.enter_async_context(worker("near", "127.0.0.1", net.here)),
        )
        url = await net.way(far.url)
        front = f"unix:{folder / 'front.sock'}"
        gateway = await stack.enter_async_context(
            process(
                folder / "gateway",
                f"listen: {front}\nmodels: {{tiny: {{workers: ['{url}', '{near.url}']}}}}\nplugins: [route: {{}}]",
                net.here,
            )
        )
        it = Scene(net, gateway, far, url, near.url)
        gateway.url = front
        stack.push_async_callback(it.close)
        await it.until("worker_running", 0)
        await it.stream(streams)
        yield it


async def noticed(it: Scene) -> None:
    """It gets nothing more, others do; in the end it is given up."""
    await it.until("worker_suspect", 1)
    attempts = await it.value("attempts_total")
    for _ in range(6):
        assert (await it.chat()).status == 200
    assert await it.value("attempts_total") == attempts
    await it.until("worker_up", 0)
    assert await it.value("worker_last_sent_after_death_seconds") is not None


async def back(it: Scene) -> None:
    await it.until("worker_suspect", 0)
    await it.until("worker_up", 1)
    async with asyncio.timeout(20):
        before = await it.value("attempts_total") or 0
        while (await it.value("attempts_total") or 0) <= before:
            assert (await it.chat()).status == 200


@pytest.mark.parametrize(("streams", "evidence"), [(0, "heartbeat"), (8, "streams")])
def test_a_host_that_is_cut_off(tmp_path: Path, streams: int, evidence: str) -> None:
    async def body() -> None:
        async with network() as net, scene(tmp_path, net, streams) as it:
            net.cut()
            await noticed(it)
            assert await it.value("worker_suspected_total", evidence=evidence) == 1
            net.mend()
            await back(it)

    run(body(), limit=90)


@pytest.mark.skipif(not can_isolate(), reason="whoever carries bytes in a process acknowledges them for everybody")
@pytest.mark.parametrize("streams", [0, 1])
def test_the_host_of_an_engine_without_a_sidecar_is_cut_off(tmp_path: Path, streams: int) -> None:
    """With too few streams for their silence to say anything."""

    async def body() -> None:
        async with network() as net, scene(tmp_path, net, 0, sidecars=False) as it:
            await it.stream_there(streams)
            net.cut()
            await noticed(it)
            assert await it.value("worker_suspected_total", evidence="host") == 1
            await it.close()
            net.mend()
            await back(it)

    run(body(), limit=90)


def test_a_cable_that_goes_dead_will_do(tmp_path: Path) -> None:
    async def body() -> None:
        net = Cable()
        async with scene(tmp_path, net, 0) as it:
            net.cut()
            await noticed(it)
            net.mend()
            await back(it)
        net.unplug()

    run(body(), limit=90)


def test_a_frozen_sidecar_and_engine(tmp_path: Path) -> None:
    async def body() -> None:
        async with scene(tmp_path, Network(), 8) as it:
            freeze(it.far)
            await noticed(it)
            freeze(it.far, signal.SIGCONT)
            await back(it)

    run(body(), limit=90)


def test_a_frozen_engine_whose_sidecar_is_well(tmp_path: Path) -> None:
    async def body() -> None:
        async with scene(tmp_path, Network(), 8) as it:
            engine = family(it.far.process.pid)[-1]
            assert b"tailrace.worker.sim" in Path(f"/proc/{engine}/cmdline").read_bytes()
            os.kill(engine, signal.SIGSTOP)
            await noticed(it)
            os.kill(engine, signal.SIGCONT)
            await back(it)

    run(body(), limit=90)
