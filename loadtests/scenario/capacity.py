"""What a fleet can carry: the rates of every scenario are shares of it. Measured with all its slots taken."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import orjson
from openloop.connections import Connections, Endpoint
from openloop.dialects import DIALECTS
from openloop.record import Record

from scenario.machine import Meter
from scenario.patience import until
from scenario.plan import Scenario
from scenario.prompts import Prompts
from scenario.shot import Shot
from scenario.stage import Stage

ALL_BUSY = 0.9
"""Above this the machine is the limit, whoever uses it."""
PLENTY = 1.25
"""So many times the fleet's slots are kept under way."""
_NOT_NOW = (429, 503, 504)
_AGAIN = 0.2
LIMIT = 600 * 1_000_000_000
SLOTS = 256
"""vLLM's own default of max_num_seqs."""


class CapacityError(Exception):
    """It could not be measured."""


def key(scenario: Scenario, load: str) -> str:
    """What the capacity of a worker hangs on: how fast its engine is, and what it is asked."""
    asked = scenario.load[load]
    described = orjson.dumps(
        [scenario.fleet.kind, scenario.fleet.engine, asked.prompts, asked.words, asked.answers],
        option=orjson.OPT_SORT_KEYS,
    )
    return hashlib.sha256(described).hexdigest()[:16]


def known(file: Path, scenario: Scenario) -> dict[str, float] | None:
    """The capacities that an earlier measurement has left, None where one is missing."""
    found: dict[str, float] = {}
    with suppress(OSError, ValueError):
        found = orjson.loads(file.read_bytes())
    rates = {}
    for load, described in scenario.load.items():
        rate = described.per_s or found.get(key(scenario, load), 0.0) * scenario.fleet.workers
        if not rate:
            return None
        rates[load] = rate
    return rates


def keep(file: Path, scenario: Scenario, rates: dict[str, float]) -> None:
    """Leave them, a worker, for the scenarios to come."""
    found: dict[str, float] = {}
    with suppress(OSError, ValueError):
        found = orjson.loads(file.read_bytes())
    found |= {
        key(scenario, load): rate / scenario.fleet.workers
        for load, rate in rates.items()
        if not scenario.load[load].per_s
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))


async def measure(stage: Stage, scenario: Scenario, prompts: dict[str, Prompts], most_busy: float) -> dict[str, float]:
    """Answers a second through the gateway, by load; CapacityError where the machine and not the fleet is the limit."""
    slots = len(stage.workers) * int(scenario.fleet.engine.get("max_num_seqs", SLOTS))
    rates = {}
    for name, each in prompts.items():
        if scenario.load[name].per_s:
            rates[name] = scenario.load[name].per_s
            continue
        meter = stage.meter()
        rates[name] = await _saturated(stage.gateways[0].at, each, round(slots * PLENTY), meter)
        use = meter.use
        if use.own > most_busy or use.busy > ALL_BUSY:
            raise CapacityError(
                f"with all slots taken the machine was {use.told}: its capacity is not the fleet's; wait, or give the "
                "engines fewer slots or a slower beat"
            )
    return rates


async def _saturated(at: str, prompts: Prompts, at_once: int, meter: Meter) -> float:
    """Completions a second of a closed loop, from the first whole round of it on."""
    host, _, port = at.rpartition(":")
    ended: list[int] = []
    failed: list[str] = []
    numbers: Iterator[int] = count()
    going = True
    loop = asyncio.get_running_loop()

    def send() -> None:
        if not going:
            return
        number = next(numbers)
        now = time.monotonic_ns()
        shot = Shot(number, 0, True, now, 0, 0, prompt=number % prompts.count)
        connections.send(shot, prompts.request(shot.prompt))

    def finished(record: Record) -> None:
        if record.status in _NOT_NOW:
            # More are under way than a chain with budgets carries: that is no fault, and asked again.
            if going:
                loop.call_later(_AGAIN, send)
        elif kind := record.error_kind():
            failed.append(f"{kind}: {record.detail}")
        elif going:
            ended.append(record.end)
            send()

    async def whole_round() -> bool:
        return len(ended) >= at_once or bool(failed)

    connections = Connections(
        Endpoint(host, int(port), host, None),
        DIALECTS["chat"],
        stream=True,
        keepalive=True,
        limit=at_once,
        timeout=LIMIT,
        on_finished=finished,
    )
    for _ in range(at_once):
        send()
    began = time.monotonic_ns()
    await until(whole_round)
    round_ns = time.monotonic_ns() - began
    meter.begin()
    first = time.monotonic_ns()
    await asyncio.sleep(max(6.0, 2 * round_ns / 1e9))
    last = time.monotonic_ns()
    meter.end()
    going = False
    connections.interrupt(last)
    await connections.close()
    if failed:
        raise CapacityError(f"{len(failed)} requests failed though nothing happened to the fleet, such as {failed[0]}")
    return round(sum(first <= end < last for end in ended) / ((last - first) / 1e9), 2)
