"""The host's part of the ledger as a whole, on its own threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ledgers import EVER, fill, opening, raw_keys
from tailrace.proxy.ground import Places
from tailrace.proxy.ledger.books import Books, rings_in
from tailrace.proxy.ledger.ring import Ring
from tailrace.proxy.ledger.sinks.sink import Down
from tailrace.proxy.ledger.sinks.sqlite import SqliteSink
from tailrace.proxy.ledger.verify import verify


@pytest.fixture
def places(tmp_path: Path) -> Places:
    places = Places(tmp_path / "state", tmp_path / "shared")
    places.make()
    return places


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_call_goes_from_the_ring_through_the_log_to_the_sink(places: Places) -> None:
    books = Books(places, None)
    ring = Ring.create(rings_in(places), "w", 16)
    keys = fill(ring, 5)
    until(lambda: books.shipper.shipped == 5)
    assert books.troubles == []
    books.close()
    again = Books(places, None)
    keys += fill(ring, 5, 6)
    ring.open(opening("open"))
    ring.close()
    until(lambda: list(rings_in(places).iterdir()) == [])
    again.close()
    assert raw_keys(places.state / "ledger") == [*keys, "open"]
    sink = SqliteSink(places.state / "ledger.db", read_only=True)
    assert {record.charge_key for record in sink.records(-EVER, EVER)} == {*keys, "open"}
    assert verify(places.state / "ledger", sink.seals(again.log.head.ledger)).faults == []
    sink.close()


def test_what_is_wrong_is_told(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    books = Books(places, "postgresql://u:pw1@127.0.0.1:1/x")
    fill(Ring.create(rings_in(places), "w", 16), 1)
    until(lambda: books.shipper.trouble != "")
    [told] = books.troubles
    assert told.startswith("the ledger's sink takes nothing: PostgreSQL: ") and "pw1" not in told
    books.close()
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(Down, match=r"pip install 'tailrace\[postgres\]'"):
        Books(places, "postgresql://x")


@pytest.mark.parametrize("period", [0.01, 3600.0], ids=["from-the-beginning", "at-the-end"])
def test_a_sink_that_stands_still_is_told_and_keeps_nobody_from_ending(
    places: Places, monkeypatch: pytest.MonkeyPatch, period: float
) -> None:
    monkeypatch.setattr("tailrace.proxy.ledger.books.PERIOD", period)
    monkeypatch.setattr("tailrace.proxy.ledger.books.BEHIND_SECONDS", 0.05)
    monkeypatch.setattr("tailrace.proxy.ledger.shipping._PARTING", 0.05)
    asked, goes_on = threading.Event(), threading.Event()
    in_vain: list[str] = []

    def store(*_: object) -> None:
        asked.set()
        if not goes_on.wait(30):
            in_vain.append("nobody went on meanwhile")

    monkeypatch.setattr(SqliteSink, "store", store)
    monkeypatch.setattr(SqliteSink, "take", store)
    books = Books(places, None)
    fill(Ring.create(rings_in(places), "w", 16), 3)
    if period < 1:
        assert asked.wait(30)
    until(lambda: bool(books.troubles))
    assert books.troubles[0].startswith("the ledger's sink is ")
    books.close()
    assert asked.is_set()
    assert not in_vain
    goes_on.set()
    assert books.shipper._thread is not None
    books.shipper._thread.join(10)
    books.shipper._sink.close()


def test_a_disk_that_stands_still_is_told(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.proxy.ledger.books.STALLED_SECONDS", 0.05)
    goes_on = threading.Event()
    books = Books(places, None)
    monkeypatch.setattr(books.log._disk, "sync", lambda fd: goes_on.wait(30))
    ring = Ring.create(rings_in(places), "w", 16)
    keys = fill(ring, 3)
    until(lambda: bool(books.troubles))
    assert books.troubles[0].startswith("the ledger's disk has taken nothing for ")
    assert not ring.is_durable(1)
    goes_on.set()
    until(lambda: ring.is_durable(3))
    monkeypatch.undo()
    assert books.troubles == []
    books.close()
    assert raw_keys(places.state / "ledger") == keys
