"""What can be written about a listening address."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailrace.proxy.address import socket_fault
from tailrace.proxy.config import At, setting
from tailrace.proxy.pem import authority_faults, pair_faults


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """Certificate of a listener; the files are read again when they change."""

    cert: Path = setting(help="PEM certificate chain")
    key: Path = setting(help="PEM private key")
    client_ca: Path | None = setting(default=None, help="PEM bundle; when set, clients must present a certificate")

    def look(self) -> Iterable[At]:
        """Files that cannot be used."""
        yield from pair_faults(self.cert, self.key)
        yield from authority_faults(self.client_ca, "client_ca")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listening address: HOST:PORT, [IPv6]:PORT or unix:/PATH."""

    shorthand: ClassVar[str] = "address"

    address: str = setting(help="HOST:PORT, [IPv6]:PORT or unix:/absolute/path")
    tls: ServerTls | None = setting(default=None, help="serve HTTPS")
    proxy_protocol: bool = setting(default=False, help="expect a PROXY header (v1 or v2) first on every connection")
    trusted_proxies: tuple[str, ...] = setting(
        default=(), help='networks whose forwarded headers are believed; "unix" for peers on a Unix socket'
    )

    def check(self) -> Iterable[At]:
        """Faults of the address and the networks."""
        try:
            split_listen(self.address)
        except ValueError as error:
            yield At(str(error), "address")
        for number, network in enumerate(self.trusted_proxies):
            if network == "unix":
                continue
            try:
                ipaddress.ip_network(network)
            except ValueError:
                text = f"'{network}' is no network; write 10.0.0.0/8, fd00::/8 or unix"
                yield At(text, "trusted_proxies", number)

    def look(self) -> Iterable[At]:
        """A Unix socket needs a place to stand in."""
        yield from place_faults(self.address)


def place_faults(address: str) -> Iterable[At]:
    """What keeps a Unix socket from being made where it should be; the address stands under `address`."""
    if not address.startswith("unix:/"):
        return
    path = Path(address.removeprefix("unix:"))
    # The methods of paths raise for what stands in a folder that this user may not look into.
    if not os.path.isdir(path.parent):  # noqa: PTH112
        yield At(f"there is no folder {path.parent}", "address")
    elif os.path.lexists(path):
        # A socket may be one's own: a running gateway's file is checked as well.
        if not path.is_socket():
            yield At(f"{path} exists and is no socket", "address")
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        yield At(f"the folder {path.parent} cannot be written by this user", "address")


def split_listen(address: str) -> tuple[str, int]:
    """Host and port of a listening address, ("/path", -1) for a Unix socket; raises ValueError."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path.startswith("/"):
            raise ValueError(f"'{address}': a Unix socket is written unix:/absolute/path")
        if fault := socket_fault(path):
            raise ValueError(f"'{address}': {fault}")
        return path, -1
    if address.startswith(("http:", "https:")):
        raise ValueError(f"'{address}': no scheme stands here, just HOST:PORT; `tls` beside it makes it HTTPS")
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()):
        raise ValueError(f"'{address}': expected HOST:PORT, such as 127.0.0.1:8080 or [::]:8080")
    if len(port) > 5 or int(port) > 65535:
        raise ValueError(f"'{address}': a port is at most 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"'{address}': an IPv6 address is written in brackets, such as [::1]:8080")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if host != "localhost":
            raise ValueError(f"'{address}': the host must be an IP address or localhost") from None
        host = "127.0.0.1"
    return host, int(port)
