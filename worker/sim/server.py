"""The simulated engine as a server: its sockets, and how it comes to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tailrace.worker.sim.clock import Clock, LoopClock, Timer
from tailrace.worker.sim.control import inflict
from tailrace.worker.sim.engine import Engine
from tailrace.worker.sim.exchange import Exchange, Request
from tailrace.worker.sim.failures import Fault
from tailrace.worker.sim.heads import Heads
from tailrace.worker.sim.metrics import Metrics
from tailrace.worker.sim.protocol import Connection
from tailrace.worker.sim.routes import dispatch
from tailrace.worker.sim.scheduler import Scheduler
from tailrace.worker.sim.sequence import Sink
from tailrace.worker.sim.settings import SimSettings

_POLL_S = 0.05
"""How often a server that is going looks whether it may be gone."""


class Sim:
    """A running simulated engine; `serve` makes one."""

    def __init__(self, settings: SimSettings, clock: Clock) -> None:
        self.settings = settings
        self.engine = Engine(settings, clock, self._happen, self.thaw)
        self.port: int | None = None
        self.gone = asyncio.Event()
        """Set once nothing listens and no connection is open, by `close` or by a fault."""
        self._heads = Heads(clock, request_ids=settings.enable_request_id_headers)
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._socket: Path | None = None
        """Of the Unix socket, once it is ours."""
        self._deadline: float | None = None
        self._poll: Timer | None = None
        self._signalled: float | None = None
        """The drain that a signal asked for while the server stood still."""

    @property
    def url(self) -> str:
        """Where it listens on TCP."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{self.port}"

    @property
    def scheduler(self) -> Scheduler:
        """Who runs and who waits."""
        return self.engine.scheduler

    @property
    def metrics(self) -> Metrics:
        """What was counted."""
        return self.engine.metrics

    @property
    def received(self) -> list[Request]:
        """The last requests, oldest first; as many as `keep_requests`."""
        return list(self.engine.received)

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._connections)

    def fail(self, fault: Fault) -> None:
        """Arm a fault, or let it happen if it is one of the whole server."""
        inflict(self.engine, fault)

    def heal(self) -> None:
        """Disarm every fault, and thaw."""
        self.engine.failures.clear()
        self.thaw()

    def freeze(self, for_s: float | None = None) -> None:
        """Stand still as after SIGSTOP, for good or for so many seconds."""
        engine = self.engine
        engine.stillness.frozen = True
        engine.scheduler.pause()
        if for_s is not None:
            engine.clock.call_at(engine.clock.now() + for_s, self.thaw)

    def thaw(self) -> None:
        """Go on as after SIGCONT; what came meanwhile is taken in, a signal too."""
        engine = self.engine
        if not engine.stillness.frozen:
            return
        engine.stillness.frozen = False
        engine.scheduler.resume()
        if self._signalled is not None:
            timeout, self._signalled = self._signalled, None
            self.terminate(timeout)
        for connection in list(self._connections):
            connection.thaw()

    def terminate(self, timeout: float | None = None) -> None:
        """Do what SIGTERM does: drain for `timeout` seconds, or hang open streams where it is 0."""
        timeout = self.settings.shutdown_timeout if timeout is None else timeout
        if self.engine.stillness.frozen:
            self._signalled = timeout
            return
        if self.engine.state == "dead":
            self.stop()
        if self.engine.state != "serving":
            return
        if timeout > 0:
            self.engine.state = "draining"
            self._deadline = self.engine.clock.now() + timeout
        else:
            self._hang()
        self._look()

    def stop(self) -> None:
        """Be gone at once: connections end as when the process dies."""
        self._die(rst=False)

    async def close(self) -> None:
        """Be gone at once, and wait until the sockets are."""
        self.stop()
        # The loop closes what was closed just now in its next pass.
        await asyncio.sleep(0)
        await self.gone.wait()

    async def listen(self) -> None:
        """Open the sockets."""
        loop = asyncio.get_running_loop()
        settings = self.settings
        if settings.port is not None:
            server = await loop.create_server(self._connection, settings.host, settings.port)
            self._servers.append(server)
            self.port = server.sockets[0].getsockname()[1]
        if settings.uds is not None:
            _remove_stale(Path(settings.uds))
            self._servers.append(await loop.create_unix_server(self._connection, settings.uds))
            self._socket = Path(settings.uds)

    def _connection(self) -> Connection:
        keep_alive = self.settings.keep_alive_s
        engine = self.engine
        return Connection(self._serve, self._heads, engine.clock, keep_alive, engine.stillness, self._connections)

    def _serve(self, exchange: Exchange) -> None:
        dispatch(self.engine, exchange)

    def _happen(self, fault: Fault) -> None:
        """A fault of the whole server."""
        if fault.fail == "engine_killed":
            self._kill_engine(fault.exit_after_s)
        elif fault.fail == "server_killed":
            self._die(rst=fault.rst)
        elif fault.fail == "freeze":
            self.freeze(fault.for_s)
        else:
            self.terminate(fault.shutdown_timeout)

    def _kill_engine(self, exit_after_s: float | None) -> None:
        engine = self.engine
        engine.state = "dead"
        told: set[Sink] = set()
        for seq in engine.scheduler.kill():
            if seq.sink not in told:
                told.add(seq.sink)
                seq.sink.on_engine_death()
        if exit_after_s is not None:
            self._deadline = engine.clock.now() + exit_after_s
            self._look()

    def _hang(self) -> None:
        self.engine.state = "hung"
        self.engine.scheduler.freeze()
        self._deadline = None
        self._stop_listening()
        for connection in list(self._connections):
            connection.shut_down()

    def _look(self) -> None:
        """Go if it is time to; else look again soon."""
        engine, now = self.engine, self.engine.clock.now()
        if self.gone.is_set():
            return
        if engine.state == "draining" and not (engine.scheduler.running or engine.scheduler.waiting):
            self._stop_listening()
            for connection in list(self._connections):
                connection.shut_down()
        if self._deadline is not None and now >= self._deadline and not engine.stillness.frozen:
            if engine.state != "draining":
                self._die(rst=False)
                return
            # As vLLM does when the time is over: the engine is gone, its server waits for clients to leave.
            self._hang()
        if not self._servers and not self._connections:
            self.gone.set()
        else:
            self._poll = engine.clock.call_at(now + _POLL_S, self._look)

    def _die(self, *, rst: bool) -> None:
        self.engine.state = "dead"
        self._stop_listening()
        self.engine.scheduler.kill()
        for connection in list(self._connections):
            connection.lose(rst=rst)
        if self._poll is not None:
            self._poll.cancel()
        self.gone.set()

    def _stop_listening(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
            self._socket = None


def _remove_stale(path: Path) -> None:
    """Make way for a socket where a dead process left one; anything else in that place is left alone."""
    if path.is_socket():
        path.unlink()


async def serve(settings: SimSettings, clock: Clock | None = None) -> Sim:
    """Start a simulated engine on the running loop; returns when it accepts connections."""
    sim = Sim(settings, clock or LoopClock(asyncio.get_running_loop()))
    try:
        await sim.listen()
    except BaseException:
        await sim.close()
        raise
    return sim
