"""SQLite and PostgreSQL as sinks: each record there once, through outages, lost answers and repeats."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ledgers import EVER, fill, log_in
from postgres import Postgres, postgres
from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.chain import Head
from tailrace.proxy.ledger.keeper import Keeper
from tailrace.proxy.ledger.log import Log
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.ring import Ring
from tailrace.proxy.ledger.shipping import Shipper, replay
from tailrace.proxy.ledger.sinks import sink_of
from tailrace.proxy.ledger.sinks.postgres import PostgresSink
from tailrace.proxy.ledger.sinks.sink import RECORDS, SEALS, Down, Position, Sink
from tailrace.proxy.ledger.sinks.sqlite import SqliteSink
from tailrace.proxy.ledger.verify import verify


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("server").url if request.param == "postgres" else None


@pytest.fixture
def sink(url: str | None, tmp_path: Path) -> Iterator[Sink]:
    sink = sink_of(url, tmp_path)
    yield sink
    sink.close()


class Rig:
    """A ring, its keeper and a shipper, all gone round by hand."""

    def __init__(self, folder: Path, sink: Sink, **more: float) -> None:
        (folder / "shared").mkdir()
        self.log = log_in(folder / "ledger", segment_bytes=2000)
        self.keeper = Keeper(folder / "shared", self.log)
        self.ring = Ring.create(folder / "shared", "w", 16)
        self.shipper = Shipper(self.log, sink, **more)
        self.keys: list[str] = []

    def settle(self, count: int) -> None:
        self.keys += fill(self.ring, count, len(self.keys) + 1)
        self.keeper.round()

    def ship_and_see(self, sink: Sink) -> None:
        self.shipper.ship()
        self.see(sink)

    def see(self, sink: Sink) -> None:
        mine = [record for record in sink.records(-EVER, EVER) if record.charge_key in set(self.keys)]
        assert sorted(record.charge_key for record in mine) == sorted(self.keys)
        assert sum(record.amount for record in mine) == sum(7 * number for number in range(1, len(self.keys) + 1))


@pytest.fixture
def rig(tmp_path: Path, sink: Sink) -> Rig:
    return Rig(tmp_path, sink)


def test_all_records_arrive_once_with_their_seals(rig: Rig, sink: Sink, tmp_path: Path) -> None:
    for count in (3, 0, 5, 9):
        rig.settle(count)
        rig.ship_and_see(sink)
    rig.ship_and_see(sink)
    head = rig.log.head
    seals = sink.seals(head.ledger)
    assert seals[head.segment].hash == head.hash
    assert len(seals) == head.segment > 1
    assert verify(tmp_path / "ledger", seals).faults == []
    [record] = [record for record in sink.records(-EVER, EVER) if record.charge_key == rig.keys[0]]
    assert (record.tags, record.tenant, record.unpriced, record.worker) == (("a", "b"), "acme", False, "w")


def test_another_shipper_goes_on_where_the_first_had_come(rig: Rig, sink: Sink) -> None:
    rig.settle(5)
    rig.shipper.ship()
    rig.settle(5)
    second = Shipper(rig.log, sink)
    second.ship()
    assert second.shipped == 5
    rig.see(sink)


class Deaf:
    """A sink that takes what it is given, but whose answer is lost."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.lost = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._sink, name)

    def store(self, ledger: str, records: Sequence[Record], position: Position | None, head: Head | None) -> None:
        self._sink.store(ledger, records, position, head)
        self.lost += 1
        raise Down("the connection was lost")


def test_a_lost_acknowledgement_doubles_nothing(rig: Rig, sink: Sink) -> None:
    rig.settle(5)
    deaf = Deaf(sink)
    shipper = Shipper(rig.log, deaf)  # type: ignore[arg-type]
    for _ in range(3):
        shipper._try()
    assert deaf.lost == 1 and shipper.trouble == ""  # the position that it then asks for is behind them
    sink.store(rig.log.head.ledger, list(sink.records(-EVER, EVER)), Position(1, 0, 0), None)
    rig.settle(5)
    rig.shipper._at = None
    rig.ship_and_see(sink)


def test_a_sink_that_forgot_is_filled_again(rig: Rig, tmp_path: Path) -> None:
    rig.settle(9)
    rig.shipper.ship()
    with_nothing = SqliteSink(tmp_path / "other.db")
    second = Shipper(rig.log, with_nothing)
    second.ship()
    rig.see(with_nothing)
    with_nothing.close()


def test_old_segments_are_let_go_when_they_were_shipped(tmp_path: Path, sink: Sink) -> None:
    rig = Rig(tmp_path, sink, keep_seconds=0.0)
    for _ in range(4):
        rig.settle(5)
    present = segments.numbers(tmp_path / "ledger")
    assert len(present) > 2
    rig.shipper._clear_away()
    assert segments.numbers(tmp_path / "ledger") == present
    rig.shipper._try()
    assert segments.numbers(tmp_path / "ledger") == present[-1:]
    rig.see(sink)
    assert verify(tmp_path / "ledger", sink.seals(rig.log.head.ledger)).faults == []


