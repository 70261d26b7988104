"""The thread that writes the lines of an access log, so that a full disk or a sleeping reader holds up no call.

The queue before it is bounded: lines beyond it are dropped and counted, and a later line says how many. A file that was
rotated away is opened again.
"""

from __future__ import annotations

import logging
import os
import select
import stat
import threading
import time
from pathlib import Path

import orjson
from tailrace.plugins.access_log_queue import BATCH, Queue

log = logging.getLogger("tailrace")

INTERVAL = 0.1
PIPE = select.PIPE_BUF  # what a pipe takes at once without another process's line in between
RETRY = 1.0
LAST_CHANCE = 2.0


class Writer(threading.Thread):
    """The thread that writes; `open` comes first. `finish` and the public attributes are for the event loop."""

    def __init__(self, path: Path | None, queue: Queue) -> None:
        super().__init__(name="access-log", daemon=True)
        self.queue = queue
        self.failures = 0
        self.reopen = False
        self._path = path
        self._lines = queue.lines
        self._wake = queue.wake
        self._finishing = False
        self._fd = 1
        self._regular = False
        self._piece = PIPE
        self._file = (0, 0)
        self._rest = b""
        self._torn = False
        self._reported = 0
        self._retry_at = 0.0
        self._failing = False

    def finish(self) -> None:
        """Write what there is and end."""
        self._finishing = True
        self._wake.set()

    def wait(self) -> None:
        """Wait for the end, but no longer than a target that takes no more deserves."""
        self.join(LAST_CHANCE + RETRY)

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
            self.queue.dropped += lost
            log.warning("access log: %d lines were lost at the end", lost)
        self._close()

    def _failed(self, error: OSError) -> None:
        self.failures += 1
        self._retry_at = time.monotonic() + RETRY
        if not self._failing:
            log.warning("access log: %s; lines wait, and are dropped when %d do", error, self.queue.limit)
        self._failing = True

    def _write_all(self, last: bool) -> None:
        if time.monotonic() < self._retry_at and not last:
            return
        lines = self._lines
        while lines or self._rest or self.queue.dropped != self._reported:
            self._follow_rotation()
            if not self._rest:
                self._rest = self._next_batch()
            if not self._write_some():
                return
        if self._failing:
            self._failing = False
            log.warning("access log: written again, %d lines were dropped in all", self.queue.dropped)

    def _next_batch(self) -> bytes:
        lines = self._lines
        batch = []
        size = 0
        while lines and size < BATCH:
            line = lines.popleft()
            batch.append(line)
            size += len(line)
        self.queue.size = 0
        dropped = self.queue.dropped
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
            if len(piece) > self._piece:
                piece = piece[: piece.rfind(b"\n", 0, self._piece) + 1 or self._piece]
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
        self._piece = PIPE if stat.S_ISFIFO(found.st_mode) else 2 * BATCH
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
            self.queue.dropped += 1
            self._rest = self._rest[self._rest.find(b"\n") + 1 :]

    def _close(self) -> None:
        if self._path is not None and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
