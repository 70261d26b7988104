"""Whether a worker is at work: bytes of answers come from it, whatever it or anybody says of its health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace.proxy.fleet import Worker

LATELY: Final = 1.0
"""Seconds; the clock of connections is a twentieth of one behind at most."""


def progresses(worker: Worker, now: float, beside: object = None) -> bool:
    """Whether any of its answers has lately gone on, but for that of the sink `beside`."""
    return any(
        connection.sink is not beside and connection.got_bytes and now - connection.touched < LATELY
        for connection in worker.connections.busy
    )
