"""Which addresses clash, and which URLs lead to them."""

from __future__ import annotations

import pytest
from tailrace.proxy.listening import Listening


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("127.0.0.1:80", "127.0.0.1:80", True),
        ("127.0.0.1:80", "localhost:80", True),
        ("127.0.0.1:80", "127.0.0.1:81", False),
        ("127.0.0.1:80", "127.0.0.2:80", False),
        ("127.0.0.1:80", "0.0.0.0:80", True),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("[::]:80", "[::1]:80", True),
        ("[::]:80", "0.0.0.0:80", False),
        ("unix:/tmp/s", "unix:/tmp/s", True),
        ("unix:/tmp/s", "unix:/tmp/t", False),
        ("nonsense", "nonsense", False),
    ],
)
def test_addresses_that_cannot_be_had_at_once(one: str, other: str, clash: bool) -> None:
    assert Listening([one]).clashes(other) == Listening([other]).clashes(one) == clash


@pytest.mark.parametrize(
    ("url", "listening", "leads"),
    [
        ("http://127.0.0.1:80", "127.0.0.1:80", True),
        ("http://localhost:80/v", "127.0.0.1:80", True),
        ("http://127.0.0.1:80", "0.0.0.0:80", True),
        ("http://10.0.0.1:80", "0.0.0.0:80", False),
        ("http://10.0.0.1:80", "10.0.0.1:80", True),
        ("http://[::1]:80", "[::]:80", True),
        ("http://127.0.0.1:81", "127.0.0.1:80", False),
        ("http://name:80", "127.0.0.1:80", False),
        ("unix:/tmp/s", "unix:/tmp/s", True),
        ("unix:/tmp/s", "127.0.0.1:80", False),
        ("nonsense", "127.0.0.1:80", False),
    ],
)
def test_urls_that_lead_to_them(url: str, listening: str, leads: bool) -> None:
    assert Listening([listening]).leads_here(url) == leads


def test_each_of_thousands_is_understood_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not anew for each of the others."""
    asked: list[str] = []

    def noted(address: str) -> tuple[str, int]:
        asked.append(address)
        return address, 80

    monkeypatch.setattr("tailrace.proxy.listening.split_listen", noted)
    addresses = [f"10.0.{n // 250}.{n % 250}" for n in range(3000)]
    listening = Listening()
    for address in addresses:
        assert not listening.clashes(address)
        listening.add(address)
    assert len(asked) == 2 * len(addresses)
    assert all(listening.leads_here(f"http://{address}:80") for address in addresses)
    assert len(asked) == 2 * len(addresses)