def test_segments_that_are_not_old_stay(tmp_path: Path, sink: Sink) -> None:
    rig = Rig(tmp_path, sink)
    rig.settle(16)
    rig.settle(16)
    rig.shipper._try()
    assert segments.numbers(tmp_path / "ledger")[0] == 1


def test_a_cut_tail_stays_told_and_what_follows_is_shipped(rig: Rig, sink: Sink, tmp_path: Path) -> None:
    rig.settle(3)
    rig.shipper.ship()
    rig.keeper.log.close()
    path = segments.path_of(tmp_path / "ledger", 1)
    path.write_bytes(path.read_bytes()[:-30])
    log = log_in(tmp_path / "ledger")
    keeper = Keeper(tmp_path / "shared", log)
    shipper = Shipper(log, sink)
    shipper.ship()
    rig.keys += fill(rig.ring, 4, 4)
    keeper.round()
    shipper.ship()
    rig.see(sink)
    faults = verify(tmp_path / "ledger", sink.seals(log.head.ledger)).faults
    assert faults == ["1:3: the end was cut off: the sink has sealed 3 records, 2 are there"]
    keeper.close()


def test_a_damaged_line_holds_up_no_other(rig: Rig, sink: Sink, tmp_path: Path) -> None:
    rig.settle(4)
    path = segments.path_of(tmp_path / "ledger", 1)
    content = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*content[:2], b"?" * len(content[2]), *content[3:]]))
    rig.settle(4)
    rig.settle(4)
    rig.shipper.ship()
    missing = rig.keys.pop(1)
    assert missing not in {record.charge_key for record in sink.records(-EVER, EVER)}
    assert set(rig.keys) <= {record.charge_key for record in sink.records(-EVER, EVER)}


def test_replay_gives_a_sink_what_it_has_not(rig: Rig, sink: Sink, tmp_path: Path) -> None:
    rig.settle(9)
    assert replay(tmp_path / "ledger", sink) == (len(segments.numbers(tmp_path / "ledger")), 9)
    assert replay(tmp_path / "ledger", sink)[1] == 9
    rig.see(sink)
    assert sink.seals(rig.log.head.ledger) == {}


def test_words_with_a_null_character_are_taken(tmp_path: Path, sink: Sink) -> None:
    record = Record(charge_key=f"null-{tmp_path}", opened_ns=1, settled_ns=2, tenant="a\0b")
    sink.store("l", [record], None, None)
    assert record.charge_key in {record.charge_key for record in sink.records(2, 3)}


def test_a_folder_that_cannot_be_written_is_an_outage(tmp_path: Path) -> None:
    rig = Rig(tmp_path, SqliteSink(tmp_path / "no" / "such" / "ledger.db"))
    rig.settle(3)
    rig.shipper._try()
    assert "unable to open" in rig.shipper.trouble
    assert rig.shipper.behind_seconds > 0
    (tmp_path / "no" / "such").mkdir(parents=True)
    rig.shipper._try()
    assert (rig.shipper.trouble, rig.shipper.shipped, rig.shipper.behind_seconds) == ("", 3, 0.0)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_database_that_goes_and_comes_back_has_everything_once(
    server: Postgres, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PostgresSink.__init__.__globals__["_LIMITS"], "connect_timeout", 2)
    monkeypatch.setitem(PostgresSink.__init__.__globals__["_LIMITS"], "options", "-c statement_timeout=2000")
    sink = PostgresSink(server.url)
    rig = Rig(tmp_path, sink, period=0.02)
    rig.settle(3)
    rig.shipper.start()
    until(lambda: rig.shipper.shipped == 3)
    server.stop() if how == "killed" else server.signal(signal.SIGSTOP)
    for _ in range(5):
        rig.settle(5)
    if how == "killed":
        until(lambda: rig.shipper.trouble != "")
        server.start()
    else:
        server.signal(signal.SIGCONT)
    until(lambda: rig.shipper.shipped >= 28 and not rig.shipper.trouble)
    rig.shipper.close()
    other = PostgresSink(server.url)
    rig.see(other)
    other.close()


def until(reached: object) -> None:
    assert callable(reached)
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_password_is_not_told(tmp_path: Path) -> None:
    for url in ("postgresql://u:s3cret@127.0.0.1:1/x", "postgresql://u:s3cret@[bad/x"):
        sink = PostgresSink(url)
        with pytest.raises(Down) as told:
            sink.seals("l")
        assert "s3cret" not in str(told.value)


def test_the_tables_are_made_once_and_found_again(server: Postgres, tmp_path: Path) -> None:
    for _ in range(2):
        sink = PostgresSink(server.url)
        assert sink.position("nobody") == Position(1, 0, 0)
        sink.drop("nobody", 1)
        sink.close()
    assert RECORDS != SEALS


def test_the_log_is_read_only_as_far_as_it_is_durable(tmp_path: Path, sink: Sink) -> None:
    rig = Rig(tmp_path, sink)
    rig.settle(2)
    log: Log = rig.log
    with segments.path_of(tmp_path / "ledger", 1).open("ab") as file:
        file.write(b"a" * 64 + b' 3 3 {"charge_key":"early"}\n')
    rig.shipper.ship()
    assert rig.shipper.shipped == 2
    log._dirty = True
    rig.settle(2)
    rig.ship_and_see(sink)
