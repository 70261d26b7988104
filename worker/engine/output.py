"""An engine's output, passed on line by line without ever making the engine or the event loop wait."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable

LONGEST_LINE = 8192


def to_stderr(text: bytes) -> None:
    """Write all of it, waiting as long as the reader of our standard error makes us."""
    view = memoryview(text)
    while view:
        view = view[os.write(2, view) :]


class OutputRelay:
    """Takes the engine's bytes, splits them into lines and hands prefixed lines to `sink` on a thread of its own.

    A sink that blocks fills the queue; lines beyond its bound are dropped and counted, and the count is passed on.
    """

    def __init__(self, prefix: str = "engine | ", sink: Callable[[bytes], None] = to_stderr, bound: int = 2000) -> None:
        self._prefix = prefix.encode()
        self._sink = sink
        self._bound = bound
        self._part = b""
        self._skipping = False
        self._lines: deque[bytes] = deque()
        self._dropped = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.tail: deque[str] = deque(maxlen=20)
        """The last lines seen, for a report of a crash."""

    @property
    def last(self) -> str:
        """The last line that was not blank."""
        return next((line for line in reversed(self.tail) if line.strip()), "")

    def feed(self, chunk: bytes) -> None:
        """Take bytes as they came; never blocks."""
        *lines, rest = (self._part + chunk).split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
                continue
            self._take(line)
        if len(rest) > LONGEST_LINE:
            if not self._skipping:
                self._take(rest[:LONGEST_LINE] + b" ...")
            self._skipping, rest = True, b""
        self._part = rest

    def flush(self) -> None:
        """Pass on a last line that has no end; call when an engine is gone."""
        if self._part and not self._skipping:
            self._take(self._part)
        self._part, self._skipping = b"", False

    def _take(self, line: bytes) -> None:
        line = line[: LONGEST_LINE + 4].rstrip(b"\r")
        self.tail.append(line.decode(errors="replace"))
        with self._changed:
            if self._closing:
                return
            if len(self._lines) >= self._bound:
                self._dropped += 1
                return
            self._lines.append(self._prefix + line + b"\n")
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="engine-output", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._closing:
                    self._changed.wait()
                if not self._lines:
                    return
                text = b"".join(self._lines)
                self._lines.clear()
                if self._dropped:
                    text += self._prefix + b"(%d lines dropped)\n" % self._dropped
                    self._dropped = 0
            try:
                self._sink(text)
            except OSError:
                # Nobody reads our own output any more; the engine's must still be drained.
                continue

    async def close(self, limit: float = 1.0) -> None:
        """Let what is queued be written, for at most `limit` seconds."""
        self.flush()
        with self._changed:
            self._closing = True
            self._changed.notify()
        thread = self._thread
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, thread.join, limit)
