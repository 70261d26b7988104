"""Everything that runs for a scenario: the workers, the gateways, and the network between them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scenario import wiretap
from scenario.gateway import Tailrace
from scenario.machine import Meter
from scenario.network import Host, build_bridge, remove_bridge
from scenario.peers import Peer
from scenario.place import Place
from scenario.plan import Scenario
from scenario.worker import Worker


class Stage:
    """What a play acts on. `hosts`: whether each worker is on a host of its own."""

    def __init__(self, scenario: Scenario, place: Place, gateway: str) -> None:
        fleet = scenario.fleet
        self.hosts = fleet.hosts and place.alone
        self.may_listen = wiretap.permitted()
        numbers = range(1, fleet.workers + fleet.spare + 1)
        hosts = [Host(number) if self.hosts else None for number in numbers]
        self._hosts = [host for host in hosts if host is not None]
        if self._hosts:
            build_bridge()
        for host in self._hosts:
            host.plug_in()
        every = [Worker(number, fleet, place, host=host) for number, host in zip(numbers, hosts, strict=True)]
        self.workers, self.spares = every[: fleet.workers], every[fleet.workers :]
        self.tailraces: list[Tailrace] = []
        self.peer: Peer | None = None
        if gateway == "tailrace":
            config = scenario.gateway.config
            copies = range(scenario.gateway.copies)
            slots = int(fleet.engine.get("max_num_seqs", 256))
            self.tailraces = [Tailrace(number, place, config, slots=slots, hop=self.hosts) for number in copies]
        else:
            self.peer = Peer(gateway, place)

    @property
    def gateways(self) -> list[Tailrace] | list[Peer]:
        return self.tailraces if self.peer is None else [self.peer]

    def take_spares(self) -> list[Worker]:
        """The spare ones are part of the fleet from now on."""
        taken, self.spares = self.spares, []
        self.workers += taken
        return taken

    def meter(self) -> Meter:
        """Tells how busy the machine is, and with what of this."""
        return Meter(
            {"gateways": self.pids_of_gateways, "workers": self.pids_of_workers, "generator": lambda: [os.getpid()]}
        )

    def pids_of_workers(self) -> list[int]:
        return [pid for worker in self.workers for pid in worker.pids]

    def pids_of_gateways(self) -> list[int]:
        return [pid for gateway in self.gateways for pid in gateway.pids]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start everything; end it whatever happens."""
        try:
            await asyncio.gather(*(worker.start() for worker in self.workers))
            urls = [worker.url for worker in self.workers]
            await asyncio.gather(*(gateway.start(urls) for gateway in self.gateways))
            yield
        finally:
            for gateway in self.gateways:
                await gateway.stop()
            await asyncio.gather(*(worker.stop() for worker in (*self.workers, *self.spares)))
            for host in self._hosts:
                host.unplug()
            if self._hosts:
                remove_bridge()
