"""An engine that dies behind its API server: calls that it fails tell of it before the next health check does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fakes import RawClient, run, until
from sidecars import CHAT, HELLO, STREAMED, found, sidecar, simulated, url_of
from tailrace.worker.engine.state import Phase
from tailrace.worker.sidecar import SidecarProcess
from tailrace.worker.sim import Fault, Sim

RARE = {"health": 3600, "poll": 3600, "quiet_poll": 3600}


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[Sim, SidecarProcess, RawClient]]:
    """A sidecar and its engine, after its first look at the engine's health and long before the second."""
    async with simulated() as sim, sidecar(found(sim.url, **RARE)) as process, RawClient(url_of(process)) as client:
        # One before each part of a start, and one with which the watch begins.
        await until(lambda: [request.path for request in sim.received].count("/health") == 3)
        yield sim, process, client


@pytest.mark.parametrize("after", [0, 2], ids=["before-it", "within-it"])
def test_a_stream_that_ends_with_the_engines_death_brings_the_health_check_forward(after: int):
    async def body():
        async with watched() as (sim, process, client):
            sim.fail(Fault(fail="engine_killed", after_tokens=after, count=1))
            await client.post(CHAT, STREAMED)
            await until(lambda: process.report.engine.phase is Phase.SUSPECT)
            assert process.unready()

    run(body())


def test_an_error_that_tells_of_the_engines_death_brings_the_health_check_forward():
    async def body():
        async with watched() as (sim, process, client):
            sim.fail(Fault(fail="engine_killed"))
            assert process.report.engine.ready
            assert (await client.post(CHAT, HELLO)).status == 500
            await until(lambda: process.report.engine.phase is Phase.SUSPECT)

    run(body())


@pytest.mark.parametrize("after", [None, 2], ids=["refused", "cut"])
def test_a_lost_connection_brings_the_health_check_forward(after: int | None):
    async def body():
        async with watched() as (sim, process, client):
            sim.fail(Fault(fail="server_killed", rst=True, after_tokens=after))
            await client.post(CHAT, STREAMED)
            await until(lambda: process.report.engine.phase is Phase.SUSPECT)

    run(body())


def test_what_is_wrong_with_a_request_says_nothing_of_the_engine():
    async def body():
        async with watched() as (sim, process, client):
            sim.fail(Fault(fail="unhealthy"))
            assert (await client.post(CHAT, {**HELLO, "temperature": -1})).status == 400
            assert (await client.post(CHAT, HELLO)).status == 200
            assert process.report.engine.ready

    run(body())
