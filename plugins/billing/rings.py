"""The ring of a process: one for all chains alive in it that want the same room, until the last of them has ended."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tailrace.proxy.ledger.ring import Ring

_held: dict[tuple[Path, int], tuple[Ring, int]] = {}


@asynccontextmanager
async def ring_in(folder: Path, slots: int) -> AsyncIterator[Ring]:
    """The process's ring of a size in a folder; raises OSError where there is no room for one."""
    which = folder, slots
    if which not in _held:
        # A large one takes a while, in which the calls of the chain before go on.
        made = await asyncio.to_thread(Ring.create, folder, _writer(), slots)
        if which in _held:
            made.close()
        else:
            _held[which] = made, 0
    ring, users = _held[which]
    _held[which] = ring, users + 1
    try:
        yield ring
    finally:
        ring, users = _held.pop(which)
        if users > 1:
            _held[which] = ring, users - 1
        else:
            ring.close()


def _writer() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"
