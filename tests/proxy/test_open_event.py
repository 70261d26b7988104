"""An event that comes in many reads: what is kept of it, and that no read is looked at twice."""

from __future__ import annotations

import random

import pytest
from tailrace.proxy import open_event
from tailrace.proxy.open_event import MOST, OpenEvent

LONG = b"data: " + b"x" * 10_000


def begun(rest: bytes = LONG) -> OpenEvent:
    event = OpenEvent()
    event.set(rest)
    return event


def test_a_short_event_is_left_to_the_ordinary_way() -> None:
    event = begun(b"data: x")
    assert not event.goes_on(b"y")
    assert (event.content, event.size) == (b"data: x", 7)
    assert not begun(b"").goes_on(LONG)


def test_a_long_event_goes_on_until_its_end() -> None:
    event = begun()
    assert event.goes_on(b"yy")
    assert event.goes_on(b"z")
    assert (event.content, event.size) == (LONG + b"yyz", len(LONG) + 3)
    assert not event.goes_on(b"w\n\ndata: next")
    assert event.content == LONG + b"yyz"


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n"])
@pytest.mark.parametrize("seed", range(8))
def test_an_end_is_found_wherever_reads_cut_it(end: bytes, seed: int) -> None:
    data = b"y" * 7 + end
    at = random.Random(seed).randrange(1, len(data))
    event = begun()
    assert not (event.goes_on(data[:at]) and event.goes_on(data[at:]))


@pytest.mark.interpreted
def test_no_read_is_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(open_event, "ends_within", lambda data: seen.append(len(data)))
    event = begun()
    for _ in range(100):
        assert event.goes_on(b"y" * 1000)
    assert sum(seen) <= 100 * 1003


def test_of_an_endless_event_the_end_is_kept() -> None:
    event = begun()
    for _ in range(5 * MOST // 100_000):
        assert event.goes_on(b"y" * 100_000)
        assert event.size <= 1.25 * MOST
    assert event.goes_on(b"z")
    assert event.content.endswith(b"yz")
