"""One line of JSON a finished call, to standard output or a file, never at the expense of a call.

The event loop only formats a line and puts it in a queue; a thread writes. The queue is bounded: where a disk is full,
a pipe is closed or its reader sleeps, lines are dropped and counted, and a later line says how many. A line holds no
header value but the client's own request id, no query, no body.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import select
import stat
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from tailrace.proxy.config import AtLeast, setting
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome

log = logging.getLogger("tailrace")

INTERVAL = 0.1
BATCH = 64 * 1024
PIPE = select.PIPE_BUF  # what a pipe takes at once without another process's line in between
RETRY = 1.0
LAST_CHANCE = 2.0
_LABEL = 64
_NAME = 128
_UNSAFE = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Where the lines go."""

    file: Path | None = setting(
        default=None, help="a file, created and appended to; standard output otherwise", why="containers collect stdout"
    )
    queue: Annotated[int, AtLeast(1)] = setting(
        default=10_000, help="lines that wait to be written; more are dropped", why="about 5 MB: a minute at 150 req/s"
    )


_Config = Config  # inside the class the name means its attribute


class AccessLog(Plugin[Config]):
    """`dropped` counts the lines that could not be kept, `failures` the writes that failed."""

    Config = Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._writer = Writer(config.file, config.queue)
        self._put = self._writer.put
        self._second = -1
        self._prefix = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold the file and the thread; what is queued at the end gets two seconds to be written."""
        writer = self._writer
        writer.open()
        writer.start()
        try:
            yield
        finally:
            writer.finish()
            await asyncio.to_thread(writer.join, LAST_CHANCE + RETRY)

    @property
    def dropped(self) -> int:
        """Lines that were not kept."""
        return self._writer.dropped

    @property
    def failures(self) -> int:
        """Writes that failed, each tried again."""
        return self._writer.failures

    def reopen(self) -> None:
        """Close the file and open its path again with the next line."""
        self._writer.reopen = True

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        """Format the call's line and queue it."""
        second, ms = divmod(time.time_ns() // 1_000_000, 1000)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
        started = call.started_ns
        line: dict[str, Any] = {
            "time": f"{self._prefix}{ms:03d}Z",
            "request_id": call.id,
            "client": call.peer.address,
            "method": call.head.method,
            "route": call.route.name,
            "path": call.route.path,
            "status": outcome.status,
            "ending": outcome.ending.value,
            "duration_ms": (outcome.finished_ns - started) // 1000 / 1000,
            "stream": call.stream,
            "attempts": len(call.tries),
            "bytes_in": call.size,
            "generation": call.chain.generation,
        }
        if call.model:
            line["model"] = call.model[:_NAME]
        if call.tries:
            attempt = (call.race and call.race.winner) or call.tries[-1]
            line["worker"] = attempt.worker.name
            line["served_model"] = attempt.entry.served
        elif call.source:
            line["source"] = call.source
        if outcome.first_content_ns:
            line["ttft_ms"] = (outcome.first_content_ns - started) // 1000 / 1000
        if outcome.delivered_bytes:
            line["bytes_out"] = outcome.delivered_bytes
        fault = outcome.fault
        if fault is not None:
            line["fault"] = fault.kind
            line["whose"] = fault.whose.value
            line["code"] = fault.code
        usage = outcome.usage
        if usage is not None:
            line["usage"] = {"prompt": usage.prompt, "completion": usage.completion, "cached": usage.cached}
        label = call.head.folded.get(b"x-request-id")
        if label is not None:
            line["client_request_id"] = _UNSAFE.sub("?", label[:_LABEL].decode("latin-1"))
        self._put(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


class Writer(threading.Thread):
    """The thread that writes; only `put`, `finish` and the attributes are for others."""

    def __init__(self, path: Path | None, limit: int) -> None:
        super().__init__(name="access-log", daemon=True)
        self.dropped = 0
        self.failures = 0
        self.reopen = False
        self._path = path
        self._limit = limit
        self._lines: deque[bytes] = deque()
        self._queued = 0
        self._wake = threading.Event()
        self._finishing = False
        self._fd = 1
        self._regular = False
        self._file = (0, 0)
        self._rest = b""
        self._torn = False
        self._reported = 0
        self._retry_at = 0.0
        self._failing = False

    def put(self, line: bytes) -> None:
        """Queue a line, or drop it where the queue is full; called on the event loop."""
        lines = self._lines
        if len(lines) >= self._limit:
            self.dropped += 1
            return
        lines.append(line)
        # The other thread sets it back without a lock: a lost update costs a tenth of a second.
        self._queued += len(line)
        if self._queued > BATCH:
            self._queued = 0
            self._wake.set()

    def finish(self) -> None:
        """Write what there is and end."""
        self._finishing = True
        self._wake.set()

    def run(self) -> None:
        """Write whenever there is enough, or an interval has passed."""
        last = None
        while last is None or (time.monotonic() < last and (self._lines or self._rest)):
            self._wake.wait(INTERVAL)
            self._wake.clear()
            if self._finishing and last is None:
                last = time.monotonic() + LAST_CHANCE
            try:
                self._write_all(last is not None)
            except OSError as error:
                self._failed(error)
        lost = len(self._lines) + self._rest.count(b"\n")
        if lost:
            self.dropped += lost
            log.warning("access log: %d lines were lost at the end", lost)
        self._close()

    def _failed(self, error: OSError) -> None:
        self.failures += 1
        self._retry_at = time.monotonic() + RETRY
        if not self._failing:
            log.warning("access log: %s; lines wait, and are dropped when %d do", error, self._limit)
        self._failing = True

    def _write_all(self, last: bool) -> None:
        if time.monotonic() < self._retry_at and not last:
            return
        lines = self._lines
        while lines or self._rest or self.dropped != self._reported:
            self._follow_rotation()
            if not self._rest:
                self._rest = self._next_batch()
            if not self._write_some():
                return
        if self._failing:
            self._failing = False
            log.warning("access log: written again, %d lines were dropped in all", self.dropped)

    def _next_batch(self) -> bytes:
        lines = self._lines
        batch = []
        size = 0
        while lines and size < BATCH:
            line = lines.popleft()
            batch.append(line)
            size += len(line)
        self._queued = 0
        dropped = self.dropped
        if dropped != self._reported:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
            note = {"time": stamp, "dropped": dropped - self._reported}
            batch.append(orjson.dumps(note, option=orjson.OPT_APPEND_NEWLINE))
            self._reported = dropped
        return b"".join(batch)

    def _write_some(self) -> bool:
        """Write some of the rest; False where the target takes no more now."""
        piece = self._rest
        if not self._regular:
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            if not poll.poll(INTERVAL * 1000):
                return False
            if len(piece) > PIPE:
                piece = piece[: piece.rfind(b"\n", 0, PIPE) + 1 or PIPE]
        try:
            written = os.write(self._fd, piece)
        except BlockingIOError:
            return False
        self._torn = not self._rest.endswith(b"\n", 0, written)
        self._rest = self._rest[written:]
        return True

    def open(self) -> None:
        """Open the target; raises OSError."""
        if self._path is not None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            self._fd = -1
            self._fd = os.open(self._path, flags, 0o640)
        found = os.fstat(self._fd)
        self._regular = stat.S_ISREG(found.st_mode)
        self._file = (found.st_dev, found.st_ino)

    def _follow_rotation(self) -> None:
        """Open the path again where it names another file by now, or none."""
        if self._path is None:
            return
        try:
            found = self._path.stat()
            moved = (found.st_dev, found.st_ino) != self._file
        except FileNotFoundError:
            moved = True
        if not (moved or self.reopen or self._fd < 0):
            return
        self._close()
        self.open()
        self.reopen = False
        if self._torn:
            # The line's beginning stayed in the old file.
            self._torn = False
            self.dropped += 1
            self._rest = self._rest[self._rest.find(b"\n") + 1 :]

    def _close(self) -> None:
        if self._path is not None and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
