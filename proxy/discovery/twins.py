"""URLs that are one endpoint: a host under its name and under its address, or under two names.

Only where a configuration has URLs that could be: of one scheme, port and path, and at least one of them with a name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tailrace.proxy.address import Address
from tailrace.proxy.discovery.names import resolve

Addresses = tuple[str, ...]
NOBODY: Final[Mapping[str, Addresses]] = MappingProxyType({})
LOOK: Final = 15.0


class Twins:
    """Which of the URLs of a configuration are the same; the first of them stands for all.

    `known` are addresses that names had before, which count until names are looked up again.
    """

    def __init__(self, urls: Iterable[str], known: Mapping[str, Addresses] = NOBODY) -> None:
        self.same: dict[str, str] = {}
        self.known: dict[str, Addresses] = {}
        self._alike: list[list[Address]] = []
        groups: dict[tuple[bool, int, str], dict[str, Address]] = {}
        for url in urls:
            address = Address.parse(url)
            if address.host:
                groups.setdefault((address.tls, address.port, address.prefix), {})[address.shown] = address
        for group in groups.values():
            if len(group) > 1 and any(address.named for address in group.values()):
                self._alike.append(list(group.values()))
                self.known.update((shown, known[shown]) for shown in group if shown in known)
        self._compare()

    async def look(self) -> float:
        """Look the names up; a name that has no addresses now keeps those that it had."""
        if not self._alike:
            return float("inf")
        for group in self._alike:
            found = await asyncio.gather(*map(_addresses, group))
            self.known.update((address.shown, ips) for address, ips in zip(group, found, strict=True) if ips)
        self._compare()
        return LOOK

    def _compare(self) -> None:
        same: dict[str, str] = {}
        for group in self._alike:
            first: dict[Addresses, str] = {}
            for address in group:
                ips = self.known.get(address.shown)
                if ips and (stands := first.setdefault(ips, address.shown)) != address.shown:
                    same[address.shown] = stands
        self.same = same


async def _addresses(address: Address) -> Addresses:
    if not address.named:
        return (address.host,)
    try:
        return tuple(await resolve(address.host, address.port))
    except OSError:
        return ()
