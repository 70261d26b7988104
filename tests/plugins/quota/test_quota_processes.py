"""A limit over several processes of a host: exactly that many without deaths, never more with them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from fakes import CHAT, GOOD, PATH, RawClient, Upstream, run, yaml_for
from served import QUICK, Served, engine, serving

LIMIT = 600
CALLERS = 24


def yaml_of(upstream: Upstream, folder: Path) -> str:
    more = f"{QUICK}processes: 2\nstate: {folder / 'state'}\n"
    quota = f"{{limits: [{{requests: {LIMIT}, per: total}}], unknown: closed}}"
    return yaml_for(upstream, plugins=f"- quota: {quota}", more=more)


async def calls(it: Served, count: int) -> list[int]:
    """The statuses of so many calls, over connections to all processes; those that were cut are left out."""
    left = iter(range(count))
    seen: list[int] = []

    async def caller() -> None:
        for _ in left:
            try:
                async with RawClient(it.url) as client:
                    seen.append((await client.post(PATH, CHAT)).status)
            except (OSError, asyncio.IncompleteReadError):
                continue

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return seen


def test_LIM_03_a_limit_is_one_for_all_processes(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream, serving(tmp_path, yaml_of(upstream, tmp_path)) as it:
            seen = await calls(it, 3 * LIMIT)
            assert seen.count(200) == LIMIT
            assert seen.count(429) == 2 * LIMIT

    run(body(), limit=50)


def test_a_killed_process_neither_opens_a_limit_nor_takes_of_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream, serving(tmp_path, yaml_of(upstream, tmp_path)) as it:
            before = (await calls(it, LIMIT // 4)).count(200)
            for _ in range(3):
                victims = it.processes
                killing = asyncio.ensure_future(calls(it, LIMIT // 6))
                await asyncio.sleep(0.05)
                os.kill(victims[0], signal.SIGKILL)
                before += (await killing).count(200)
                while len(set(it.processes) - set(victims[:1])) < 2:
                    await asyncio.sleep(0.02)
            before += (await calls(it, 3 * LIMIT)).count(200)
            # What was being answered when its process died has been counted and was not seen here.
            assert LIMIT - 3 * CALLERS <= before <= LIMIT

    run(body(), limit=50)


def test_a_killed_supervisor_leaves_the_count_to_the_next_one(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream:
            async with serving(tmp_path, yaml_of(upstream, tmp_path)) as it:
                first = (await calls(it, LIMIT // 2)).count(200)
                assert first == LIMIT // 2
                await it.kill()
            async with serving(tmp_path, yaml_of(upstream, tmp_path)) as it:
                assert (await calls(it, 2 * LIMIT)).count(200) == LIMIT - first

    run(body(), limit=50)


def test_a_frozen_supervisor_is_not_missed_while_leases_last_then_the_policy_holds(tmp_path: Path) -> None:
    async def body() -> None:
        async with Upstream(engine(GOOD)) as upstream, serving(tmp_path, yaml_of(upstream, tmp_path)) as it:
            before = await calls(it, CALLERS)
            assert before == [200] * CALLERS
            it.signal(signal.SIGSTOP)
            frozen = await calls(it, LIMIT)
            # A fresh lease is an eighth of what is left, and refilled at its half.
            assert frozen[:20] == [200] * 20
            assert frozen.count(200) + frozen.count(503) == LIMIT
            assert frozen.count(503) > 0
            it.signal(signal.SIGCONT)
            after: list[int] = []
            while 429 not in after:
                after += await calls(it, CALLERS)
            after += await calls(it, LIMIT)
            assert before.count(200) + frozen.count(200) + after.count(200) == LIMIT

    run(body(), limit=50)
