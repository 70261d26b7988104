"""Who a client is, and whom its forwarded headers are believed of."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from tailrace.proxy.peer import Peer, Trust, written

TRUST = Trust([ip_network("10.0.0.0/8"), ip_network("fd00::/8"), ip_network("192.0.2.1")])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("1.2.3.4:80", "1.2.3.4"),
        ("[2001:DB8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8:0:0::1", "2001:db8::1"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("[::ffff:102:304]", "1.2.3.4"),
    ],
)
def test_an_address_has_one_spelling(text: str, address: str) -> None:
    assert written(text) == address


@pytest.mark.parametrize(
    "text", ["", "unknown", "1.2.3", "1.2.3.4:", "1.2.3.4:x", "[1::2", "1.2.3.4 ", "_hidden", "::1:80:x"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        written(text)


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("192.0.2.1", True),
        ("192.0.2.2", False),
        ("fd12::1", True),
        ("fe80::1%eth0", False),
        ("unix", False),
        ("nonsense", False),
    ],
)
def test_networks_say_whom_to_trust(address: str, trusted: bool) -> None:
    assert TRUST.covers(address) is trusted


def test_unix_sockets_are_trusted_by_name_only() -> None:
    assert Trust([], unix=True).covers("unix")
    assert not Trust([], unix=True).covers("10.0.0.1")
    assert not Trust([]).covers("unix")


def test_workers_are_told_the_gateways_own_view() -> None:
    peer = Peer.of("1.2.3.4", secure=True, trusted=False)
    assert peer.forwarded == b"x-forwarded-for: 1.2.3.4\r\nx-forwarded-proto: https\r\n"
    assert Peer.of("unix", secure=False, trusted=False).forwarded.endswith(b"proto: http\r\n")


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        ([b"9.9.9.9, 1.2.3.4"], "1.2.3.4"),
        ([b"9.9.9.9", b"1.2.3.4, 10.0.0.1"], "1.2.3.4"),
        ([b"10.0.0.2,10.0.0.1"], "10.0.0.2"),
        ([b"9.9.9.9, ,10.0.0.1"], "10.0.0.1"),
        ([b"\xff"], "10.9.9.9"),
        ([], "10.9.9.9"),
    ],
)
def test_the_walk_goes_from_right_to_left_and_ends_at_the_first_stranger(lines: list[bytes], address: str) -> None:
    hop = Peer.of("10.9.9.9", secure=False, trusted=True)
    assert TRUST.client_of(hop, lines, None).address == address


@pytest.mark.parametrize(
    ("proto", "hop_secure", "secure"),
    [
        (b"https", False, True),
        (b" HTTPS", False, True),
        (b"http", True, False),
        (None, True, True),
        (b"x", True, False),
    ],
)
def test_the_protocol_is_what_the_hop_says(proto: bytes | None, hop_secure: bool, secure: bool) -> None:
    hop = Peer.of("10.9.9.9", secure=hop_secure, trusted=True)
    assert TRUST.client_of(hop, [b"1.2.3.4"], proto).secure is secure
