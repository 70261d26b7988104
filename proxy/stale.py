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
import struct
from time import monotonic_ns
from typing import Final

LATEST: Final = 0.25
"""Seconds after which a loss has nothing to do with the rest before it, in any case."""
SOON = 0.005
"""Seconds in which a worker can hardly have done anything for a request that it read."""
_UNMEASURED: Final = 60.0
_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)
_SIZE: Final = 256
# Where the kernel's figures stand.
_ACKNOWLEDGED: Final = 120
_ROUND_TRIP: Final = 148
_END: Final = 152


def round_trip(transport: asyncio.Transport) -> float:
    """The shortest time to the worker and back on this connection; 0 where nobody knows."""
    info = _info(transport)
    seconds = _word(info, _ROUND_TRIP) / 1e6 if info else 0.0
    # A kernel that has not measured it says so with a number beyond every real one.
    return seconds if seconds < _UNMEASURED else 0.0


def unread(
    transport: asyncio.Transport, lost: Exception | None, before: int, sent_ns: int, there_and_back: float
) -> bool:
    """Whether a request behind `before` bytes was not read, or just now, when its connection was `lost`."""
    passed = (monotonic_ns() - sent_ns) * 1e-9
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family == socket.AF_UNIX:
        # It ends in order only where everything was read.
        return lost is not None or passed <= SOON
    info = _info(transport)
    if not info:
        return passed <= 2 * there_and_back + SOON
    # The handshake counts as one that was acknowledged.
    return _long(info, _ACKNOWLEDGED) <= before + 1 or passed <= there_and_back + SOON


def _info(transport: asyncio.Transport) -> bytes:
    """What the kernel knows of a TCP connection, empty where it cannot be asked."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family == socket.AF_UNIX or _TCP_INFO is None:
        return b""
    try:
        info: bytes = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SIZE)
    except OSError:
        return b""
    return info if len(info) >= _END else b""


def _word(info: bytes, at: int) -> int:
    (value,) = struct.unpack_from("=I", info, at)
    return int(value)


def _long(info: bytes, at: int) -> int:
    (value,) = struct.unpack_from("=Q", info, at)
    return int(value)
