"""Prometheus counters and the ledger of the same calls, some of them aborted, some cut off by a kill: to the unit."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop
from fakes import Upstream
from served import Served, engine, launch, serving
from tailrace.proxy.money import parse

from kills.paying import Paying, engine_that_counts, yaml_that_bills

CLIENTS = 12
CALLS = 300
pytestmark = pytest.mark.timeout(120)
_SAMPLE = re.compile(r"tailrace_billing_([a-z_]+)\{?([^}]*)\}? (\S+)")


async def counted(it: Served) -> dict[str, int]:
    """The plugin's counters of the model, by name and kind; with them, how much is not in the log yet."""
    found: dict[str, Decimal] = {}
    for line in (await it.get("/metrics")).body.decode().splitlines():
        match = _SAMPLE.fullmatch(line)
        if match is not None:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
            found[f"{match[1]} {labels.get('kind', '')}".strip()] = Decimal(match[3])
    return {name: int(value) for name, value in found.items() if value == int(value)}


async def summed(state: Path) -> Any:
    """What the command says."""
    command = await launch("ledger", "sum", "--state", str(state), "--by", "model", "--format", "jsonl")
    out, _ = await command.communicate()
    assert command.returncode == 0
    [line] = out.splitlines()
    return orjson.loads(line)


async def at_rest(it: Served, state: Path) -> None:
    """Wait until nothing is under way and everything that was is in the log."""
    before: Any = None
    async with asyncio.timeout(30):
        while True:
            now = await counted(it), await summed(state)
            if now == before and not now[0]["waiting"]:
                return
            before = now
            await asyncio.sleep(0.3)


def test_counters_agree_with_the_ledger_to_the_unit(tmp_path: Path) -> None:
    async def body() -> None:
        state = tmp_path / "state"
        async with (
            Upstream(engine(engine_that_counts)) as upstream,
            serving(tmp_path, yaml_that_bills(tmp_path, upstream.url)) as it,
        ):
            load = Paying(lambda: it.url)
            clients = [asyncio.ensure_future(load.run()) for _ in range(CLIENTS)]
            for part in (1, 2, 3):
                while len(load.seen) < part * CALLS // 3 or len(it.processes) < 2:
                    await asyncio.sleep(0.02)
                if part < 3:
                    os.kill(it.processes[0], signal.SIGKILL)
            load.over = True
            await asyncio.gather(*clients)
            await at_rest(it, state)
            shown, sums = await counted(it), await summed(state)
            assert sums["calls"] >= CALLS - 2 * CLIENTS
            assert sums["orphans"] > 0
            assert parse(sums["lost_amount"]) > 0
            assert shown == shown | {
                "records_total": sums["calls"],
                "estimated_records_total": sums["estimated"],
                "tokens_total prompt": sums["prompt"],
                "tokens_total cached": sums["cached"],
                "tokens_total completion": sums["completion"],
                "amount_nano_total": parse(sums["amount"]),
                "lost_amount_nano_total": parse(sums["lost_amount"]),
                "orphans_total": sums["orphans"],
            }

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body())
