"""Does a limit hold while what keeps it is killed, frozen or emptied? `python loadtests/limits/proof.py`.

Two gateways of two processes each share one limit over a real Valkey. Calls go to both; in the middle of them a
scenario strikes. What was admitted is counted at the workers. For each scenario it prints how many calls were admitted,
and the bound: how far that may be below the limit. It is never above. Ends with 1 where one of the two does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rig import CALLERS, Scene, Server

_LONGEST = 180
"""Seconds for a scenario."""
Bound = Callable[[Scene], int]
Strike = Callable[[Scene], Awaitable[Bound]]


def none(s: Scene) -> int:
    """Not one call is missing."""
    return 0


def one_process(s: Scene) -> int:
    """What was between admission and worker in whatever was killed, or was cut on its way to the client."""
    return CALLERS


async def nothing(s: Scene) -> Bound:
    """Nobody is disturbed."""
    return none


async def process_killed(s: Scene) -> Bound:
    """One of the four."""
    s.gateways[0].signal(signal.SIGKILL, s.gateways[0].processes[0])
    return one_process


async def supervisor_killed(s: Scene) -> Bound:
    """Its processes end by themselves; another takes its place."""
    gateway = s.gateways[0]
    gateway.signal(signal.SIGKILL)
    await gateway.gone()
    await gateway.start()
    return one_process


async def gateway_restarted(s: Scene) -> Bound:
    """All of its processes at once, and started again."""
    await _kill_whole(s)
    await s.gateways[0].start()
    return one_process


async def gateway_killed(s: Scene) -> Bound:
    """For good: what it was given counts as spent until the window ends."""
    await _kill_whole(s)
    await s.look()
    lost = s.given_to(0) - s.seen[0]
    return lambda s: lost


async def _kill_whole(s: Scene) -> None:
    gateway = s.gateways[0]
    gateway.signal(signal.SIGSTOP)
    gateway.signal(signal.SIGKILL, *gateway.processes, gateway.pid)
    await gateway.gone()


async def store_killed(s: Scene) -> Bound:
    """And started again, empty: the window gives nothing more than hosts had."""
    await s.look()
    lost = s.limit - sum(s.given.values())
    s.store.signal(signal.SIGKILL)
    await s.store.gone()
    await asyncio.sleep(0.5)
    await s.store.start()
    return lambda s: lost


async def store_flushed(s: Scene) -> Bound:
    """The same without an outage."""
    await s.look()
    lost = s.limit - sum(s.given.values())
    await s.ask_store("FLUSHALL")
    return lambda s: lost


async def store_frozen(s: Scene) -> Bound:
    """For two seconds, as the following."""
    return await _frozen(s.store, s.store.pid)


async def supervisor_frozen(s: Scene) -> Bound:
    """The authority of one host does not answer."""
    return await _frozen(s.gateways[0], s.gateways[0].pid)


async def process_frozen(s: Scene) -> Bound:
    """With leases, and calls under way."""
    return await _frozen(s.gateways[0], s.gateways[0].processes[0])


async def gateway_frozen(s: Scene) -> Bound:
    """All of it."""
    return await _frozen(s.gateways[0], s.gateways[0].pid, *s.gateways[0].processes)


async def _frozen(server: Server, *pids: int) -> Bound:
    server.signal(signal.SIGSTOP, *pids)
    await asyncio.sleep(2)
    server.signal(signal.SIGCONT, *pids)
    return none


SCENARIOS: tuple[Strike, ...] = (
    nothing,
    process_killed,
    process_frozen,
    supervisor_killed,
    supervisor_frozen,
    gateway_restarted,
    gateway_killed,
    gateway_frozen,
    store_killed,
    store_frozen,
    store_flushed,
)


async def prove(strike: Strike, limit: int, calls: int) -> bool:
    """Run a scenario and print what came of it; whether the limit held."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="limits-"))
    scene = Scene(folder, limit)
    try:
        async with asyncio.timeout(_LONGEST), scene.running():
            load = asyncio.ensure_future(scene.calls(calls))
            reached = asyncio.ensure_future(scene.reached(limit * 3 // 10))
            await asyncio.wait([load, reached], return_when=asyncio.FIRST_COMPLETED)
            reached.cancel()
            bound = (await strike(scene))(scene)
            await load
            # Whoever was refused for want of an answer comes again, until all are refused for want of room.
            for _ in range(60):
                before = scene.admitted
                await asyncio.sleep(0.3)
                await scene.calls(CALLERS)
                if scene.admitted == before and await settled(scene):
                    break
    finally:
        scene.remove()
    held = limit - bound <= scene.admitted <= limit
    statuses = " ".join(f"{status or 'cut'}:{count}" for status, count in sorted(scene.statuses.items()))
    print(
        f"{strike.__name__:18} admitted {scene.admitted:5} of {limit}, bound {bound:4}  "
        f"{'holds' if held else 'DOES NOT HOLD'}  ({statuses}; {time.monotonic() - began:.1f} s)",
        flush=True,
    )
    return held


async def settled(scene: Scene) -> bool:
    """Whether calls get an honest refusal, and leases that lay idle had the time to go back."""
    before = scene.statuses[429]
    for _ in range(3):
        await asyncio.sleep(1.0)
        admitted = scene.admitted
        await scene.calls(CALLERS)
        if scene.admitted != admitted:
            return False
    return scene.statuses[429] > before


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--at-once", action="store_true", help="all scenarios beside each other")
    parser.add_argument("--only", default="", help="names of scenarios, with commas between them")
    given = parser.parse_args()
    chosen = [strike for strike in SCENARIOS if not given.only or strike.__name__ in given.only.split(",")]
    if not chosen:
        parser.error(f"scenarios are {', '.join(strike.__name__ for strike in SCENARIOS)}")

    async def all_of(strikes: Sequence[Strike]) -> list[bool]:
        return await asyncio.gather(*(prove(strike, given.limit, given.calls) for strike in strikes))

    turns = [chosen] if given.at_once else [[strike] for strike in chosen]
    held = [each for strikes in turns for each in asyncio.run(all_of(strikes))]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
