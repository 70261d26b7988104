"""The PROXY protocol, versions 1 and 2: who a load balancer says is at the other end. Values in, values out.

A header is read with `Reading`, which says how many of the bytes that are there belong to it: what follows is the
client's first byte, often of a TLS handshake, and must be left for whoever reads next.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import dataclass

from tailrace.proxy.peer import written

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
MAX_V1 = 107
MAX_V2 = 4096
"""Room for addresses, a TLS subject and vendors' extensions."""

_V2_HEAD = 16
_PORT = re.compile(r"(?:0|[1-9][0-9]{0,4})\Z")
_LOCAL, _PROXY = 0x20, 0x21
_ANY, _TCP4, _TCP6 = 0x00, 0x11, 0x21
_UNIX_STREAM = 0x31
_SSL = 0x20
_OVER_TLS = 0x01


class BadHeader(ValueError):  # noqa: N818 - bad input is not an error of the program
    """What came is no PROXY header; the text says why."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who a header speaks for.

    `address` is None where it speaks for nobody: health checks of the balancer itself, unknown families. `secure` is
    None where it does not say whether that client uses TLS.
    """

    address: str | None
    secure: bool | None = None


NOBODY = Origin(None)


class Reading:
    """A header that is being received: `take` what is there until `origin` is set."""

    __slots__ = ("_got", "origin")

    def __init__(self) -> None:
        self._got = b""
        self.origin: Origin | None = None

    def take(self, there: bytes) -> int:
        """How many of these bytes belong to the header; raises BadHeader as soon as it can be none."""
        seen = self._got + there
        if seen.startswith(b"P"):
            end = _end_of_v1(seen)
        elif SIGNATURE.startswith(seen[: len(SIGNATURE)]):
            end = _end_of_v2(seen)
        else:
            raise BadHeader("the connection does not begin with a PROXY header")
        taken = (end if 0 <= end <= len(seen) else len(seen)) - len(self._got)
        self._got += there[:taken]
        if len(self._got) == end:
            self.origin = _read_v1(self._got) if seen.startswith(b"P") else _read_v2(self._got)
        return taken


def _end_of_v1(seen: bytes) -> int:
    """Where a header of version 1 ends, -1 where its line end has not come yet."""
    if not b"PROXY ".startswith(seen[:6]):
        raise BadHeader("the connection does not begin with a PROXY header")
    end = seen.find(b"\r\n", 0, MAX_V1)
    if end < 0 and len(seen) >= MAX_V1:
        raise BadHeader("the PROXY line is too long")
    return end + 2 if end >= 0 else -1


def _end_of_v2(seen: bytes) -> int:
    """Where a header of version 2 ends, -1 where its length has not come yet."""
    if len(seen) < _V2_HEAD:
        return -1
    end = _V2_HEAD + int(struct.unpack_from("!H", seen, 14)[0])
    if end > MAX_V2:
        raise BadHeader("the PROXY header is too long")
    return end


def _read_v1(line: bytes) -> Origin:
    try:
        fields = line[:-2].decode("ascii").split(" ")
    except UnicodeDecodeError:
        raise BadHeader("the PROXY line is not ASCII") from None
    if fields[1] == "UNKNOWN":
        return NOBODY
    if len(fields) != 6 or fields[1] not in ("TCP4", "TCP6"):
        raise BadHeader("the PROXY line is malformed")
    version = 4 if fields[1] == "TCP4" else 6
    source = _address(fields[2], version)
    _address(fields[3], version)
    if not all(_PORT.match(port) and int(port) < 65536 for port in fields[4:]):
        raise BadHeader("a port of the PROXY line is malformed")
    return Origin(source)


def _address(text: str, version: int) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise BadHeader("an address of the PROXY line is malformed") from None
    if address.version != version or "%" in text:
        raise BadHeader("an address of the PROXY line is of the wrong family")
    return written(text)


def _read_v2(header: bytes) -> Origin:
    command, family = header[12], header[13]
    if command not in (_LOCAL, _PROXY):
        raise BadHeader("the PROXY header has an unknown version or command")
    if command == _LOCAL or family in (_ANY, _UNIX_STREAM):
        return NOBODY
    if family not in (_TCP4, _TCP6):
        raise BadHeader("the PROXY header is not about a stream")
    size = 4 if family == _TCP4 else 16
    extensions = _V2_HEAD + 2 * size + 4
    if len(header) < extensions:
        raise BadHeader("the PROXY header is shorter than its addresses")
    source = ipaddress.ip_address(header[_V2_HEAD : _V2_HEAD + size])
    return Origin(written(str(source)), _over_tls(header, extensions))


def _over_tls(header: bytes, at: int) -> bool | None:
    """What the extensions say about the client's own connection."""
    secure = None
    while at < len(header):
        if at + 3 > len(header):
            raise BadHeader("an extension of the PROXY header is cut")
        kind, length = struct.unpack_from("!BH", header, at)
        at += 3
        if at + length > len(header):
            raise BadHeader("an extension of the PROXY header is cut")
        if kind == _SSL and length >= 1:
            secure = bool(header[at] & _OVER_TLS)
        at += length
    return secure
