"""What is still sent to a worker, seen on the wire, since what a gateway says of that is its own word."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
import time

_ETH_ALL = 3
_ETH_IP = 0x0800
_OUTGOING = 4
_ATTACH_FILTER = 26
_SNAP = 160


class Wiretap:
    """Notes each request (`POST`) to one port, once: what TCP repeats is left out."""

    def __init__(self, interface: str, port: int) -> None:
        self.requests: list[int] = []
        self._seen: set[tuple[bytes, bytes]] = set()
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, socket.htons(_ETH_ALL))
        _attach(self._socket, port)
        self._socket.bind((interface, _ETH_ALL))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read)

    def close(self) -> None:
        """Listen no more."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _read(self) -> None:
        now = time.monotonic_ns()
        while True:
            try:
                packet, sender = self._socket.recvfrom(_SNAP)
            except BlockingIOError:
                return
            if sender[1] == _ETH_IP and sender[2] == _OUTGOING:
                self._look(packet, now)

    def _look(self, packet: bytes, now: int) -> None:
        tcp = packet[(packet[0] & 15) * 4 :]
        key = (tcp[:2], tcp[4:8])
        if tcp[(tcp[12] >> 4) * 4 :].startswith(b"POST ") and key not in self._seen:
            self._seen.add(key)
            self.requests.append(now)


def permitted() -> bool:
    """Whether this process may listen at all."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0).close()
    except OSError:
        return False
    return True


def _attach(tap: socket.socket, port: int) -> None:
    """Have the kernel drop all but TCP to this port, for a relay's traffic is much."""
    program = b"".join(
        struct.pack("HBBI", *step)
        for step in (
            (0x30, 0, 0, 9),  # the protocol
            (0x15, 0, 4, 6),  # TCP, or drop it
            (0xB1, 0, 0, 0),  # the length of the IP header
            (0x48, 0, 0, 2),  # the port it goes to
            (0x15, 0, 1, port),
            (0x06, 0, 0, _SNAP),
            (0x06, 0, 0, 0),
        )
    )
    held = ctypes.create_string_buffer(program)
    tap.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", len(program) // 8, ctypes.addressof(held)))
