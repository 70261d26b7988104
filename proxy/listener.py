"""What can be written about a listening address."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailrace.proxy.config import At, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """Certificate of a listener; the files are read again when they change."""

    cert: Path = setting(help="PEM certificate chain")
    key: Path = setting(help="PEM private key")
    client_ca: Path | None = setting(default=None, help="PEM bundle; when set, clients must present a certificate")


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


def split_listen(address: str) -> tuple[str, int]:
    """Host and port of a listening address, ("/path", -1) for a Unix socket; raises ValueError."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path.startswith("/"):
            raise ValueError(f"'{address}': a Unix socket is written unix:/absolute/path")
        return path, -1
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"'{address}': expected HOST:PORT, such as 127.0.0.1:8080 or [::]:8080")
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
