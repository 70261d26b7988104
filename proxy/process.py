"""One process of a role: `python -m tailrace.proxy.process FD`, where FD is its end of the supervisor's channel.

It does what the supervisor asks. Its own rules: a SIGTERM lets it drain and end, whereupon the supervisor fills its
seat again; when the supervisor is gone it closes its listeners at once, so that the next one can open them, and ends
after its running calls, within the `drain` of its settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import uvloop
from tailrace.proxy import collection, logs
from tailrace.proxy.collection import Collection
from tailrace.proxy.config import ConfigError
from tailrace.proxy.configuration import understand
from tailrace.proxy.control import Channel, Gone, Refused, Start
from tailrace.proxy.discovery.endpoint import Found
from tailrace.proxy.metrics.exemplars import Exemplar, Place
from tailrace.proxy.parting import Parting
from tailrace.proxy.pipeline import ChainError
from tailrace.proxy.role import Process, Role, Seat, Staged
from tailrace.proxy.roll import described
from tailrace.proxy.stall import Watchdog
from tailrace.proxy.tenure import Tenure
from tailrace.proxy.trace.told import Of, chosen, matching, offset_ns

log = logging.getLogger("tailrace")
TLS_LOOK = 2.0


class Occupant:
    """What sits in a seat: the role's running process, and what the supervisor may ask of it."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.channel: Channel | None = None
        """The way to the supervisor."""
        self._hurry = asyncio.Event()
        self._role: Role | None = None
        self._process: Process | None = None
        self._staged: Staged | None = None
        self._draining: asyncio.Task[None] | None = None
        self._watchdog: Watchdog | None = None
        self._collection: Collection | None = None
        self._drained: frozenset[str] = frozenset()
        self._parting = Parting(lambda: self._present.workers())
        self._found = 0
        self._questions: dict[str, Callable[..., Awaitable[Any]]] = {
            "start": self._start,
            "prepare": self._prepare,
            "commit": self._commit,
            "discard": self._discard,
            "status": self._status,
            "workers": self._workers,
            "traces": self._traces,
            "exemplars": self._exemplars,
            "plugin": self._ask_plugin,
            "set_drained": self._set_drained,
            "drained": self._all_drained,
            "host_unready": self._host_unready,
            "found": self._take_found,
            "drain": self._drain,
            "hurry": self._end_now,
        }

    async def answer(self, what: str, fields: dict[str, Any]) -> Any:
        """Do what is asked; everything that goes wrong is told to the supervisor."""
        try:
            return await self._questions[what](**fields)
        except (ConfigError, ChainError, OSError, ValueError) as error:
            raise Refused(str(error)) from error
        except Exception as error:
            log.exception("'%s' failed", what)
            raise Refused(f"{type(error).__name__}: {error}") from error

    async def _start(self, **fields: Any) -> dict[str, Any]:
        start = Start(**fields)
        logs.name_process(start.who)
        configuration = understand(start.text, start.name)
        sockets = [socket.socket(fileno=fd) for fd in start.sockets]
        seat = Seat(
            index=start.index,
            count=start.count,
            generation=start.generation,
            metrics=start.metrics,
            board=start.board,
            births=start.births,
            tenure=Tenure.from_plain(start.tenure),
            host_unready=start.host_unready,
            ask=self._ask_host,
            found=Found.from_plain(start.found),
            register=self._register,
        )
        self._found = start.found["number"]
        self._role = configuration.role
        collection.tidy()
        self._process = process = await configuration.role.open(configuration.settings, sockets, seat)
        self._apply(start.drained)
        self._watchdog = Watchdog(asyncio.get_running_loop())
        self._watchdog.start()
        self._collection = Collection(process.service)
        self._collection.start()
        return {"addresses": [door.shown for door in process.doors]}

    async def _ask_host(self, name: str, what: str, fields: dict[str, Any]) -> Any:
        """Ask a plugin's part in the supervisor; raises Refused, or Gone where there is none any more."""
        if self.channel is None:
            raise Gone
        return await self.channel.ask("host", name=name, question=what, fields=fields)

    async def _register(self, announcement: dict[str, Any]) -> None:
        """Tell this host's discovery of a sidecar; raises Refused, or Gone where there is none any more."""
        if self.channel is None:
            raise Gone
        await self.channel.ask("register", **announcement)

    async def _prepare(self, *, text: str, name: str) -> None:
        configuration = understand(text, name)
        if type(configuration.role) is not type(self._role):
            raise Refused("the role cannot be changed by a reload: restart")
        await self._discard()
        self._staged = await self._present.prepare(configuration.settings)

    async def _commit(self, *, drained: Sequence[str]) -> None:
        staged, self._staged = self._staged, None
        if staged is None:
            raise Refused("nothing was prepared")
        staged.commit()
        self._apply(drained)

    async def _discard(self) -> None:
        staged, self._staged = self._staged, None
        if staged is not None:
            await staged.discard()

    async def _status(self) -> dict[str, Any]:
        process = self._present
        return {
            "unready": process.unready(),
            "active": process.service.active,
            "certificates": [door.certificate_fault for door in process.doors if door.certificate_fault],
        }

    async def _workers(self) -> list[dict[str, Any]]:
        workers = self._present.workers()
        return [{**described(worker), "time_left": self._parting.left(worker.name)} for worker in workers]

    async def _traces(self, *, name: str = "", of: Of = "latest", count: int = 0) -> dict[str, Any]:
        ring = self._present.service.ring
        return {"offset_ns": offset_ns(), "records": matching(ring, name) if name else chosen(ring, of, count)}

    async def _exemplars(self) -> list[tuple[Place, Exemplar]]:
        return self._present.service.metrics.exemplars.plain()

    async def _ask_plugin(self, *, name: str, question: str, fields: dict[str, Any]) -> list[Any]:
        """Ask each of a chain's plugins of this name that answers questions; raises Refused."""
        chain = self._present.service.chain
        asked = [getattr(link.plugin, "asked", None) for link in chain.pipeline.links if link.name == name]
        return [await ask(chain, question, fields) for ask in asked if ask is not None]

    async def _set_drained(self, *, worker: str, drained: bool, within: float | None = None) -> bool:
        found = [other for other in self._present.workers() if other.name == worker]
        self._drained = self._drained | {worker} if drained else self._drained - {worker}
        for other in found:
            other.drained = drained
            other.changed()
        if drained and within is not None:
            self._parting.begin(worker, within)
        else:
            self._parting.end(worker)
        return bool(found)

    async def _all_drained(self, *, names: Sequence[str]) -> None:
        self._apply(names)

    async def _host_unready(self, *, reasons: Sequence[str]) -> None:
        self._present.service.host_unready = lambda: reasons

    async def _take_found(self, *, found: dict[str, Any]) -> None:
        # Told twice at once, it may hear the older one last.
        if found["number"] > self._found:
            self._present.discovered(Found.from_plain(found), lambda: self._apply(self._drained))
            self._found = found["number"]

    async def _drain(self) -> None:
        self.drain()

    async def _end_now(self) -> None:
        self._hurry.set()
        self.drain()

    def drain(self) -> None:
        """Begin to end; `over` is set when it is done."""
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._to_the_end())

    async def abandoned(self) -> None:
        """The supervisor is gone: make room for the next one, then end."""
        if self._process is None:
            self.over.set()
            return
        if self._draining is None:
            log.warning("the supervisor is gone: no new connections, running calls are finished")
        for door in self._process.doors:
            door.close()
        self.drain()

    async def refresh_tls(self) -> None:
        """Look for changed certificates, for as long as the process lives."""
        while True:
            await asyncio.sleep(TLS_LOOK)
            for door in self._process.doors if self._process is not None else ():
                door.refresh_tls()

    async def close(self) -> None:
        """Let go of everything."""
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._collection is not None:
            self._collection.stop()
        await self._discard()
        if self._process is not None:
            await self._process.close()

    async def _to_the_end(self) -> None:
        try:
            if self._process is not None:
                await self._process.drain(self._hurry)
        finally:
            self.over.set()

    @property
    def _present(self) -> Process:
        if self._process is None:
            raise Refused("not started yet")
        return self._process

    def _apply(self, drained: Iterable[str]) -> None:
        self._drained = names = frozenset(drained)
        self._parting.keep(names)
        for worker in self._present.workers():
            if worker.drained != (worker.name in names):
                worker.drained = worker.name in names
                worker.changed()


async def occupy(sock: socket.socket) -> int:
    """Serve for as long as the supervisor wants, or until a SIGTERM of one's own."""
    occupant = Occupant()
    occupant.channel = channel = await Channel.over(sock, occupant.answer)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, occupant.drain)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        # A terminal sends these to the supervisor as well, which decides.
        loop.add_signal_handler(ignored, _nothing)
    tls = asyncio.ensure_future(occupant.refresh_tls())
    over = asyncio.ensure_future(occupant.over.wait())
    gone = asyncio.ensure_future(channel.closed())
    try:
        await asyncio.wait([over, gone], return_when=asyncio.FIRST_COMPLETED)
        if not over.done():
            await occupant.abandoned()
            await over
    finally:
        for task in (tls, over, gone):
            task.cancel()
        await occupant.close()
        await channel.close()
    return 0


def _nothing() -> None:
    """A signal that means nothing here."""


def main(argv: Sequence[str]) -> int:
    """The process of one seat; its number of the channel's descriptor is the only argument."""
    logs.configure("process")
    sock = socket.socket(fileno=int(argv[0]))
    sock.setblocking(False)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(occupy(sock))


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("tailrace")
    sys.exit(main(sys.argv[1:]))
