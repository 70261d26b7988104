"""Limits that two gateways share over a real Valkey, which is killed, frozen and emptied meanwhile."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from fakes import CHAT, PATH, RawClient, run
from pairs import pair
from valkeys import valkey


def test_LIM_03_two_gateways_admit_exactly_the_limit(tmp_path: Path) -> None:
    async def body() -> None:
        async with pair(tmp_path, "[{requests: 300, per: day}]") as s:
            assert await s.calls(1200) == {200: 300, 429: 900}

    run(body())


def test_an_emptied_store_gives_nothing_more_in_windows_that_run(tmp_path: Path) -> None:
    async def body() -> None:
        async with pair(tmp_path, "[{requests: 300, per: day}]") as s:
            first = await s.calls(100)
            assert first == {200: 100}
            await s.store.flush()
            later = await s.calls(1000)
            assert later[200] + 100 <= 300
            await s.up()
            assert (await s.calls(200))[200] == 0
            assert sum(part._store.epochs for part in s.parts()) >= 1  # type: ignore[union-attr]

    run(body())


def test_an_emptied_store_serves_the_next_window(tmp_path: Path) -> None:
    async def body() -> None:
        async with pair(tmp_path, "[{requests: 50, per: second}]") as s:
            await s.calls(20)
            await s.store.flush()
            async with asyncio.timeout(20):
                while (await s.calls(10))[200] < 10:
                    await asyncio.sleep(0.3)

    run(body())


def test_LIM_05_leases_last_over_a_frozen_store_then_the_policy_holds_and_it_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tailrace")

    async def body() -> None:
        async with pair(tmp_path, "[{requests: 400, per: day}]") as s:
            assert (await s.calls(40)) == {200: 40}
            s.store.freeze()
            frozen = await s.calls(400)
            assert frozen[200] > 100
            assert frozen[200] + frozen[503] == 400
            await s.up(up=False)
            s.store.thaw()
            await s.up()
            rest = await s.calls(800)
            assert rest[200] == 400 - 40 - frozen[200]
            said = [record.message for record in caplog.records if "store of limits" in record.message]
            assert len(said) == 2 * 3  # up, away, up again: a line each, on each host

    run(body())


def test_a_killed_store_comes_back_empty_and_passes_nobody(tmp_path: Path) -> None:
    async def body() -> None:
        async with pair(tmp_path, "[{requests: 400, per: day}]", unknown="open") as s:
            first = (await s.calls(40))[200]
            await s.store.kill()
            assert (await s.calls(60))[200] == 60
            await s.store.start()
            await s.up()
            rest = await s.calls(1000)
            assert first + 60 + rest[200] <= 400 + 60

    run(body())


def test_what_runs_at_once_is_shared_and_comes_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with pair(tmp_path, "[{concurrent_requests: 6}]") as s:
            for _ in range(3):
                seen = await s.calls(60, at_once=4)
                assert seen[200] > 0
                await asyncio.sleep(0.1)

    run(body())


def test_LIM_06_scripts_that_were_lost_are_loaded_again(tmp_path: Path) -> None:
    async def body() -> None:
        from redis.asyncio import Redis

        async with pair(tmp_path, "[{requests: 300, per: day}]") as s:
            await s.calls(100)
            async with Redis.from_url(s.store.url) as client:
                await client.script_flush()
            assert (await s.calls(1000))[200] == 200

    run(body())


def test_LIM_06_scripts_may_not_be_loaded_ahead(tmp_path: Path) -> None:
    async def body() -> None:
        async with pair(tmp_path, "[{requests: 300, per: day}]", acl="-script") as s:
            assert await s.calls(600) == {200: 300, 429: 300}

    run(body())


def test_LIM_06_a_store_that_may_not_be_written_is_away_and_metrics_say_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with pair(tmp_path, "[{requests: 400, per: day}]") as s, valkey(tmp_path) as master:
            assert await s.calls(40) == {200: 40}
            await s.store.command("REPLICAOF", "127.0.0.1", str(master.port))
            await s.up(up=False)
            assert all(("store_up", {}, 0.0) in list(part.metrics()) for part in s.parts())
            seen = await s.calls(600)
            assert seen[200] <= 360
            assert seen[503] > 0
            assert sum(quota.unknown for quota in s.quotas()) == seen[503]
            await s.store.command("REPLICAOF", "NO", "ONE")
            await s.up()
            assert all(("store_up", {}, 1.0) in list(part.metrics()) for part in s.parts())

    run(body())


def test_what_one_host_leaves_idle_the_other_can_have(tmp_path: Path) -> None:
    async def body() -> None:
        async with pair(tmp_path, "[{requests: 100, per: day}]") as s:
            async with RawClient(s.processes[0].doors[0].shown) as client:
                assert (await client.post(PATH, CHAT)).status == 200
            await asyncio.sleep(3.2)
            async with RawClient(s.processes[1].doors[0].shown) as client:
                seen = [(await client.post(PATH, CHAT)).status for _ in range(120)]
            assert seen.count(200) == 99

    run(body())
