"""What goes to the sink out of memory is what the log has, whatever is in it, and wherever memory ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ledgers import DONE, EVER, fill, log_in, opening, read, settled
from postgres import postgres
from tailrace.proxy.ledger import lately
from tailrace.proxy.ledger.keeper import Keeper
from tailrace.proxy.ledger.lately import Lately
from tailrace.proxy.ledger.log import Log
from tailrace.proxy.ledger.record import Late
from tailrace.proxy.ledger.ring import Ring
from tailrace.proxy.ledger.shipping import Shipper
from tailrace.proxy.ledger.sinks import sink_of
from tailrace.proxy.ledger.sinks.sink import Sink
from tailrace.proxy.ledger.verify import verify

ODD = ("it's", 'a "quoted"; drop table x', "back\\slash", "nül \0 ü", "%s ? :a", "-1", "")


@pytest.fixture(params=["sqlite", "postgres"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sink]:
    if request.param == "sqlite":
        sink = sink_of(None, tmp_path)
        yield sink
        sink.close()
        return
    with postgres() as running:
        sink = sink_of(running.url, tmp_path)
        yield sink
        sink.close()


class Rig:
    """A ring, keeper and shipper, with what passes between them in memory."""

    def __init__(self, folder: Path, sink: Sink, *, segment_bytes: int = 1 << 20) -> None:
        (folder / "shared").mkdir()
        self.folder = folder / "ledger"
        self.log: Log = log_in(self.folder, segment_bytes=segment_bytes)
        self.lately = Lately()
        self.keeper = Keeper(folder / "shared", self.log, lately=self.lately)
        self.ring = Ring.create(folder / "shared", "w'1", 64)
        self.sink = sink
        self.shipper = Shipper(self.log, sink, lately=self.lately)

    def see(self) -> None:
        """The sink has exactly what the log has."""
        self.shipper.ship()
        theirs = {each.charge_key: each for each in self.sink.records(-EVER, EVER)}
        mine = {each.charge_key: each for each in read(self.folder)}
        for key, record in mine.items():
            for name in record.__struct_fields__:
                wanted, found = getattr(record, name), getattr(theirs[key], name)
                if name == "tags":
                    assert found == wanted
                else:
                    assert found == (wanted.replace("\0", "�") if isinstance(wanted, str) else wanted), name
        assert set(mine) <= set(theirs)
        assert verify(self.folder, self.sink.seals(self.log.head.ledger)).faults == []


def test_what_is_in_memory_is_not_read_from_the_log(
    tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, sink)
    for count in (3, 0, 20, 9):
        fill(rig.ring, count, rig.ring.settled + 1)
        rig.keeper.round()
        with monkeypatch.context() as patched:
            patched.setattr("tailrace.proxy.ledger.segments.lines_from", lambda *_: pytest.fail("the log was read"))
            rig.shipper.ship()
        rig.see()
    assert rig.shipper.shipped == 32


def test_odd_words_arrive_as_they_are(tmp_path: Path, sink: Sink) -> None:
    rig = Rig(tmp_path, sink)
    for word in ODD:
        for _ in range(9):  # enough for a statement of their own
            names = dict.fromkeys(("tenant", "key", "model", "deployment", "route"), word)
            slot = rig.ring.open(opening(rig.ring.mint(), **names, rates=None))
            rig.ring.settle(slot, Late("completed", word), settled(3))
        rig.keeper.round()
    rig.ring.settle(rig.ring.open(opening('a"b\\', call="c\0")), DONE, settled(4))
    rig.keeper.round()
    rig.see()
    assert rig.shipper.shipped == 9 * len(ODD) + 1


def test_orphans_are_shipped_too(tmp_path: Path, sink: Sink) -> None:
    rig = Rig(tmp_path, sink)
    fill(rig.ring, 2)
    slot = rig.ring.open(opening(rig.ring.mint()))
    rig.ring.running(slot, 5, 6, 1, 7, estimated=True)
    rig.ring.close()
    rig.keeper.round()
    rig.see()
    assert rig.keeper.orphans == 1


def test_segments_change_underway(tmp_path: Path, sink: Sink) -> None:
    rig = Rig(tmp_path, sink, segment_bytes=2000)
    for count in (3, 5, 9, 2, 1):
        fill(rig.ring, count, rig.ring.settled + 1)
        rig.keeper.round()
        if count != 5:
            rig.see()
    assert len(sink.seals(rig.log.head.ledger)) == rig.log.head.segment > 2


def test_what_is_held_no_longer_is_found_in_the_log(
    tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lately, "MOST", 10)
    rig = Rig(tmp_path, sink, segment_bytes=4000)
    for count in (4, 4, 30, 4, 12, 3):
        fill(rig.ring, count, rig.ring.settled + 1)
        rig.keeper.round()
        if count < 10:
            rig.see()
    rig.see()
    assert rig.lately._held == 0


def test_a_sink_put_back_gets_the_rest_from_the_log(tmp_path: Path, sink: Sink) -> None:
    rig = Rig(tmp_path, sink)
    fill(rig.ring, 5)
    rig.keeper.round()
    rig.see()
    fill(rig.ring, 5, 6)
    rig.keeper.round()
    rig.shipper._fail("it was away")
    other = sink_of(None, tmp_path / "ledger")
    second = Shipper(rig.log, other, lately=rig.lately)
    second.ship()
    assert second.shipped == 10
    other.close()
    rig.see()
