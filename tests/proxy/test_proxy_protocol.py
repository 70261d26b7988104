"""Headers of the PROXY protocol: whole, byte by byte, and out of form."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailrace.proxy.proxy_protocol import MAX_V1, MAX_V2, NOBODY, SIGNATURE, BadHeader, Origin, Reading

REST = b"\x16\x03\x01GET / HTTP/1.1\r\n\r\n"


def v2(body: bytes, *, command: int = 0x21, family: int = 0x11, length: int | None = None) -> bytes:
    return SIGNATURE + bytes([command, family]) + struct.pack("!H", len(body) if length is None else length) + body


def tcp4(source: str = "1.2.3.4", extensions: bytes = b"") -> bytes:
    ends = socket.inet_aton(source) + socket.inet_aton("10.0.0.1")
    return v2(ends + struct.pack("!HH", 1000, 443) + extensions)


def tcp6(source: str) -> bytes:
    ends = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, "::1")
    return v2(ends + struct.pack("!HH", 1000, 443), family=0x21)


def tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!BH", kind, len(value)) + value


GOOD = {
    "v1, IPv4": (b"PROXY TCP4 1.2.3.4 10.0.0.1 1000 443\r\n", Origin("1.2.3.4")),
    "v1, IPv6": (b"PROXY TCP6 2001:DB8::1 ::1 1000 443\r\n", Origin("2001:db8::1")),
    "v1, longest": (
        b"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
        Origin("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff1"),
    ),
    "v1, mapped": (b"PROXY TCP6 ::ffff:1.2.3.4 ::1 1000 443\r\n", Origin("1.2.3.4")),
    "v1, unknown": (b"PROXY UNKNOWN\r\n", NOBODY),
    "v1, unknown with anything": (b"PROXY UNKNOWN ffff:: what ever 1\r\n", NOBODY),
    "v2, IPv4": (tcp4(), Origin("1.2.3.4")),
    "v2, IPv6": (tcp6("2001:db8::1"), Origin("2001:db8::1")),
    "v2, mapped": (tcp6("::ffff:1.2.3.4"), Origin("1.2.3.4")),
    "v2, local": (v2(b"", command=0x20, family=0x00), NOBODY),
    "v2, local with addresses": (v2(tcp4()[16:], command=0x20), NOBODY),
    "v2, unspecified": (v2(b"", family=0x00), NOBODY),
    "v2, Unix": (v2(b"\0" * 216, family=0x31), NOBODY),
    "v2, over TLS": (tcp4(extensions=tlv(0x20, b"\x01\0\0\0\0")), Origin("1.2.3.4", secure=True)),
    "v2, not over TLS": (tcp4(extensions=tlv(0x20, b"\0\0\0\0\0")), Origin("1.2.3.4", secure=False)),
    "v2, other extensions": (tcp4(extensions=tlv(0x01, b"h2") + tlv(0xE0, b"x" * 300)), Origin("1.2.3.4")),
    "v2, largest": (tcp4(extensions=tlv(0x04, b"\0" * (MAX_V2 - 16 - 12 - 3))), Origin("1.2.3.4")),
}

BAD = {
    "HTTP": b"GET / HTTP/1.1\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01",
    "another word": b"PROXIES TCP4",
    "POST": b"POST / HTTP/1.1\r\n",
    "lower case": b"proxy TCP4 1.2.3.4 10.0.0.1 1000 443\r\n",
    "no line end": b"PROXY TCP4 " + b"1" * MAX_V1,
    "UDP": b"PROXY UDP4 1.2.3.4 10.0.0.1 1000 443\r\n",
    "few fields": b"PROXY TCP4 1.2.3.4 10.0.0.1 1000\r\n",
    "many fields": b"PROXY TCP4 1.2.3.4 10.0.0.1 1000 443 x\r\n",
    "two spaces": b"PROXY TCP4  1.2.3.4 10.0.0.1 1000 443\r\n",
    "no address": b"PROXY TCP4 localhost 10.0.0.1 1000 443\r\n",
    "bad second address": b"PROXY TCP4 1.2.3.4 x 1000 443\r\n",
    "leading zeros": b"PROXY TCP4 01.2.3.4 10.0.0.1 1000 443\r\n",
    "family": b"PROXY TCP4 ::1 ::1 1000 443\r\n",
    "other family": b"PROXY TCP6 1.2.3.4 10.0.0.1 1000 443\r\n",
    "zone": b"PROXY TCP6 fe80::1%eth0 ::1 1000 443\r\n",
    "port too high": b"PROXY TCP4 1.2.3.4 10.0.0.1 65536 443\r\n",
    "port signed": b"PROXY TCP4 1.2.3.4 10.0.0.1 +1000 443\r\n",
    "port of zeros": b"PROXY TCP4 1.2.3.4 10.0.0.1 001 443\r\n",
    "other digits": "PROXY TCP4 1.2.3.4 10.0.0.1 1000 4४3\r\n".encode(),
    "only the word": b"PROXY \r\n",
    "v2, version": v2(b"", command=0x11),
    "v2, command": v2(b"", command=0x22),
    "v2, datagrams": v2(tcp4()[16:], family=0x12),
    "v2, family": v2(tcp4()[16:], family=0x41),
    "v2, short": v2(b"\0" * 11),
    "v2, short for IPv6": v2(b"\0" * 35, family=0x21),
    "v2, too long": v2(b"", length=MAX_V2),
    "v2, cut extension": tcp4(extensions=b"\x20\0"),
    "v2, extension beyond the end": tcp4(extensions=b"\x20\0\x05\x01"),
    "v2, signature": SIGNATURE[:-1] + b"X" + tcp4()[12:],
}


def fed(pieces: list[bytes]) -> tuple[Origin, bytes]:
    """What a header says that arrives in pieces, and what is left of them."""
    reading = Reading()
    there = b""
    for piece in pieces:
        there += piece
        if reading.origin is None:
            there = there[reading.take(there) :]
    assert reading.origin is not None
    return reading.origin, there


@pytest.mark.parametrize(("header", "origin"), GOOD.values(), ids=GOOD)
def test_a_header_is_read_and_what_follows_is_left_alone(header: bytes, origin: Origin) -> None:
    assert fed([header + REST]) == (origin, REST)


@pytest.mark.parametrize(("header", "origin"), GOOD.values(), ids=GOOD)
def test_a_header_may_come_byte_by_byte(header: bytes, origin: Origin) -> None:
    assert fed([bytes([byte]) for byte in header + REST]) == (origin, REST)


@given(st.sampled_from(list(GOOD.values())), st.integers(0, 300))
def test_a_header_may_be_cut_anywhere(good: tuple[bytes, Origin], at: int) -> None:
    header, origin = good
    data = header + REST
    assert fed([data[:at], data[at:]]) == (origin, REST)


@pytest.mark.parametrize("header", BAD.values(), ids=BAD)
@pytest.mark.parametrize("step", [1, 10_000])
def test_anything_else_is_refused(header: bytes, step: int) -> None:
    with pytest.raises(BadHeader):
        fed([header[at : at + step] for at in range(0, len(header), step)])


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reading(data: bytes) -> None:
    reading = Reading()
    try:
        taken = reading.take(data)
    except BadHeader:
        return
    assert 0 <= taken <= len(data)


def test_a_stranger_is_known_by_the_first_byte() -> None:
    for first in b"\x16GX":
        with pytest.raises(BadHeader):
            Reading().take(bytes([first]))
