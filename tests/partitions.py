"""Hosts that can be cut off: in network namespaces where this machine allows it, else behind a cable that goes dead."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

HERE, THERE = "10.78.0.1", "10.78.0.2"
_NOBODY = "02:00:00:00:00:99"


@dataclass
class Network:
    """A place for a gateway and one for a worker that can be cut off from it; commands run there with a prefix."""

    here: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    """Where a worker over there listens."""

    async def way(self, url: str) -> str:
        """The URL under which the gateway reaches what listens over there."""
        return url

    def cut(self) -> None:
        """Lose all that is sent, both ways, without a word to anybody."""

    def mend(self) -> None:
        """Let it through again."""


@asynccontextmanager
async def network() -> AsyncIterator[Network]:
    """The best network that can be had here."""
    if can_isolate():
        with (
            subprocess.Popen(_HOLDER, stdin=-1, stdout=-1) as one,
            subprocess.Popen(_HOLDER, stdin=-1, stdout=-1) as two,
        ):
            for holder in (one, two):
                assert holder.stdout is not None
                holder.stdout.readline()
            yield Namespaces(_inside(one), _inside(two), THERE)
            for holder in (one, two):
                assert holder.stdin is not None
                holder.stdin.close()
    else:
        cable = Cable()
        try:
            yield cable
        finally:
            cable.unplug()


def can_isolate() -> bool:
    """Whether this process may make network namespaces, and has the commands for it."""
    if os.geteuid() or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        return False
    try_it = "ip link add one0 type veth peer name two0"
    return not subprocess.run(["unshare", "--net", "sh", "-c", try_it], capture_output=True).returncode


_HOLDER = ["unshare", "--net", "sh", "-c", "echo up; read forever"]


def _inside(holder: subprocess.Popen[bytes]) -> tuple[str, ...]:
    return ("nsenter", f"--net=/proc/{holder.pid}/ns/net", "--")


class Namespaces(Network):
    """Two namespaces and a cable between them."""

    def __init__(self, here: tuple[str, ...], there: tuple[str, ...], address: str) -> None:
        super().__init__(here, there, address)
        number = there[1].split("/")[2]
        _run(*here, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", number)
        self._ends: list[tuple[tuple[str, ...], str, str]] = []
        hardware = {side: self._up(side, own) for side, own in ((here, HERE), (there, THERE))}
        self._ends = [(here, THERE, hardware[there]), (there, HERE, hardware[here])]
        self.mend()

    def _up(self, side: tuple[str, ...], own: str) -> str:
        _run(*side, "ip", "link", "set", "lo", "up")
        _run(*side, "ip", "addr", "add", f"{own}/24", "dev", "eth0")
        _run(*side, "ip", "link", "set", "eth0", "up")
        return _run(*side, "ip", "-o", "link", "show", "eth0").partition("link/ether ")[2].split()[0]

    def _lead(self, nowhere: bool) -> None:
        for side, other, hardware in self._ends:
            to = _NOBODY if nowhere else hardware
            _run(*side, "ip", "neigh", "replace", other, "lladdr", to, "dev", "eth0", "nud", "permanent")

    def cut(self) -> None:
        self._lead(nowhere=True)

    def mend(self) -> None:
        self._lead(nowhere=False)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@dataclass
class Cable(Network):
    """A port that leads to another one as long as it is not cut."""

    _server: asyncio.Server | None = None
    _ends: list[asyncio.StreamWriter] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _open: asyncio.Event = field(default_factory=asyncio.Event)

    async def way(self, url: str) -> str:
        self._open.set()
        host, port = url.removeprefix("http://").split(":")

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._ends.append(writer)
            await self._open.wait()
            there = await asyncio.open_connection(host, int(port))
            self._ends.append(there[1])
            for source, sink in ((reader, there[1]), (there[0], writer)):
                self._tasks.add(asyncio.ensure_future(self._carry(source, sink)))

        self._server = await asyncio.start_server(accept, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while got := await source.read(65536):
                await self._open.wait()
                sink.write(got)
            await self._open.wait()
        sink.close()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    def unplug(self) -> None:
        """Be gone."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        for end in self._ends:
            end.transport.abort()
