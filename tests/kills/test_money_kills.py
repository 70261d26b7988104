"""Processes and supervisors of a gateway that bills, killed under load: every call is charged once, and rightly."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest
import uvloop
from fakes import Upstream
from served import Served, alive, engine, serving
from tailrace.proxy.ledger.segments import FOLDER
from tailrace.proxy.ledger.sinks import sink_of
from tailrace.proxy.ledger.sums import in_log
from tailrace.proxy.ledger.verify import verify

from kills.paying import Paying, engine_that_counts, judge, yaml_that_bills

KILLS = int(os.environ.get("TAILRACE_KILLS", "20"))
EACH = 5
"""So many kills until the supervisor is the one; then the whole service starts again."""
CLIENTS = 12
EVER = 2**63 - 1
pytestmark = pytest.mark.timeout(90 + 8 * KILLS)


async def killed_some(it: Served, load: Paying, chance: random.Random, kills: int) -> None:
    """Kill processes one after the other, at any moment, and then the supervisor."""
    for number in range(kills):
        enough = len(load.seen) + 2 * CLIENTS
        while len(load.seen) < enough or len(it.processes) < 2:
            await asyncio.sleep(0.02)
        await asyncio.sleep(chance.uniform(0, 0.2))
        last = number == kills - 1
        os.kill(it.process.pid if last else chance.choice(it.processes), signal.SIGKILL)
    # What its death leaves alone must end by itself before another may begin.
    async with asyncio.timeout(30):
        while any(map(alive, it.seen)):
            await asyncio.sleep(0.02)


def test_every_call_is_charged_once_whatever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(11)
    state = tmp_path / "state"

    async def body() -> None:
        async with Upstream(engine(engine_that_counts)) as upstream:
            yaml, url = yaml_that_bills(tmp_path, upstream.url), ["http://127.0.0.1:1"]
            load = Paying(lambda: url[0])
            clients = [asyncio.ensure_future(load.run()) for _ in range(CLIENTS)]
            left = KILLS
            while left > 0:
                async with serving(tmp_path, yaml) as it:
                    url[0] = it.url
                    await killed_some(it, load, chance, min(EACH, left))
                    left -= EACH
                failed = [client for client in clients if client.done()]
                assert not failed, await asyncio.gather(*failed)
            async with serving(tmp_path, yaml) as it:
                url[0] = it.url
                await asyncio.sleep(0.5)
                load.over = True
                await asyncio.gather(*clients)
                it.signal(signal.SIGTERM)
                assert await it.end() == 0
            records = list(in_log(state / FOLDER, 0, EVER))
            kinds = judge(load.seen, records, KILLS)
            print(dict(kinds))
            assert kinds["whole"] > 10 * KILLS
            assert kinds["orphans"] > KILLS / 2
            assert kinds["cut"] > KILLS / 2, "nothing was killed in the middle"
            sink = sink_of(None, state)
            shipped = sorted(record.charge_key for record in sink.records(0, EVER))
            assert shipped == sorted(record.charge_key for record in records)
            ledger = (state / FOLDER / "00000001.log").read_bytes().partition(b'"ledger":"')[2].partition(b'"')[0]
            assert verify(state / FOLDER, sink.seals(ledger.decode())).faults == []
            sink.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body())
