"""Programs that are started for a scenario, and end with it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rig.processes import PROC, tree

from scenario.patience import until

_DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")


class ProgramError(Exception):
    """A program did not come up."""


class Program:
    """One program with all the processes that it starts."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: dict[str, str] | None = None, *, nice: int = 0
    ) -> None:
        self.name = name
        self._nice = nice
        self.command = tuple(command)
        self.log = log
        self._env = env or {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it may need time to be of use."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                (*_DIE_WITH_US, *self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,  # Python looks for modules, and their plugins, where it is started
                env={**os.environ, **self._env},
            )
        prefer(self._process.pid, self._nice)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pids(self) -> list[int]:
        """Its processes, the first one first."""
        return tree(self._process.pid) if self._process is not None and self.alive else []

    async def ready(self, able: Callable[[], Awaitable[bool]], seconds: float) -> None:
        """Wait until it is of use; ProgramError where it ends instead, or takes too long."""

        async def able_or_gone() -> bool:
            return not self.alive or await able()

        if not await until(able_or_gone, seconds):
            raise ProgramError(f"{self.name} is not ready after {seconds:g} s: {self.last_words()}")
        if not self.alive:
            raise ProgramError(f"{self.name} ended: {self.last_words()}")

    def signal(self, number: int, *pids: int) -> None:
        """Signal some of its processes, or the first."""
        for pid in pids or self.pids[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def signal_all(self, number: int) -> None:
        """Signal all of its processes."""
        self.signal(number, *self.pids)

    async def gone(self, seconds: float) -> bool:
        """Whether it has ended within so many seconds."""

        async def ended() -> bool:
            return not self.alive

        return await until(ended, seconds)

    async def stop(self, seconds: float = 5.0) -> None:
        """End it: asked first, then not; and what it has started with it."""
        pids = self.pids
        self.signal_all(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if not await self.gone(0.5):
            # The second has a gateway end at once, and clean up behind it.
            self.signal(signal.SIGTERM)
            await self.gone(seconds)
        for pid in pids:
            if (PROC / str(pid)).exists():
                self.signal(signal.SIGKILL, pid)
        await self.gone(seconds)

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-1500:].strip() if self.log.exists() else ""


def prefer(pid: int, nice: int) -> None:
    """Let a process go before others, where that is permitted.

    Eight engines share this machine with the gateway and the load; where a fleet is real they do not.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, nice)
