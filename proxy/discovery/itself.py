"""Says in the log, once, that a worker which was found is this very gateway: calls go round for some hops."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from tailrace.proxy.discovery.endpoint import Found
from tailrace.proxy.listening import Listening

log: Final = logging.getLogger("tailrace")


class Itself:
    """The listeners of a start, which later configurations do not change, and what was found so far."""

    def __init__(self) -> None:
        self._own: Listening | None = None
        self._met: set[str] = set()
        self._told: set[str] = set()

    def listens(self, addresses: Iterable[str]) -> None:
        """Where it listens; what is said of that later waits for a restart."""
        if self._own is None:
            self._own = Listening(addresses)

    def look(self, found: Found) -> None:
        """Judge whoever is new."""
        if self._own is None:
            return
        for key, members in found.members.items():
            for url in [endpoint.url for endpoint in members if endpoint.url not in self._met]:
                if url not in self._told and self._own.leads_here(url):
                    self._told.add(url)
                    log.error("worker %s, found by %s, is this gateway itself: its calls come back to it", url, key)
        self._met = {endpoint.url for members in found.members.values() for endpoint in members}
