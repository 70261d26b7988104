"""What an engine's life hangs on: a process of this sidecar's, or an address that somebody else serves."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from tailrace.worker.engine.address import clear
from tailrace.worker.engine.command import Command
from tailrace.worker.engine.output import OutputRelay
from tailrace.worker.engine.pidfd import ProcessEnd
from tailrace.worker.engine.process import EngineProcess
from tailrace.worker.engine.settings import EngineSettings
from tailrace.worker.engine.told import telling
from tailrace.worker.engine.watch import EngineWatch

log = logging.getLogger(__name__)

LONGEST_QUOTE = 200


class Body(ABC):
    """Gives an engine its lives."""

    start_limit: float | None = None
    """Seconds from the beginning of a life until the engine must be healthy."""
    longest_pause: float | None = None
    """Bound of the pause between lives, where nothing has to be started."""

    async def appear(self, watch: EngineWatch) -> None:
        """Return when a life can begin."""
        return

    @abstractmethod
    def life(self, watch: EngineWatch) -> AbstractAsyncContextManager[None]:
        """Bring the engine into being, tell `watch` of its end, and clear up behind it. May raise EngineError."""

    def news(self) -> str:
        """The last thing heard of the engine."""
        return ""

    def obituary(self, reason: str) -> str:
        """The reason of the last death, with what else is known of it."""
        return reason

    def next_life(self, pause: float) -> str:
        """What follows a death, after a pause of so many seconds."""
        return f"next start in {pause:.1f} s"


class Launched(Body):
    """An engine that is a child of this sidecar."""

    def __init__(self, command: Command, settings: EngineSettings, relay: OutputRelay) -> None:
        self._command = command
        self._grace = settings.start.grace
        self._relay = relay
        self._code: int | None = None
        self.start_limit = settings.start.limit

    @asynccontextmanager
    async def life(self, watch: EngineWatch) -> AsyncIterator[None]:
        """Run the process; whatever ends this, nothing of it is left afterwards."""
        self._code = None
        self._relay.tail.clear()
        clear(self._command.target)
        process = await EngineProcess.start(
            self._command, self._relay, self._grace, lambda: watch.died("its process ended")
        )
        try:
            watch.change(pid=process.pid)
            log.info("engine started, pid %d", process.pid)
            yield
        finally:
            # An engine that was given up for dead would not hear a polite request.
            await process.stop(now=watch.state.dead)
            self._code = await process.ended

    def news(self) -> str:
        """Its last line of output, unless that holds its key."""
        line = self._relay.last[:LONGEST_QUOTE]
        key = self._command.api_key
        return "" if key and key in line else line

    def obituary(self, reason: str) -> str:
        """The reason, the exit code and the last line of output."""
        code, news = self._code, self.news()
        how = "" if code is None else f" (signal {-code})" if code < 0 else f" (exit code {code})"
        return f'{reason}{how}; it last said "{news}"' if news else f"{reason}{how}"


class Found(Body):
    """An engine that somebody else runs."""

    def __init__(self, settings: EngineSettings) -> None:
        self._url = settings.url
        self._pid = settings.pid
        self._pid_file = settings.pid_file
        self.longest_pause = settings.watch.health

    async def appear(self, watch: EngineWatch) -> None:
        """Wait for its health check: until then it stays as dead as it was, and why is told."""
        async with telling(lambda: log.warning("waiting for the engine at %s: %s", self._url, watch.state.reason)):
            await watch.healthy(lambda why: watch.change(reason=why))

    @asynccontextmanager
    async def life(self, watch: EngineWatch) -> AsyncIterator[None]:
        """Hold on to its process, where that is known."""
        end: ProcessEnd | None = None
        pid = self._read_pid()
        if pid is not None:
            try:
                end = ProcessEnd(pid, lambda: watch.died("its process ended"))
                watch.change(pid=pid)
            except ProcessLookupError:
                log.warning("the engine answers, but its pid %d is gone: only its health check is watched", pid)
            except OSError as error:
                log.warning("the engine's process cannot be watched: %s", error)
        try:
            yield
        finally:
            if end is not None:
                end.close()

    def next_life(self, pause: float) -> str:
        """It is not ours to start."""
        return "it is asked until it answers again"

    def _read_pid(self) -> int | None:
        if self._pid_file is None:
            return self._pid
        try:
            return int(self._pid_file.read_text()[:32])
        except (OSError, ValueError) as error:
            log.warning("the engine's pid file cannot be used: %s", error)
            return None
