"""A gateway between fuzzed peers, and what must hold of it whatever they do."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from cases.witness import Witness
from fakes import gateway
from tailrace.proxy.gateway import GatewayProcess

from fuzz.answers import Got, read_all
from fuzz.peers import Answering, Client, Workers

SECONDS = float(os.environ.get("TAILRACE_FUZZ_SECONDS", "0"))
CASES = 6000
WAVE = 40
QUIET = 0.04
BARE_CHAINS = ("[cases.witness:Witness]", "[cases.witness:Tapped]", "[cases.witness:Editing]")
"""Those that leave every event as it is."""
CHAINS = (
    *BARE_CHAINS,
    "[fuzz.needy:Needy]",
    "[cases.witness:Witness, {redact: {}}, {guard: {max_tokens: {cap: 4}}}, {cors: {origins: ['*']}}, {route: {}}]",
)


class Arena:
    """The gateway, its worker, and what went wrong that no peer could see."""

    def __init__(self, process: GatewayProcess, workers: Workers) -> None:
        self.process = process
        self.workers = workers
        self.wrong: list[str] = []
        self.witness: Any = next(
            link.plugin for link in process.service.chain.pipeline.links if isinstance(link.plugin, Witness)
        )
        self._address = process.doors[0].shown.removeprefix("http://").split(":")
        self._tasks = len(asyncio.all_tasks())

    async def ask(self, pieces: list[bytes], *, patience: float = 0.0, reset: bool = False) -> list[Got]:
        """One client's connection; everything it got is read strictly. `patience` is for an answer that must come."""
        host, port = self._address
        _, client = await asyncio.get_running_loop().create_connection(Client, host, int(port))
        await client.send(pieces)
        await client.listen(QUIET, patience)
        await client.leave(reset=reset)
        return read_all(client.got)

    async def settle(self) -> None:
        """Wait until nothing is left of any call or connection; raises with what is."""
        end = time.monotonic() + 10
        while left := self._left():
            if time.monotonic() > end:
                raise AssertionError(f"left behind: {left}")
            await asyncio.sleep(0.01)
        outcomes = len(self.witness.outcomes)
        assert len({call.id for call in self.witness.calls}) == outcomes, "a call ended twice"
        for record in (self.witness.heads, self.witness.attempts, self.witness.ends, self.witness.calls):
            record.clear()
        self.witness.outcomes.clear()
        assert not self.workers.complaints, self.workers.complaints
        assert not self.wrong, self.wrong

    def _left(self) -> dict[str, int]:
        service = self.process.service
        held = {
            "calls": service.active,
            "bytes of bodies": service.memory.used,
            "connections": len(service.connections),
            "tasks": max(0, len(asyncio.all_tasks()) - self._tasks),
        }
        for worker in self.process.roster.workers:
            held["attempts"] = worker.inflight
            held["worker connections in use"] = worker.connections.open - worker.connections.resting
        return {name: count for name, count in held.items() if count}


class _Records(logging.Handler):
    """What the gateway logs as an error: a fault of its own."""

    def __init__(self, wrong: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._wrong = wrong

    def emit(self, record: logging.LogRecord) -> None:
        self._wrong.append(logging.Formatter().format(record))


@asynccontextmanager
async def arena(answering: Answering, plugins: str) -> AsyncIterator[Arena]:
    """A gateway with one worker; leaving checks that everything is given back."""
    async with AsyncExitStack() as stack:
        workers = await stack.enter_async_context(Workers(answering))
        yaml = f"""
            listen: [127.0.0.1:0]
            models: {{m: {{workers: ["{workers.url}"]}}}}
            plugins: {plugins}
            limits: {{body: 64KiB, head: 8KiB, headers: 40}}
            heartbeat: 20ms
        """
        process = await stack.enter_async_context(gateway(yaml))
        here = Arena(process, workers)
        asyncio.get_running_loop().set_exception_handler(lambda _, context: here.wrong.append(str(context)))
        records = _Records(here.wrong)
        logger = logging.getLogger("tailrace")
        logger.addHandler(records)
        stack.callback(logger.removeHandler, records)
        yield here
        await here.settle()


async def waves(here: Arena, seed: int, case: Callable[[random.Random], Awaitable[None]], share: float = 1.0) -> int:
    """Cases in waves, each with a seed of its own that a failure names; how many there were."""
    count = 0
    for numbers in _numbers(seed, share):

        async def one(number: int) -> None:
            try:
                await case(random.Random(number))
            except Exception as error:
                raise AssertionError(f"case {number}: {error}") from error

        await asyncio.gather(*(one(number) for number in numbers))
        await here.settle()
        count += len(numbers)
    return count


def _numbers(seed: int, share: float) -> Iterator[range]:
    start = seed if not SECONDS else random.SystemRandom().randrange(1 << 40)
    end = time.monotonic() + SECONDS * share
    at = start
    while time.monotonic() < end if SECONDS else at < start + CASES * share:
        yield range(at, at + WAVE)
        at += WAVE
