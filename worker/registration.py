"""A sidecar tells gateways that it is there: again before its lease ends, at once when one of them seems to have
restarted, and a last time when it goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import aiohttp
import orjson
from tailrace.proxy.address import Address, AddressError
from tailrace.proxy.client_tls import ClientTls
from tailrace.proxy.config import At, AtLeast, AtMost, Matching, NotEmpty, setting
from tailrace.proxy.discovery.announcement import PATH
from tailrace.proxy.discovery.endpoint import HEAVIEST, LIGHTEST
from tailrace.proxy.discovery.names import resolve
from tailrace.proxy.discovery.settings import GROUP
from tailrace.proxy.hop import HEADER, HopKey
from tailrace.proxy.tls import ClientContext

log: Final = logging.getLogger("tailrace")
ANSWER: Final = 2.0
SOONEST: Final = 0.1
LATEST: Final = 2.0
LOOK: Final = 0.25
LONGEST: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterSettings:
    """Where a sidecar registers, and as what."""

    gateways: Annotated[tuple[str, ...], NotEmpty()] = setting(
        help="data ports of the gateways: http://HOST:PORT, https://HOST:PORT or unix:/PATH; a name is each of its "
        "addresses"
    )
    group: Annotated[str, Matching(GROUP, "letters, digits, '.', '_' and '-'")] = setting(
        help="what it registers for, as `registered` in a pool of the gateways says"
    )
    url: str | None = setting(
        default=None, key="as", help="where gateways reach this sidecar; without it, its listener's address"
    )
    weight: Annotated[float, AtLeast(LIGHTEST), AtMost(HEAVIEST)] | None = setting(
        default=None, help="in place of the pool's own"
    )
    region: str | None = setting(default=None, help="in place of the pool's own")
    tls: ClientTls | None = setting(default=None, help="for https gateways")

    def check(self) -> Iterable[At]:
        """Faults of the URLs."""
        for number, url in enumerate(self.gateways):
            if fault := _fault(url):
                yield At(fault, "gateways", number)
        if self.url is not None and (fault := _fault(self.url)):
            yield At(fault, "as")


def _fault(url: str) -> str:
    try:
        Address.parse(url)
    except AddressError as error:
        return str(error)
    return ""


class Unheard(Exception):  # noqa: N818 - a fact about the gateway
    """A gateway did not take the announcement; the text says why."""


class Registration:
    """One sidecar's, from `begin` to `leave`. `readers` counts the gateways' processes that read its state now."""

    def __init__(self, settings: RegisterSettings, key: HopKey, url: str, readers: Callable[[], int]) -> None:
        self._settings = settings
        self._key = key
        self._url = url
        self._readers = readers
        tls = any(Address.parse(url).tls for url in settings.gateways)
        self._context = ClientContext(settings.tls) if tls else None
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []
        self._trouble: dict[str, str] = {}

    def begin(self) -> None:
        """Register at every gateway from now on."""
        if self._over:
            return
        self._tasks = [asyncio.ensure_future(self._keep(Address.parse(url))) for url in self._settings.gateways]

    def is_like(self, other: Registration) -> bool:
        """Whether a gateway takes both for the same."""
        return (self._settings.group, self._url) == (other._settings.group, other._url)

    async def leave(self) -> None:
        """Tell every gateway that this worker goes; those that do not answer in time find out by themselves."""
        self.close()
        self._over = True
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        await asyncio.gather(
            *(self._part(Address.parse(url)) for url in self._settings.gateways), return_exceptions=True
        )

    async def _part(self, gateway: Address) -> None:
        places = await _places(gateway)
        await asyncio.gather(*(self._post(*place, leave=True) for place in places), return_exceptions=True)

    def close(self) -> None:
        """Register no more."""
        for task in self._tasks:
            task.cancel()

    async def _keep(self, gateway: Address) -> None:
        failures = 0
        while True:
            try:
                leases = await self._announce(gateway)
            except Exception as error:
                # Whatever it is, this gateway must hear of the worker once it is over.
                self._tell(gateway.shown, f"{type(error).__name__}: {error}", error)
                leases = []
            third = min((lease for lease in leases if lease is not None), default=LATEST * 3.0) / 3.0
            failures = failures + 1 if None in leases or not leases else 0
            pause = min(SOONEST * 2.0 ** min(failures - 1, 16), LATEST, third) if failures else third
            await self._wait(pause * (0.8 + 0.2 * random.random()))

    async def _wait(self, seconds: float) -> None:
        """Until it is time, or a gateway stops to read this worker's state: it may have restarted and know nothing."""
        until, readers = asyncio.get_running_loop().time() + seconds, self._readers()
        while (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(LOOK, left))
            now = self._readers()
            if now < readers:
                return
            readers = now

    async def _announce(self, gateway: Address) -> list[float | None]:
        """The lease at every address of a gateway, None where there was none to be had."""
        places = await _places(gateway)
        if not places:
            self._tell(gateway.shown, "its name has no address")
        return list(await asyncio.gather(*(self._lease(*place) for place in places)))

    async def _lease(self, address: Address, name: str) -> float | None:
        try:
            lease = await self._post(address, name, leave=False)
        except Unheard as why:
            self._tell(address.shown, str(why))
            return None
        if self._trouble.get(address.shown) != "":
            log.info("registered at %s for '%s' as %s", address.shown, self._settings.group, self._url)
        self._trouble[address.shown] = ""
        return lease

    def _tell(self, gateway: str, why: str, error: Exception | None = None) -> None:
        if self._trouble.get(gateway) != why:
            log.warning("cannot register at %s: %s", gateway, why, exc_info=error)
        self._trouble[gateway] = why

    async def _post(self, address: Address, name: str, *, leave: bool) -> float:
        settings = self._settings
        told = {"group": settings.group, "worker": self._url, "weight": settings.weight, "region": settings.region}
        connector = aiohttp.UnixConnector(address.unix) if address.unix else aiohttp.TCPConnector()
        base = "http://gateway" if address.unix else address.shown
        headers = {HEADER.decode(): self._key.token().decode(), "content-type": "application/json"}
        if name:
            headers["host"] = f"{name}:{address.port}"
        try:
            async with (
                asyncio.timeout(ANSWER),
                aiohttp.ClientSession(connector=connector, trust_env=False) as session,
                session.post(
                    base + PATH,
                    data=orjson.dumps(told | {"leave": leave}),
                    headers=headers,
                    allow_redirects=False,
                    ssl=self._ssl(address),
                    server_hostname=name or None if address.tls else None,
                ) as response,
            ):
                return _lease_in(response.status, await response.content.read(LONGEST))
        except TimeoutError:
            raise Unheard(f"no answer within {ANSWER:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unheard(str(error)) from error

    def _ssl(self, address: Address) -> ssl.SSLContext | bool:
        return self._context.current() if address.tls and self._context is not None else True


async def _places(gateway: Address) -> list[tuple[Address, str]]:
    """Every address of a gateway, each with the name that it goes by."""
    if not gateway.named:
        return [(gateway, "")]
    found = []
    with contextlib.suppress(OSError):
        for ip in await resolve(gateway.host, gateway.port):
            host = f"[{ip}]" if ":" in ip else ip
            scheme = "https" if gateway.tls else "http"
            found.append((Address.parse(f"{scheme}://{host}:{gateway.port}{gateway.prefix}"), gateway.host))
    return found


def _lease_in(status: int, body: bytes) -> float:
    """What a gateway answers; raises Unheard where it is no lease."""
    try:
        told: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        told = None
    if not isinstance(told, dict):
        raise Unheard(f"it answers {status}: is it the data port of a gateway?")
    error = told.get("error")
    refused = told.get("refused") or (error.get("message") if isinstance(error, dict) else None)
    lease = told.get("lease")
    if status != 200 or isinstance(lease, bool) or not isinstance(lease, int | float) or lease <= 0:
        raise Unheard(str(refused or f"it answers {status}"))
    return float(lease)
