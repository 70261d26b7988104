"""What limits cost a call: `python loadtests/limits/admission.py`.

First the time of `on_request`, `on_answer` and `on_complete` of `quota` with leases held, for one limit and for five,
in a loop of its own. Then two gateways of two processes on one Valkey with a roomy limit, asked `--calls` times: how
many calls waited for a lease, and for how many nobody could tell.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import orjson
import uvloop
from rig import Scene
from tailrace.plugins.quota import Quota
from tailrace.plugins.quota.asking import Asking
from tailrace.plugins.quota.authority import Authority
from tailrace.plugins.quota.part import Part
from tailrace.plugins.quota.spend import Spend
from tailrace.plugins.quota.windows import Clock
from tailrace.proxy.body import JsonBody
from tailrace.proxy.ground import Ground, Places
from tailrace.proxy.head import Head
from tailrace.proxy.identity import Identity
from tailrace.proxy.limit import Limit
from tailrace.proxy.outcome import Ending, Outcome, Usage
from tailrace.proxy.tariff import Tariff

ONE = (Limit("requests", 10**8, "minute"),)
FIVE = (
    *ONE,
    Limit("tokens", 10**12, "minute"),
    Limit("tokens", 10**13, "day", "Europe/Berlin", "tenant"),
    Limit("money", 10**17, "month"),
    Limit("concurrent_requests", 10_000, None, of="model"),
)
RAW = orjson.dumps({"model": "m", "max_tokens": 256, "messages": [{"role": "user", "content": "x" * 1000}]})
ROUTE = SimpleNamespace(name="chat", local=None, anthropic=False)
TARIFF = Tariff("EUR", "1", (150_000_000, 15_000_000, 600_000_000, 0))


class FakeCall(dict[Any, Any]):
    """As much of a call as quota looks at."""

    def __init__(self, who: Identity) -> None:
        super().__init__()
        self.raw, self.body, self.model, self.route = RAW, JsonBody(RAW, 32), "m", ROUTE
        self.tries, self.source = [SimpleNamespace(sent_ns=1)], None
        self._facts: dict[type, Any] = {Identity: who, Tariff: TARIFF}

    def fact(self, kind: type) -> Any:
        """A typed fact."""
        return self._facts.get(kind)

    def provide(self, fact: object) -> None:
        """Another one."""
        self._facts[type(fact)] = fact


async def admissions(folder: Path, limits: tuple[Limit, ...], count: int) -> dict[str, float]:
    """The median microseconds of each phase."""
    places = Places(folder / "state", folder / "shared")
    for place in (places.state, places.shared):
        place.mkdir(parents=True)
    authority = Authority(places.shared / "quota", Clock())
    part = Part(authority, None, Spend(None, places.state))

    async def ask(_: str, what: str, fields: dict[str, Any]) -> Any:
        return await part.answer(0, what, orjson.loads(orjson.dumps(fields)))

    quota = Quota(Quota.Config())
    asking = quota._asking = Asking(Ground("quota", places, 0, ask))
    await asking.join()
    who = Identity(key="k", tenant="t", limits=limits)
    outcome = Outcome(Ending.COMPLETED, 200)
    outcome.usage = Usage(250, 40)
    took: dict[str, list[int]] = {"on_request": [], "on_answer": [], "on_complete": []}
    now = time.perf_counter_ns
    for number in range(count):
        call: Any = FakeCall(who)
        head = Head(200, [])
        at = now()
        waiting = quota.on_request(call)
        if waiting is None:
            took["on_request"].append(now() - at)
        else:
            await waiting
        at = now()
        quota.on_answer(call, head)
        took["on_answer"].append(now() - at)
        at = now()
        quota.on_complete(call, outcome)
        took["on_complete"].append(now() - at)
        if number % 64 == 0:
            await asyncio.sleep(0)
    await asking.leave()
    authority.close_books()
    return {phase: median(found) / 1000 for phase, found in took.items()}


async def shares(calls: int) -> dict[str, float]:
    """What processes of two gateways count, in sum."""
    folder = Path(tempfile.mkdtemp(prefix="limits-"))
    scene = Scene(folder, 10**7)
    found: dict[str, float] = {}
    try:
        async with scene.running():
            await scene.calls(calls)
            await asyncio.sleep(1.5)
            for number in range(2):
                reader, writer = await asyncio.open_unix_connection(str(folder / f"admin-{number}"))
                writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                page = (await reader.read()).decode()
                writer.close()
                for name, value in re.findall(r"^tailrace_quota_(\w+)_total(?:\{[^}]*\})? ([0-9.e+]+)$", page, re.M):
                    found[name] = found.get(name, 0) + float(value)
    finally:
        scene.remove()
    return found


async def main(given: argparse.Namespace) -> None:
    """Print the figures."""
    for name, limits in (("one limit", ONE), ("five limits", FIVE)):
        with tempfile.TemporaryDirectory() as folder:
            took = await admissions(Path(folder), limits, given.count)
        print(f"{name}: " + ", ".join(f"{phase} {micros:.1f} us" for phase, micros in took.items()))
    if given.calls:
        found = await shares(given.calls)
        admitted = found["admitted"]
        told = ", ".join(f"{name} {found.get(name, 0):.0f}" for name in ("admitted", "waited", "unknown"))
        print(f"two gateways, two processes each: {told}; {100 * found.get('waited', 0) / admitted:.2f}% waited")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000, help="how often a call is admitted in the loop")
    parser.add_argument("--calls", type=int, default=10_000, help="calls to the gateways; 0 leaves them out")
    sys.exit(uvloop.run(main(parser.parse_args())))
