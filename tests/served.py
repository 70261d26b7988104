"""`tailrace serve` as a real process, for tests of its life: started, asked, signalled, looked at."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes import Connection, RawClient, Request, Script, json_answer

QUICK = "pre_stop: 0\n"


def engine(*scripts: Script | bytes) -> Script:
    """An engine that is healthy whenever it is asked; each script answers one POST, the last all that follow."""
    left = list(scripts)

    async def answer(conn: Connection, request: Request) -> None:
        if request.method == "GET":
            await conn.send(json_answer({"object": "list", "data": []}))
            return
        script = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(script, bytes):
            await conn.send(script)
        else:
            await script(conn, request)

    return answer


class Served:
    """A running `tailrace serve`; `log` is what it has written to stderr so far."""

    def __init__(self, process: asyncio.subprocess.Process, file: Path, admin: str) -> None:
        self.process = process
        self.file = file
        self.admin = admin
        self.url = ""
        self.seen: set[int] = set()
        self.out: list[str] = []
        self.log: list[str] = []
        self._grown = asyncio.Event()
        self._reading = [
            asyncio.ensure_future(self._read(process.stdout, self.out)),
            asyncio.ensure_future(self._read(process.stderr, self.log)),
        ]

    async def _read(self, stream: Any, lines: list[str]) -> None:
        while line := await stream.readline():
            lines.append(line.decode().rstrip("\n"))
            self._grown.set()
        self._grown.set()

    async def until(self, text: str, lines: list[str] | None = None) -> str:
        """The first line that holds `text`; of the log, where none are given. Fails once the program has ended."""
        lines = self.log if lines is None else lines
        while True:
            found = [line for line in lines if text in line]
            if found:
                return found[0]
            assert not all(task.done() for task in self._reading), f"ended without {text!r}: {self.log}"
            self._grown.clear()
            await self._grown.wait()

    @property
    def processes(self) -> list[int]:
        """The pids of the processes that it keeps."""
        found = children(self.process.pid)
        self.seen.update(found)
        return found

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def end(self) -> int:
        """Wait for its end; the exit code."""
        code = await self.process.wait()
        await asyncio.wait(self._reading)
        return code

    async def get(self, path: str, headers: dict[str, str] | None = None) -> Any:
        """An answer of the admin port."""
        async with RawClient(self.admin) as client:
            return await client.get(path, headers)

    async def generation(self, number: int) -> None:
        await self.until(f"configuration {number} is in force")

    async def kill(self) -> None:
        """End whatever still runs; what it was is not looked at."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGSTOP)  # so that it starts no more of them
            self.seen.update(self.processes, [self.process.pid])
        for pid in self.seen:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        await self.end()


def children(pid: int) -> list[int]:
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in found.split()]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def ended(*pids: int) -> None:
    """Wait until these processes are gone."""
    while any(map(alive, pids)):
        await asyncio.sleep(0.01)


async def launch(*arguments: str) -> asyncio.subprocess.Process:
    """A `tailrace` command as a process."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from tailrace.proxy.cli import main; raise SystemExit(main())",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def serving(folder: Path, yaml: str, *, ready: bool = True) -> AsyncIterator[Served]:
    """`tailrace serve` of some YAML, with an admin port on a Unix socket; killed at the end if it still runs."""
    file, admin = folder / "gateway.yaml", f"unix:{folder / 'admin.sock'}"
    if "admin:" not in yaml:
        yaml += f"\nadmin: {admin}\n"
    file.write_text(yaml)
    served = Served(await launch("serve", str(file)), file, admin)
    try:
        if ready:
            line = await served.until("ready ", served.out)
            served.url = line.removeprefix("ready ")
        yield served
    finally:
        await served.kill()
