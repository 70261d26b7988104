"""One line of JSON a finished call, to standard output or a file, never at the expense of a call.

The event loop only formats a line and puts it in a queue; a thread writes. The queue is bounded: where a disk is full,
a pipe is closed or its reader sleeps, lines are dropped and counted, and a later line says how many. A line holds no
header value but the client's own request id, no query, no body.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailrace.plugins.access_log_queue import Queue
from tailrace.plugins.access_log_writer import Writer
from tailrace.proxy.config import At, AtLeast, setting
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Where the lines go."""

    file: Path | None = setting(
        default=None, help="a file, created and appended to; standard output otherwise", why="containers collect stdout"
    )
    queue: Annotated[int, AtLeast(1)] = setting(
        default=10_000, help="lines that wait to be written; more are dropped", why="about 5 MB: a minute at 150 req/s"
    )

    def look(self) -> Iterator[At]:
        """A file that could not be written."""
        if self.file is None:
            return
        there = self.file if self.file.exists() else self.file.parent
        if self.file.is_dir():
            yield At(f"{self.file} is a folder", "file")
        elif not there.exists():
            yield At(f"there is no folder {there}", "file")
        elif not os.access(there, os.W_OK):
            yield At(f"{there} may not be written to", "file")


_Config = Config  # inside the class the name means its attribute


class AccessLog(Plugin[Config]):
    """`dropped` counts the lines that could not be kept, `failures` the writes that failed."""

    Config = Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._queue = Queue(config.queue)
        self._writer = Writer(config.file, self._queue)

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
            await asyncio.to_thread(writer.wait)

    @property
    def dropped(self) -> int:
        """Lines that were not kept."""
        return self._queue.dropped

    @property
    def failures(self) -> int:
        """Writes that failed, each tried again."""
        return self._writer.failures

    def reopen(self) -> None:
        """Close the file and open its path again with the next line."""
        self._writer.reopen = True

    @property
    def on_complete(self) -> Callable[[Call, Outcome], None]:
        """Format the call's line and queue it: compiled, and called as it is."""
        return self._queue.log
