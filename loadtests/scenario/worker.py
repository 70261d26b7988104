"""A worker of the fleet: an engine, bare or beside its sidecar, and everything that can be done to it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import orjson
import yaml
from rig.processes import PROC

from scenario import engines, http
from scenario.network import Host
from scenario.place import HOP_KEY, Place
from scenario.plan import Fleet
from scenario.programs import Program, ProgramError

START_LIMIT = 300.0
BEFORE_OTHERS = -5
"""Before what else goes on on this machine: engines that are late would be so by its fault."""
AT_ONCE = 0.1
FIRST_PORT = 8000
"""On hosts of their own; each has another, by which its traffic is known on the wire."""


class Worker:
    """One of them, by number. It keeps its address when it is started again."""

    def __init__(self, number: int, fleet: Fleet, place: Place, *, host: Host | None) -> None:
        self.number = number
        self.with_sidecar = number > fleet.workers + fleet.spare - fleet.sidecars
        self.host = host
        self._place = place
        address = host.address if host is not None else "127.0.0.1"
        self._port = place.port() if host is None else FIRST_PORT + number
        self.at = f"{address}:{self._port}"
        """Where gateways find it."""
        self._engine_port = place.port() if host is None else FIRST_PORT - 1
        self._fleet = fleet
        command, env = self._start_command(address)
        name = f"worker-{number}"
        self._program = Program(name, command, place.log(name), env, nice=BEFORE_OTHERS)

    @property
    def name(self) -> str:
        return f"{self.number} ({'sidecar' if self.with_sidecar else 'bare'})"

    @property
    def url(self) -> str:
        return f"http://{self.at}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def pids(self) -> list[int]:
        return self._program.pids

    @property
    def engine_pids(self) -> list[int]:
        """The engine's part of its processes."""
        return [pid for pid in self.pids if not self.with_sidecar or engines.is_engine(self._fleet, _words(pid))]

    async def start(self) -> None:
        """Start what is not running, and wait until it takes calls."""
        if not self._program.alive:
            self._program.start()
        await self._program.ready(self.takes_calls, START_LIMIT)

    async def takes_calls(self, limit: float = 1.0) -> bool:
        return await http.answers(self.at, "/readyz" if self.with_sidecar else "/health", limit)

    async def serves_again(self, what: str) -> bool:
        """Whether the part that was killed is back by itself."""
        if what == "engine" and self.with_sidecar:
            return await self._ask_engine("GET", "/health") == 200
        # Its supervisor keeps the port open: who knocks meanwhile is answered as soon as there is somebody.
        return await self.takes_calls(AT_ONCE)

    def kill(self, what: str) -> None:
        """SIGKILL: of the engine, of the sidecar that serves (which its supervisor replaces), or of everything."""
        match what:
            case "engine":
                self._program.signal(signal.SIGKILL, *self.engine_pids)
            case "sidecar":
                first, engines = self.pids[:1], self.engine_pids
                self._program.signal(signal.SIGKILL, *(pid for pid in self.pids if pid not in (*first, *engines)))
            case _:
                self._program.signal_all(signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP of everything: the kernel still takes connections and bytes, and nobody answers."""
        self._program.signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._program.signal_all(signal.SIGCONT)

    def cut_off(self) -> str:
        """Have the host vanish from the network, or come as near to that as can be; says which."""
        if self.host is not None:
            self.host.cut_off()
            return "network partition (the bridge drops every packet)"
        self.freeze()
        return "SIGSTOP in place of a partition: the kernel still acknowledges what nobody reads"

    def rejoin(self) -> None:
        """End a partition or a freeze."""
        if self.host is not None:
            self.host.rejoin()
        self.thaw()

    async def fault(self, asked: dict[str, Any]) -> None:
        """Arm a fault of the simulated engine."""
        status = await self._ask_engine("POST", "/sim/control", orjson.dumps(asked))
        if status != 200:
            raise ProgramError(f"worker {self.name}: {asked}: {status}")

    async def _ask_engine(self, method: str, path: str, body: bytes | None = None) -> int:
        """The status of the engine's own answer, asked on its own host; 0 where there is none."""
        port = self._engine_port if self.with_sidecar else self._port

        def ask() -> int:
            connection = HTTPConnection("127.0.0.1", port, timeout=2.0)
            try:
                connection.request(method, path, body)
                return connection.getresponse().status
            except OSError:
                return 0
            finally:
                connection.close()

        return await (asyncio.to_thread(ask) if self.host is None else self.host.inside(ask))

    async def drain(self) -> None:
        """SIGTERM, and wait until it is gone in good order."""
        self._program.signal(signal.SIGTERM)
        await self._program.gone(60.0)

    async def stop(self) -> None:
        if self.host is not None:
            with suppress(Exception):
                self.host.rejoin()
        await self._program.stop()
        if self.host is not None:
            self.host.unplug()

    def _start_command(self, address: str) -> tuple[tuple[str, ...], dict[str, str]]:
        prefix = self.host.prefix if self.host is not None else ()
        if self.with_sidecar:
            command: tuple[str, ...] = (*self._place.tailrace, "serve", str(self._sidecar_file(address)))
            return (*prefix, *command, "--log-level", "warning"), {}
        # On a host of its own it listens on loopback, too: only from there it can be told to fail.
        listen = address if self.host is None else "0.0.0.0"
        command, env = engines.bare(self._fleet, self._place, listen, self._port)
        return (*prefix, *command), env

    def _sidecar_file(self, address: str) -> Path:
        settings: dict[str, Any] = {
            "role": "worker",
            "listen": f"{address}:{self._port}",
            "admin": "off",
            "pre_stop": 0,
            "engine": {**engines.launched(self._fleet, self._engine_port), "warmup": {"kind": "off"}},
        }
        if self.host is not None:
            settings["hop_key"] = HOP_KEY
        settings |= self._fleet.sidecar
        file = self._place.folder / f"worker-{self.number}.yaml"
        file.write_text(yaml.safe_dump(settings, sort_keys=False))
        return file


def _words(pid: int) -> bytes:
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes()
    return b""
