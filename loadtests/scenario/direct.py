"""From a scenario to its report: the right answers, the fleet, its capacity, and the play."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop

from scenario import calm, capacity, http
from scenario.machine import Meter
from scenario.network import NetworkError
from scenario.place import MODEL, Place
from scenario.plan import Scenario
from scenario.play import MOST_BUSY, Report, play
from scenario.programs import Program, ProgramError, prefer
from scenario.prompts import Prompts
from scenario.stage import Stage

IDLE = 0.2
"""A machine that others use less than this is quiet."""
BEFORE_ALL = -15
"""The generator's own priority: what it is late is counted as the gateway's."""
CALM_START = 30.0


@dataclass(frozen=True, slots=True)
class Direction:
    """How a scenario is to be played."""

    gateway: str
    capacity: Path
    quiet: float
    tries: int


def direct(scenario: Scenario, place: Place, direction: Direction) -> Report | str:
    """The report, or why there is none."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_direct(scenario, place, direction))
    except (ProgramError, NetworkError, calm.CalmError, capacity.CapacityError, OSError) as error:
        return str(error)


async def _direct(scenario: Scenario, place: Place, direction: Direction) -> Report:
    prefer(0, BEFORE_ALL)
    stage = Stage(scenario, place, direction.gateway)
    headers = stage.gateways[0].headers
    prompts = {name: Prompts(name, load, MODEL, scenario.seed, headers) for name, load in scenario.load.items()}
    right = await _right_answers(scenario, place, prompts) if scenario.fleet.kind == "sim" else None
    left = direction.tries
    while True:
        async with stage.running():
            if right is None:
                right = await calm.answers(stage.workers[0].at, prompts, at_once=8)
            await _quiet(direction.quiet)
            rates = capacity.known(direction.capacity, scenario)
            if rates is None:
                rates = await capacity.measure(stage, scenario, prompts, MOST_BUSY)
                capacity.keep(direction.capacity, scenario, rates)
            report = await play(stage, scenario, prompts, right, rates)
            left -= 1
            while report.void and left and len(stage.spares) == scenario.fleet.spare:
                _tell_of(report)
                await _quiet(direction.quiet)
                report = await play(stage, scenario, prompts, right, rates)
                left -= 1
        if not report.void or not left:
            return report
        # A fleet that has grown is not what the play begins with.
        _tell_of(report)
        stage = Stage(scenario, place, direction.gateway)


def _tell_of(report: Report) -> None:
    print(f"void, once more: {'; '.join(report.void)}", flush=True)


async def _right_answers(scenario: Scenario, place: Place, prompts: dict[str, Prompts]) -> calm.Answers:
    """From an engine that says the same as those of the fleet, but takes no time for it."""
    length = scenario.fleet.engine.get("max_model_len", 2048)
    at = f"127.0.0.1:{place.port()}"
    pace = ("--ttft-ms=0", "--itl-ms=0", "--prefill-tokens-per-s=0", f"--max-model-len={length}")
    where = ("--port", at.rpartition(":")[2], "--served-model-name", MODEL)
    engine = Program("calm", (*place.tailrace, "sim", *where, *pace), place.log("calm"))
    engine.start()
    try:
        await engine.ready(lambda: http.answers(at, "/health"), CALM_START)
        return await calm.answers(at, prompts)
    finally:
        await engine.stop()


async def _quiet(most: float) -> None:
    """Wait for a second in which others hardly use the machine."""
    deadline = time.monotonic() + most
    while time.monotonic() < deadline:
        meter = Meter({})
        meter.begin()
        await asyncio.sleep(1.0)
        meter.end()
        if meter.use.busy < IDLE:
            return
    print("others are using the machine", flush=True)
