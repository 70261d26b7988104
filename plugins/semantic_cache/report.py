"""A file with what was answered from memory, or would have been, for somebody to look at: one line of JSON each."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from pathlib import Path
from typing import Any, Final

import orjson

log: Final = logging.getLogger("tailrace")
_WAITING: Final = 1000
EVERY: Final = 1.0
"""Seconds between two looks at what is to be written."""


class Report:
    """Lines wait in memory, at most a thousand of them, and are written in a thread; what finds no room is counted."""

    def __init__(self, path: Path, largest: int) -> None:
        self._path = path
        self._largest = largest
        self._lines: deque[bytes] = deque()
        self.dropped = 0

    def add(self, **fields: Any) -> None:
        """Have a line written soon."""
        if len(self._lines) >= _WAITING:
            self.dropped += 1
        else:
            self._lines.append(orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE))

    async def write_on(self) -> None:
        """Write what comes, until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            if self._lines:
                await asyncio.to_thread(self.flush)

    def flush(self) -> None:
        """Write what waits; a file that cannot be written costs the lines, and a line in the log."""
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        data = b"".join(lines)
        try:
            # Processes share the file: one write a time, at its end.
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                if os.fstat(file).st_size + len(data) > self._largest:
                    self.dropped += len(lines)
                else:
                    os.write(file, data)
            finally:
                os.close(file)
        except OSError as error:
            self.dropped += len(lines)
            log.warning("the report of the semantic cache could not be written: %s", error)
