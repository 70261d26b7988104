"""Whether a request was lost together with a resting connection that its worker had closed already.

Such a request may be sent again; one that the worker has read may not, for it may have been worked on. What was not
acknowledged was not read, says the kernel, as long as the socket can be asked (under TLS it is too late by then); and a
worker that is gone SOON behind a request's arrival has not done much work on it. So what remains is a worker that reads
a request and is gone that soon (under TLS a round trip later), or resets the connection on purpose before the
acknowledgement, which kernels delay by up to 40 ms.
"""

from __future__ import annotations

import asyncio
import socket
from time import monotonic_ns
from typing import Final

from tailrace.proxy.tcp import bytes_acknowledged

LATEST: Final = 0.25
"""Seconds after which a loss has nothing to do with the rest before it, in any case."""
SOON = 0.005
"""Seconds in which a worker can hardly have done anything for a request that it read."""


def unread(
    transport: asyncio.Transport, lost: Exception | None, before: int, sent_ns: int, there_and_back: float
) -> bool:
    """Whether a request behind `before` bytes was not read, or just now, when its connection was `lost`."""
    passed = (monotonic_ns() - sent_ns) * 1e-9
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family == socket.AF_UNIX:
        # It ends in order only where everything was read.
        return lost is not None or passed <= SOON
    arrived = bytes_acknowledged(sock)
    if arrived is None:
        return passed <= 2 * there_and_back + SOON
    # The handshake counts as one that was acknowledged.
    return arrived <= before + 1 or passed <= there_and_back + SOON
