"""Where a worker listens: host and port or a Unix socket, with or without TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tailrace.proxy.opening import Opening

_API = re.compile(r"/v1(?:/(?:chat/)?completions|/messages|/responses|/models)?\Z")
_RESOLVE_EVERY = 15.0
LONGEST_SOCKET = 107
"""Bytes of a Unix socket's path; the kernel wants an end behind them."""
_NODELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class AddressError(ValueError):
    """A worker URL that cannot be used; the text says why."""


@dataclass(slots=True)
class Address:
    """One endpoint; `shown` is its canonical form and identity, `authority` the Host header sent to it.

    `server_name` is what its certificate has to bear where that is not `host`.
    """

    shown: str
    authority: bytes
    prefix: str = ""
    host: str = ""
    port: int = 0
    unix: str = ""
    tls: bool = False
    server_name: str = ""
    user_timeout: float = 30.0
    _found: list[str] = field(default_factory=list)
    _found_at: float = -1e9
    _refresh: asyncio.Task[None] | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read `http://host:port[/prefix]`, `https://…` or `unix:/path`; raises AddressError."""
        if url.startswith("unix:"):
            path = url.removeprefix("unix:").removeprefix("//")
            if not path.startswith("/"):
                raise AddressError(f"'{url}': a Unix socket is written unix:/absolute/path")
            if fault := socket_fault(path):
                raise AddressError(f"'{url}': {fault}")
            return cls(f"unix:{path}", b"localhost", unix=path)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            # Its words would show what it took for the port, which may be a part of a password.
            raise AddressError(f"'{url}' is no URL: its host or port makes no sense") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise AddressError(f"'{url}': expected http://HOST:PORT, https://HOST:PORT or unix:/PATH")
        if parts.query or parts.fragment or "@" in parts.netloc:
            raise AddressError(f"'{url}': a worker's URL has neither user, query nor fragment")
        tls = parts.scheme == "https"
        port = port or (443 if tls else 80)
        host = _canonical(parts.hostname)
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        prefix = parts.path.rstrip("/")
        if api := _API.search(prefix):
            shown = f"{parts.scheme}://{parts.netloc}{prefix[: api.start()]}"
            raise AddressError(f"'{url}': write {shown}, without {api.group()}, which requests bring along")
        return cls(
            f"{parts.scheme}://{authority}{prefix}", authority.encode(), prefix=prefix, host=host, port=port, tls=tls
        )

    @property
    def named(self) -> bool:
        """Whether its host is a name, whose addresses may change."""
        return bool(self.host) and not _is_literal(self.host)

    @property
    def unspecified(self) -> bool:
        """Whether it stands for all addresses of a host, and others can do nothing with it."""
        return _is_literal(self.host) and ipaddress.ip_address(self.host).is_unspecified

    def called(self, name: str) -> None:
        """Speak to it as to the host `name`, whose address it is."""
        self.server_name = name
        self.authority = f"{name}:{self.port}".encode()

    async def open(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
        opening: Opening,
    ) -> None:
        """Connect; raises OSError. Known addresses are tried in turn, the one that worked last first."""
        server_name = (self.server_name or self.host) if self.tls else None
        if self.unix:
            await loop.create_unix_connection(protocol, self.unix)
            return
        error: OSError = OSError("the name has no address")
        for ip in list(await self._addresses(loop)):
            try:
                sock = await opening.connect(loop, ip, self.port)
                transport, _ = await loop.create_connection(
                    protocol, sock=sock, ssl=context if self.tls else None, server_hostname=server_name
                )
            except OSError as failure:
                error = failure
                if ip in self._found and len(self._found) > 1:
                    self._found.remove(ip)
                    self._found.append(ip)
                continue
            tune(transport.get_extra_info("socket"), self.user_timeout)
            return
        raise error

    async def knock(self, loop: asyncio.AbstractEventLoop, opening: Opening) -> None:
        """Connect to the address that worked last, and hang up; raises OSError where nobody is there."""
        for ip in (await self._addresses(loop))[:1]:
            (await opening.connect(loop, ip, self.port)).close()

    async def _addresses(self, loop: asyncio.AbstractEventLoop) -> list[str]:
        if not self._found:
            if _is_literal(self.host):
                self._found, self._found_at = [self.host], float("inf")
            else:
                await self._resolve(loop)
        elif loop.time() - self._found_at > _RESOLVE_EVERY and (self._refresh is None or self._refresh.done()):
            # The last known addresses serve meanwhile: a slow name server delays nobody.
            self._found_at = loop.time()
            self._refresh = loop.create_task(self._refresh_quietly(loop))
        return self._found

    async def _refresh_quietly(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await self._resolve(loop)
        except OSError:
            return

    async def _resolve(self, loop: asyncio.AbstractEventLoop) -> None:
        found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        self._found = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        self._found_at = loop.time()


def socket_fault(path: str) -> str | None:
    """What keeps a path from being a Unix socket's on every system."""
    length = len(path.encode(errors="surrogateescape"))
    if length > LONGEST_SOCKET:
        return f"a Unix socket's path has at most {LONGEST_SOCKET} bytes, and this one has {length}"
    return "a path has no NUL in it" if "\0" in path else None


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _canonical(host: str) -> str:
    """One writing of an IP address; a name as it is."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def tune(sock: socket.socket | None, user_timeout: float) -> None:
    """Bound how long the kernel keeps unacknowledged bytes; TCP only, nothing on other sockets."""
    if sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(*_NODELAY)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(user_timeout * 1000))
