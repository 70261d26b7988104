"""Many listening addresses at once: whether another one can be had beside them, and whether a URL leads to one."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from tailrace.proxy.address import Address
from tailrace.proxy.config import At
from tailrace.proxy.listener import split_listen

_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


class Listening:
    """Addresses as they are written under `listen`; those that are none are left out."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._paths: set[str] = set()
        self._ips: dict[tuple[int, int], set[_Ip]] = {}
        """By the IP version and the port."""
        for address in addresses:
            self.add(address)

    def add(self, address: str) -> None:
        """One more."""
        try:
            host, port = split_listen(address)
        except ValueError:
            return
        if port < 0:
            self._paths.add(host)
        else:
            ip = ipaddress.ip_address(host)
            self._ips.setdefault((ip.version, port), set()).add(ip)

    def clashes(self, address: str) -> bool:
        """Whether it cannot be had beside these; one that is none clashes with nothing."""
        try:
            host, port = split_listen(address)
        except ValueError:
            return False
        if port < 0:
            return host in self._paths
        ip = ipaddress.ip_address(host)
        there = self._ips.get((ip.version, port), set())
        return port != 0 and (ip in there or _any_of(ip) in there or (ip.is_unspecified and bool(there)))

    def leads_here(self, url: str) -> bool:
        """Whether a worker's URL is one of these, as far as can be told without asking anybody."""
        try:
            address = Address.parse(url)
            if address.unix:
                return address.unix in self._paths
            ip = ipaddress.ip_address("127.0.0.1" if address.host == "localhost" else address.host)
        except ValueError:
            return False
        there = self._ips.get((ip.version, address.port), ())
        return ip in there or (ip.is_loopback and _any_of(ip) in there)


def clashes(listen: Iterable[str], admin: str) -> Iterable[At]:
    """Addresses under `listen` that cannot be had beside the admin port, or beside those above."""
    above, admins = Listening(), Listening([admin])
    for number, address in enumerate(listen):
        if admins.clashes(address):
            text = f"'{address}' is the admin port's, too: give `admin` another port, or `off`"
            yield At(text, "listen", number, "address")
        if above.clashes(address):
            yield At(f"'{address}' is taken by a listener above", "listen", number, "address")
        above.add(address)


def _any_of(ip: _Ip) -> _Ip:
    """The address that stands for all of its kind."""
    return type(ip)(0)
