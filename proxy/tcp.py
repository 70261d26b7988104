"""What this machine's kernel knows of a TCP connection: where it can be asked, and of no other kind of socket.

A host that is there acknowledges what it is sent within a round trip, or 40 ms later, whatever the program on it does.
"""

from __future__ import annotations

import math
import socket
import struct
from typing import Final

_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)
_SIZE: Final = 256
_UNMEASURED: Final = 60.0
_SYN_SENT: Final = 2
# Where the kernel's figures stand.
_STATE: Final = 0
_UNACKNOWLEDGED: Final = 24
_DATA_CAME: Final = 52
_ACKNOWLEDGEMENT_CAME: Final = 56
_BYTES_ACKNOWLEDGED: Final = 120
_ROUND_TRIP: Final = 148
_END: Final = 152


def round_trip(sock: socket.socket | None) -> float:
    """The shortest time to the other end and back on this connection; 0 where nobody knows."""
    info = _info(sock)
    seconds = _word(info, _ROUND_TRIP) / 1e6 if info else 0.0
    # A kernel that has not measured it says so with a number beyond every real one.
    return seconds if seconds < _UNMEASURED else 0.0


def bytes_acknowledged(sock: socket.socket | None) -> int | None:
    """How many bytes have arrived over there, of which the handshake is one; None where nobody knows."""
    info = _info(sock)
    return _long(info, _BYTES_ACKNOWLEDGED) if info else None


def acknowledged(sock: socket.socket | None) -> tuple[bool, float] | None:
    """Whether all that was sent has arrived, and the seconds since anything came from there; None where nobody knows.

    Those are infinite as long as nobody has answered the attempt at a connection.
    """
    info = _info(sock)
    if not info:
        return None
    if info[_STATE] == _SYN_SENT:
        return False, math.inf
    silence = min(_word(info, _ACKNOWLEDGEMENT_CAME), _word(info, _DATA_CAME))
    return not _word(info, _UNACKNOWLEDGED), silence / 1000


def _info(sock: socket.socket | None) -> bytes:
    """Empty where the kernel cannot be asked."""
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
