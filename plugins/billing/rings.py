"""The ring of a process: one for all chains alive in it that want the same room, until the last of them has ended."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.proxy.ledger.ring import Ring

_held: dict[tuple[Path, int], tuple[Ring, int]] = {}


@contextmanager
def ring_in(folder: Path, slots: int) -> Iterator[Ring]:
    """The process's ring of a size in a folder; raises OSError where there is no room for one."""
    which = folder, slots
    found = _held.get(which)
    ring, users = found or (Ring.create(folder, f"{socket.gethostname()}/{os.getpid()}", slots), 0)
    _held[which] = ring, users + 1
    try:
        yield ring
    finally:
        ring, users = _held.pop(which)
        if users > 1:
            _held[which] = ring, users - 1
        else:
            ring.close()
