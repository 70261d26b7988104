"""The keeper: every settlement in the log once, through deaths of processes, of keepers, and a disk that is full."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledgers import DONE, FailingDisk, PowerCut, fill, log_in, opening, raw_keys, read, settled
from tailrace.proxy.ledger import layout
from tailrace.proxy.ledger.ages import Ages
from tailrace.proxy.ledger.keeper import Keeper
from tailrace.proxy.ledger.record import ORPHAN
from tailrace.proxy.ledger.ring import FULL, Ring
from tailrace.proxy.ledger.verify import verify


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger"


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def keeper(shared: Path, state: Path, disk: FailingDisk) -> Iterator[Keeper]:
    keeper = Keeper(shared, log_in(state, disk=disk))
    yield keeper
    disk.room, disk.broken, disk.stuck = None, False, False
    keeper.close()


def whole(state: Path) -> bool:
    return not verify(state, None).faults


def test_settlements_of_all_rings_become_durable_in_one_round(shared: Path, state: Path, keeper: Keeper) -> None:
    rings = [Ring.create(shared, f"w{number}", 8) for number in range(3)]
    keys = [key for ring in rings for key in fill(ring, 5)]
    assert keeper.round() == 15
    assert raw_keys(state) == keys or sorted(raw_keys(state)) == sorted(keys)
    assert all(ring.is_durable(5) for ring in rings)
    assert keeper.round() == 0
    assert (keeper.records, keeper.ages.count, keeper.waiting) == (15, 15, 0)
    assert {record.worker for record in read(state)} == {"w0", "w1", "w2"}


def test_more_records_than_slots_pass_through(shared: Path, state: Path, keeper: Keeper) -> None:
    ring = Ring.create(shared, "w", 4)
    keys = []
    for turn in range(10):
        keys += fill(ring, 4, turn * 4)
        assert ring.open(opening("none")) == FULL
        keeper.round()
    assert raw_keys(state) == keys
    assert [record.amount for record in read(state)] == [number * 7 for number in range(40)]


def test_the_dead_are_settled_and_their_memory_removed(shared: Path, state: Path, keeper: Keeper) -> None:
    ring = Ring.create(shared, "w", 8)
    keys = fill(ring, 2)
    slot = ring.open(opening("open"))
    ring.running(slot, 10, 20, 0, 30)
    keeper.round()
    assert raw_keys(state) == keys
    ring.close()
    keeper.round()
    assert raw_keys(state) == [*keys, "open"]
    assert keeper.orphans == 1
    assert list(shared.iterdir()) == []
    assert [record.ending for record in read(state)] == ["completed", "completed", ORPHAN]


def test_an_orphan_beyond_all_measure_is_settled_by_a_bound(shared: Path, state: Path, keeper: Keeper) -> None:
    ring = Ring.create(shared, "w", 8)
    slot = ring.open(opening("c1", rates=(2**63 - 1, 0, 2**63 - 1, 2**63 - 1)))
    ring.running(slot, 10**30, 10**30, 0, 1)
    ring.close()
    assert keeper.round() == 1
    [record] = read(state)
    assert (record.amount, record.estimated) == (2**63 - 1, True)


def test_a_death_between_settling_and_queueing_loses_nothing(shared: Path, state: Path, keeper: Keeper) -> None:
    ring = Ring.create(shared, "w", 8)
    keys = fill(ring, 3)
    ring._words[layout.SETTLED_WORD] = 2
    ring.close()
    keeper.round()
    assert raw_keys(state) == keys
    assert keeper.orphans == 0


def test_rings_and_logs_of_an_earlier_supervisor_are_taken_up(shared: Path, state: Path) -> None:
    first = Keeper(shared, log_in(state))
    ring = Ring.create(shared, "w", 8)
    keys = fill(ring, 3)
    first.round()
    keys += fill(ring, 3, 4)
    ring.open(opening("open"))
    first.log.close()  # and no more is heard of it
    second = Keeper(shared, log_in(state))
    second.round()
    assert raw_keys(state) == keys
    ring.close()
    second.close()
    assert raw_keys(state) == [*keys, "open"]
    assert whole(state)


@pytest.mark.parametrize("alive", [True, False])
def test_a_keeper_killed_between_log_and_ring_is_followed_by_one_that_knows(
    shared: Path, state: Path, alive: bool
) -> None:
    first = Keeper(shared, log_in(state, segment_bytes=1500))
    ring = Ring.create(shared, "w", 16)
    keys = fill(ring, 8)
    for _ in keys:
        first.round()
    for slots in first._rings.values():
        slots.durable = 0
    first.log.close()
    if not alive:
        ring.close()
    second = Keeper(shared, log_in(state, segment_bytes=1500))
    assert second.round() == 0
    assert raw_keys(state) == keys
    assert not alive or ring.is_durable(8)
    second.close()


@pytest.mark.parametrize("room", [0, 1, 500, 100_000])
@pytest.mark.parametrize("stuck", [False, True])
def test_a_full_disk_holds_records_back_and_loses_none(
    shared: Path, state: Path, keeper: Keeper, disk: FailingDisk, room: int, stuck: bool
) -> None:
    ring = Ring.create(shared, "w", 8)
    keys = fill(ring, 2)
    keeper.round()
    keys += fill(ring, 3, 3)
    disk.room, disk.stuck = room, stuck
    for _ in range(3):
        keeper._go_round()
        assert keeper.trouble.startswith("the ledger cannot be written: ")
    assert not ring.is_durable(3)
    keys += fill(ring, 5, 6)
    assert ring.open(opening("none")) == FULL
    disk.room, disk.stuck = None, False
    keeper._go_round()
    assert keeper.trouble == ""
    assert raw_keys(state) == keys
    assert ring.is_durable(10)
    assert whole(state)


def test_a_failed_sync_is_written_again(shared: Path, state: Path, keeper: Keeper, disk: FailingDisk) -> None:
    ring = Ring.create(shared, "w", 8)
    keys = fill(ring, 3)
    disk.broken = True
    keeper._go_round()
    assert "Input/output error" in keeper.trouble
    assert not ring.is_durable(1)
    disk.broken = False
    keeper._go_round()
    assert raw_keys(state) == keys
    assert whole(state)


def test_a_power_cut_loses_nothing_that_a_ring_was_told_is_durable(
    shared: Path, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = PowerCut()
    keeper = Keeper(shared, log_in(state, disk=disk, segment_bytes=3000))
    ring = Ring.create(shared, "w", 64)
    keys = []
    for turn in range(9):
        keys += fill(ring, 3, turn * 3)
        keeper.round()
    keys += fill(ring, 5, 100)
    for call in ("sync", "truncate"):
        monkeypatch.setattr(disk, call, refuse)
    keeper._go_round()
    assert ring.is_durable(27) and not ring.is_durable(28)
    (tmp_path / "after").mkdir()
    disk.after(tmp_path / "after", lambda kept, lost: kept + lost[:500] + bytes(300))
    log_in(tmp_path / "after").close()
    found = [record.charge_key for record in read(tmp_path / "after")]
    assert found == keys[: len(found)]
    assert 27 <= len(found) < 32
    assert whole(tmp_path / "after")


def test_a_keeper_that_ends_on_a_full_disk_leaves_the_rings(shared: Path, state: Path) -> None:
    disk = FailingDisk()
    first = Keeper(shared, log_in(state, disk=disk))
    ring = Ring.create(shared, "w", 8)
    keys = fill(ring, 3)
    ring.open(opening("open"))
    ring.close()
    disk.room = 100
    first.close()
    second = Keeper(shared, log_in(state))
    second.round()
    assert raw_keys(state) == [*keys, "open"]
    second.close()


def test_what_is_no_ring_is_left_alone(shared: Path, state: Path, keeper: Keeper) -> None:
    (shared / "ring-strange").write_bytes(b"something")
    (shared / "other").write_bytes(b"")
    keys = fill(Ring.create(shared, "w", 8), 1)
    keeper.round()
    keeper.round()
    assert raw_keys(state) == keys
    assert (shared / "ring-strange").exists()


def test_a_ring_that_cannot_be_opened_now_is_opened_later(
    shared: Path, state: Path, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = fill(Ring.create(shared, "w", 8), 2)
    with monkeypatch.context() as patched:
        patched.setattr("os.open", refuse)
        assert keeper.round() == 0
    assert keeper.round() == 2
    assert raw_keys(state) == keys


def refuse(*_: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.interpreted
def test_a_record_damaged_in_memory_is_set_aside_and_holds_up_no_other(
    shared: Path, state: Path, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.proxy.ledger.keeper._PATIENCE", 3)
    ring = Ring.create(shared, "w", 8)
    keys = fill(ring, 3)
    slots = [ring._view[ring._first + slot * layout.SLOT :][: layout.SLOT].tobytes() for slot in range(8)]
    damaged = next(slot for slot, content in enumerate(slots) if keys[1].encode() in content)
    at = ring._first + damaged * layout.SLOT + layout.END_AT + 30
    ring._view[at] ^= 1
    for _ in range(5):
        keeper.round()
    assert raw_keys(state) == [keys[0], keys[2]]
    [kept] = state.glob("damaged-*.bin")
    assert keys[1].encode() in kept.read_bytes()


def test_the_thread_keeps_what_is_settled_while_it_runs(shared: Path, state: Path) -> None:
    keeper = Keeper(shared, log_in(state))
    keeper.start()
    ring = Ring.create(shared, "w", 8)
    keys = fill(ring, 5)
    deadline = time.monotonic() + 20
    while not ring.is_durable(5) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert raw_keys(state) == keys
    ring.settle(ring.open(opening("last")), DONE, settled(1))
    keeper.close()
    assert raw_keys(state) == [*keys, "last"]
    assert keeper.ages.quantile(0.5) > 0


def test_ages_are_told_to_a_sixteenth() -> None:
    ages = Ages()
    assert ages.quantile(0.99) == 0.0
    for number in range(1, 1001):
        ages.add(number * 1_000_000)
    for share, true in ((0.5, 0.5), (0.99, 0.99), (0.999, 0.999), (1.0, 1.0)):
        assert true <= ages.quantile(share) <= true * 1.07
    ages.add(-5)
    assert (ages.count, ages.most_ns) == (1001, 10**9)
    assert ages.within(2.0) == 1001
