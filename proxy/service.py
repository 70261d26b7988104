"""What all connections of one process share."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from tailrace.proxy.memory import BodyMemory
from tailrace.proxy.sweep import Sweep

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.outcome import Outcome
    from tailrace.proxy.server import ClientConnection


class Service:
    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.loop = asyncio.get_running_loop()
        self.sweep = Sweep(self.loop)
        self.clock = self.sweep.clock
        self.memory = BodyMemory(chain.limits.body_memory)
        self.connections: set[ClientConnection] = set()
        self.draining = False
        self._prefix = "req_" + os.urandom(6).hex()
        self._count = 0

    def next_id(self) -> str:
        self._count = count = self._count + 1
        return f"{self._prefix}{count:08x}"

    def connected(self, connection: ClientConnection) -> None:
        self.connections.add(connection)

    def disconnected(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)

    def refused(self, fault: Fault) -> None:
        pass

    def plugin_failed(self, name: str) -> None:
        pass

    def completed(self, call: Call, outcome: Outcome) -> None:
        pass
