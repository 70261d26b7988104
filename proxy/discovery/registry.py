"""The sidecars that have registered, each for a lease; one that does not renew it in time is removed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tailrace.proxy.address import Address
from tailrace.proxy.discovery.endpoint import MOST, Endpoint

log: Final = logging.getLogger("tailrace")
TICK: Final = 0.25
LATE: Final = 1.0
"""Seconds that a look may come too late; beyond, this host stood still and heard nobody, and leases are longer."""


class Full(Exception):  # noqa: N818 - an answer
    """A group has as many sidecars as it can have."""


@dataclass(slots=True)
class _Lease:
    endpoint: Endpoint
    until: float


class Registry:
    """Leases by group and URL. `leases` says for how long, for each group that is wanted now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.leases: Mapping[str, float] = {}
        self._clock = clock
        self._groups: dict[str, dict[str, _Lease]] = {}
        self._looked = clock()

    def register(self, group: str, endpoint: Endpoint) -> bool:
        """Begin or renew a lease; whether that changes who is known. Raises KeyError for a group nobody wants."""
        lease, members = self.leases[group], self._groups.setdefault(group, {})
        name = Address.parse(endpoint.url).shown
        known = members.get(name)
        if known is None and len(members) >= MOST:
            raise Full
        members[name] = _Lease(endpoint, self._clock() + lease)
        if known is None:
            log.info("worker %s has registered for '%s'", name, group)
        return known is None or known.endpoint != endpoint

    def leave(self, group: str, url: str) -> bool:
        """End a lease; whether there was one."""
        name = Address.parse(url).shown
        if self._groups.get(group, {}).pop(name, None) is None:
            return False
        log.info("worker %s has left '%s'", name, group)
        return True

    def expire(self) -> bool:
        """End the leases that were not renewed in time; whether there were any."""
        now = self._clock()
        late, self._looked = now - self._looked - TICK, now
        if late > LATE:
            for lease in self._all():
                lease.until += late
        lapsed = False
        for group, members in self._groups.items():
            for name in [name for name, lease in members.items() if lease.until <= now]:
                lapsed = True
                del members[name]
                log.warning("worker %s has not renewed its lease for '%s' and is removed", name, group)
        return lapsed

    def follow(self, leases: Mapping[str, float]) -> None:
        """Know these groups from now on, and no others."""
        self.leases = dict(leases)
        self._groups = {group: members for group, members in self._groups.items() if group in leases}

    def members(self, group: str) -> tuple[Endpoint, ...]:
        """Who is registered for a group, the longest known first."""
        return tuple(lease.endpoint for lease in self._groups.get(group, {}).values())

    def left(self) -> dict[str, float]:
        """How many seconds each worker's lease still runs."""
        now = self._clock()
        return {
            name: max(lease.until - now, 0.0) for members in self._groups.values() for name, lease in members.items()
        }

    def _all(self) -> Iterator[_Lease]:
        for members in self._groups.values():
            yield from members.values()
