"""What all connections of one process share: the present chain, the clock, memory, and who hears of a call's end."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tailrace.proxy.limits import Limits
from tailrace.proxy.memory import BodyMemory
from tailrace.proxy.metrics.process import ProcessMetrics
from tailrace.proxy.share import Share
from tailrace.proxy.sweep import Sweep
from tailrace.proxy.trace.ring import Ring
from tailrace.proxy.turned_away import ONE_ADDRESS, TOO_MANY, TurnedAway

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.chain import Chain
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.holding import Holdings
    from tailrace.proxy.metrics import Segment
    from tailrace.proxy.outcome import Outcome
    from tailrace.proxy.server import ClientConnection


class Service:
    """The shared part of one process."""

    chain: Chain

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, segment: Segment | None = None) -> None:
        self.loop = loop
        self.context = contextvars.copy_context()
        """What every call's own context begins as."""
        self.metrics = ProcessMetrics(segment)
        self._count_call = self.metrics.calls.completed
        self.sweep = Sweep(loop)
        self.clock = self.sweep.clock
        self.memory = BodyMemory(limits.body_memory)
        self.connections: set[ClientConnection] = set()
        self.turned_away = TurnedAway(self.metrics.calls)
        self.sweep.add(self.turned_away)
        self.ring = Ring()
        """The last calls, for whoever asks what became of one."""
        self._note_call = self.ring.note
        self.sweep.add(self.ring)
        self._processes = 0
        self._crowd: dict[str, int] = {}
        self.share: Share | None = None
        """This process's part of new connections, where several accept from the same sockets."""
        self.draining = False
        self.watched = False
        self.ready = True
        self.host_unready: Callable[[], Sequence[str]] = list
        """Why the whole host should get no new traffic."""
        self.active = 0
        """Calls that are being served."""
        self.listening = 0
        """Feeds that are being read, which end when their readers want: no calls, though they come as such."""
        self._prefix = "req_" + os.urandom(6).hex()
        self._count = 0
        self._retiring: dict[int, tuple[Chain, Holdings]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def use(self, chain: Chain, held: Holdings | None) -> None:
        """Serve new calls by `chain`; what the old one's plugins hold is closed once its last call is over."""
        old = getattr(self, "chain", None)
        self.chain = chain
        # How many processes there are changes only with a restart.
        self._processes = self._processes or chain.processes
        self.memory.allot(chain.limits, self._processes)
        if old is not None and held is not None:
            self._retiring[old.generation] = (old, held)
            self.retire(old)

    def unready(self) -> list[str]:
        """Why the process itself should get no new traffic."""
        if self.draining:
            return ["shutting down"]
        return [] if self.ready else ["starting"]

    def next_id(self) -> str:
        """A request id: unique to this process's life, and to the request."""
        self._count = count = self._count + 1
        return self._prefix + str(count)

    def full(self, arriving: int = 0) -> bool:
        """Whether another client is one too many, and is counted as turned away; `arriving` are no connections yet."""
        if len(self.connections) + arriving < self.chain.limits.connections:
            return False
        self.turned_away.note(TOO_MANY)
        return True

    def connected(self, connection: ClientConnection) -> None:
        """A client connected; above a limit it is turned away at once."""
        peer, most = connection.peer, self.chain.limits.connections_per_address
        self._crowd[peer.address] = count = self._crowd.get(peer.address, 0) + 1
        if self.full():
            connection.transport.abort()
        elif 0 < most < count and not peer.trusted and peer.address != "unix":
            self.turned_away.note(ONE_ADDRESS)
            connection.transport.abort()
        self.connections.add(connection)
        if self.share is not None:
            self.share.note(len(self.connections))

    def disconnected(self, connection: ClientConnection) -> None:
        """A client's connection has ended."""
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        if self.share is not None:
            self.share.note(len(self.connections))
        address = connection.peer.address
        self._crowd[address] -= 1
        if not self._crowd[address]:
            del self._crowd[address]

    def began(self) -> None:
        """A call begins to be served."""
        self.active += 1

    def began_to_listen(self) -> None:
        """A call turns out to be the reading of a feed."""
        self.active -= 1
        self.listening += 1

    def ended_listening(self) -> None:
        """The reading is over: its end is that of a call."""
        self.listening -= 1
        self.active += 1

    def refused(self, fault: Fault) -> None:
        """A request was refused before it became a call."""
        self.metrics.calls.refused(fault)

    def plugin_failed(self, name: str) -> None:
        """A plugin failed or took too long."""
        self.metrics.calls.plugin_failed(name)

    def completed(self, call: Call, outcome: Outcome) -> None:
        """A call is over."""
        self._count_call(call, outcome)
        self._note_call(call, outcome)
        trace = call.trace
        if trace is not None and trace.why:
            self.metrics.exemplars.note(call, outcome, trace.trace_id)
        self.active -= 1

    def retire(self, chain: Chain) -> None:
        """Close what a chain's plugins hold, if it is an old one that no call holds any more."""
        if chain.calls.count or chain.generation not in self._retiring:
            return
        _, held = self._retiring.pop(chain.generation)
        task = self.loop.create_task(held.close(), context=self.context.copy())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Abort every connection and close what retired chains still hold."""
        self.sweep.stop()
        for connection in tuple(self.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)
        for _, held in self._retiring.values():
            await held.close()
        if self._closing:
            await asyncio.wait(self._closing)
