"""Who is at the other end of a client connection, and what workers are told about it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_WITH_PORT: Final = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<four>[0-9.]+))(?::[0-9]{1,5})?\Z")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def written(text: str) -> str:
    """An address in its one spelling, from any that proxies write, with a port or without; raises ValueError."""
    found = _WITH_PORT.match(text)
    ip = ipaddress.ip_address((found.group("six") or found.group("four")) if found else text)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return str(ip)


@dataclass(frozen=True, slots=True)
class Peer:
    """A client's address and the lines that say it to workers; `trusted` peers may speak for others."""

    address: str
    secure: bool
    trusted: bool
    forwarded: bytes

    @classmethod
    def of(cls, address: str, *, secure: bool, trusted: bool) -> Peer:
        """A peer as seen on a socket; a Unix socket has the address "unix"."""
        return cls(
            address,
            secure,
            trusted,
            b"x-forwarded-for: %b\r\nx-forwarded-proto: %b\r\n"
            % (address.encode("ascii", "replace"), b"https" if secure else b"http"),
        )


class Trust:
    """The networks whose forwarded headers are believed."""

    __slots__ = ("_local", "_networks")

    def __init__(self, networks: Sequence[Network], *, unix: bool = False) -> None:
        self._networks = tuple(networks)
        self._local = unix

    def covers(self, address: str) -> bool:
        """Whether an address, or "unix", is trusted."""
        if not self._networks and not self._local:
            return False
        if address == "unix":
            return self._local
        try:
            ip = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(ip.version == network.version and ip in network for network in self._networks)

    def client_of(self, peer: Peer, forwarded_for: Sequence[bytes], proto: bytes | None) -> Peer:
        """The client behind a trusted peer: the right-most address that is not trusted itself."""
        chain = [part.strip() for value in forwarded_for for part in value.decode("latin-1").split(",")]
        address = peer.address
        for candidate in reversed(chain):
            try:
                address = written(candidate)
            except ValueError:
                break
            if not self.covers(address):
                break
        secure = proto.strip().lower() == b"https" if proto is not None else peer.secure
        return Peer.of(address, secure=secure, trusted=True)
