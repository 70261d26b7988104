"""A name with an address for each worker, looked up again and again, never on the event loop.

Where a name has addresses of both families, those of IPv4 count: the others are most often the same hosts once more.
What a name server says counts at once, but a name that is gone may be its mistake: the last addresses count for a time.
One that does not answer has said nothing, and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable
from typing import Final

from tailrace.proxy.address import Address
from tailrace.proxy.discovery.endpoint import MOST, Endpoint
from tailrace.proxy.discovery.settings import Name

log: Final = logging.getLogger("tailrace")
PATIENCE: Final = 10.0
"""Seconds that a look may take."""
_GONE: Final = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


class WatchedName:
    """One name."""

    def __init__(self, settings: Name, clock: Callable[[], float], draw: Callable[[], float] = random.random) -> None:
        self.found: tuple[Endpoint, ...] = ()
        self.trouble = ""
        self._settings = settings
        self._address = Address.parse(settings.url)
        self._clock = clock
        self._draw = draw
        self._gone_since: float | None = None

    async def look(self) -> float:
        """Look it up."""
        try:
            ips = await resolve(self._address.host, self._address.port)
        except OSError as error:
            self._unanswered(error)
        else:
            if self.trouble:
                log.info("the name %s can be looked up again", self._address.host)
            self.trouble, self._gone_since = "", None
            self.found = tuple(self._endpoint(ip) for ip in ips[:MOST])
        # Not all processes and hosts in the same moment.
        return self._settings.every * (0.9 + 0.2 * self._draw())

    def _endpoint(self, ip: str) -> Endpoint:
        address = self._address
        authority = f"[{ip}]:{address.port}" if ":" in ip else f"{ip}:{address.port}"
        return Endpoint(f"{'https' if address.tls else 'http'}://{authority}{address.prefix}", name=address.host)

    def _unanswered(self, error: OSError) -> None:
        host, keep, now = self._address.host, self._settings.keep, self._clock()
        why = error.strerror or str(error) or "no answer in time"
        if error.errno not in _GONE:
            self._tell("the name %s cannot be looked up, its last addresses stay: %s", host, why)
            return
        if self._gone_since is None:
            self._gone_since = now
        if now - self._gone_since < keep:
            self._tell("the name %s is gone, its last addresses stay for %g s: %s", host, keep, why)
        else:
            self._tell("the name %s is gone, and so are its workers: %s", host, why)
            self.found = ()

    def _tell(self, what: str, *of: object) -> None:
        if what % of != self.trouble:
            log.error(what, *of)
        self.trouble = what % of


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, of one family, in order; raises OSError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(PATIENCE):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise OSError(socket.EAI_AGAIN, f"no answer within {PATIENCE:g} s") from None
    except UnicodeError:
        raise OSError(socket.EAI_NONAME, "no name can be written so") from None
    by_family: dict[int, set[str]] = {}
    for family, _, _, _, place in found:
        by_family.setdefault(family, set()).add(str(place[0]))
    return sorted(by_family.get(socket.AF_INET) or by_family.get(socket.AF_INET6) or ())
