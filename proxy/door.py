"""A listening address of one process: accepts connections and says who is at their other end."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tailrace.proxy.arrivals import Arrivals
from tailrace.proxy.listener import Listener, split_listen
from tailrace.proxy.peer import Peer, Trust
from tailrace.proxy.server import ClientConnection
from tailrace.proxy.tls import ServerContext

if TYPE_CHECKING:
    from tailrace.proxy.head import RequestHead
    from tailrace.proxy.proxy_protocol import Origin
    from tailrace.proxy.service import Service

log = logging.getLogger("tailrace")
BACKLOG = 4096


class Door:
    """One listener of a process."""

    def __init__(self, service: Service, settings: Listener, sock: socket.socket) -> None:
        self._service = service
        self._settings = settings
        self._socket = sock
        self._tls = ServerContext(settings.tls) if settings.tls is not None else None
        self._server: asyncio.Server | None = None
        self._arrivals: Arrivals | None = None
        self.accepting = False
        self.certificate_fault = ""
        """Why the files of the certificate cannot be used as they are now; an older one is served."""
        networks = [ipaddress.ip_network(net) for net in settings.trusted_proxies if net != "unix"]
        self._trust = Trust(networks, unix="unix" in settings.trusted_proxies)

    async def open(self) -> None:
        """Begin to accept."""
        self.accepting = True
        loop = self._service.loop
        if self._tls is not None or self._settings.proxy_protocol or self._service.share is not None:
            self._arrivals = Arrivals(
                self._service,
                self._socket,
                self._connection,
                self._context,
                proxied=self._settings.proxy_protocol,
                shown=self._settings.address,
            )
            self._arrivals.open()
        elif self._socket.family == socket.AF_UNIX:
            self._server = await loop.create_unix_server(self._connection, sock=self._socket)
        else:
            self._server = await loop.create_server(self._connection, sock=self._socket, backlog=BACKLOG)

    def _connection(self, origin: Origin | None = None) -> asyncio.Protocol:
        return cast("asyncio.Protocol", ClientConnection(self._service, self, origin))

    def _context(self) -> ssl.SSLContext | None:
        return self._tls.context if self._tls is not None else None

    def close(self) -> None:
        """Stop accepting; connections go on, those too that are still on their way to the first request."""
        self.accepting = False
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._arrivals is not None:
            self._arrivals.close()
            self._socket.close()

    def drop(self) -> None:
        """Stop accepting, and let go of those on their way to the first request."""
        self.close()
        if self._arrivals is not None:
            self._arrivals.drop()

    def refresh_tls(self) -> None:
        """Take up a changed certificate; a bad one is reported and the old one stays."""
        if self._tls is None:
            return
        try:
            if self._tls.refresh():
                self.certificate_fault = ""
                log.info("%s: certificate read again", self._settings.address)
        except (OSError, ssl.SSLError) as error:
            fault = f"{self._settings.address}: the changed certificate cannot be used, the old one stays: {error}"
            if fault != self.certificate_fault:
                self.certificate_fault = fault
                log.error("%s", fault)

    @property
    def shown(self) -> str:
        """The address as a URL."""
        scheme = "https" if self._settings.tls is not None else "http"
        if self._socket.family == socket.AF_UNIX:
            return self._settings.address
        host, port = self._socket.getsockname()[:2]
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def peer_of(self, transport: asyncio.BaseTransport, origin: Origin | None) -> Peer:
        """Who is at the other end of a socket, or whom a PROXY header names in its place."""
        secure = self._tls is not None
        if origin is not None and origin.address is not None:
            address = origin.address
            if origin.secure is not None:
                secure = origin.secure
        else:
            name = transport.get_extra_info("peername")
            address = name[0] if isinstance(name, tuple) else "unix"
        return Peer.of(address, secure=secure, trusted=self._trust.covers(address))

    def client_of(self, peer: Peer, head: RequestHead) -> Peer:
        """The client that a trusted peer speaks for."""
        return self._trust.client_of(peer, head.all(b"x-forwarded-for"), head.get(b"x-forwarded-proto"))


def bind(listener: Listener) -> socket.socket:
    """A listening socket for an address; raises OSError."""
    host, port = split_listen(listener.address)
    family = socket.AF_UNIX if port < 0 else socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_UNIX:
            _remove_stale(host)
            sock.bind(host)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _remove_stale(path: str) -> None:
    """Remove a socket file that nobody listens on any more; anything else that stands there stays."""
    if Path(path).exists() and not Path(path).is_socket():
        raise OSError(errno.EEXIST, f"{path} exists and is no socket")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.connect(path)
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        Path(path).unlink(missing_ok=True)
    else:
        raise OSError(errno.EADDRINUSE, f"somebody listens on {path} already")
    finally:
        probe.close()
