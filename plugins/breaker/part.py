"""What `breaker` runs once on a host: it keeps the board that its processes share, and says how circuits stand."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tailrace.plugins.breaker.board import Board, folder_in
from tailrace.plugins.breaker.panel import states
from tailrace.proxy.control import Refused
from tailrace.proxy.ground import Places
from tailrace.proxy.plugin import AnyPlugin


class Part:
    """The board of this host, as `HostPart`; processes decide on it by themselves."""

    def __init__(self, board: Board) -> None:
        self._board: Board | None = board

    async def answer(self, seat: int, question: str, fields: dict[str, Any]) -> Any:
        """Processes ask nothing: they read and write the board."""
        raise Refused(f"breaker has no answer to '{question}'")

    def left(self, seat: int) -> None:
        """The kernel has taken back whatever the process had a lock on."""

    async def follow(self, plugin: AnyPlugin) -> None:
        """Nothing of the configuration matters here."""

    def unready(self) -> Sequence[str]:
        """Workers that fail do not make a host unready."""
        return ()

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """How each worker stands that was ever in trouble: 0 closed, 1 half open, 2 open, 3 open but for the floor."""
        if self._board is not None:
            for worker, state in states(self._board, time.monotonic_ns()):
                yield "state", {"worker": worker}, state

    def close(self) -> None:
        """Look at the board no more."""
        if self._board is not None:
            self._board.close()
            self._board = None


@asynccontextmanager
async def part(places: Places) -> AsyncIterator[Part]:
    """The part while the host serves."""
    folder = folder_in(places.shared)
    here = Part(Board.open(folder))
    try:
        yield here
    finally:
        here.close()
        with contextlib.suppress(OSError):
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
