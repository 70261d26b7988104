"""The ring of a process: one for all chains that are alive in it, until the last call of the last has ended."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.proxy.ledger.ring import Ring

_held: dict[Path, tuple[Ring, int]] = {}


@contextmanager
def ring_in(folder: Path) -> Iterator[Ring]:
    """The process's ring in a folder; raises OSError where there is no room for one."""
    found = _held.get(folder)
    ring, users = found if found is not None else (Ring.create(folder, f"{socket.gethostname()}/{os.getpid()}"), 0)
    _held[folder] = ring, users + 1
    try:
        yield ring
    finally:
        ring, users = _held.pop(folder)
        if users > 1:
            _held[folder] = ring, users - 1
        else:
            ring.close()
