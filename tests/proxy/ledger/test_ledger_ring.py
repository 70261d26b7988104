"""A process's records in shared memory: what is set down is read back, and slots are used again in time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ledgers import DONE, fill, left_in, opening, record_of, settled
from tailrace.proxy.ledger.layout import HEADER, MAGIC, VERSION, size_of
from tailrace.proxy.ledger.record import ORPHAN, Late
from tailrace.proxy.ledger.ring import FULL, Ring
from tailrace.proxy.ledger.settled import Settled
from tailrace.proxy.ledger.slots import NoRing, Slots, clear_unborn
from tailrace.proxy.tariff import charge


def both(folder: Path, slots: int = 4) -> tuple[Ring, Slots]:
    ring = Ring.create(folder, "w1", slots)
    return ring, Slots(ring.path)


def test_a_settlement_says_everything_of_its_call(tmp_path: Path) -> None:
    ring, slots = both(tmp_path)
    slot = ring.open(opening("c1"))
    ring.running(slot, 1, 2, 0, 3)
    numbers = Settled(
        amount=11, status=200, prompt=5, cached=4, completion=6, requests=2, delivered=7, lost_prompt=8,
        lost_completion=9, lost_amount=10, estimated=True,
    )  # fmt: skip
    ring.settle(slot, Late("client_gone", "other"), numbers)
    record = record_of(slots.settlement(0))
    assert (record.charge_key, record.call, record.tenant, record.tags) == ("c1", "call-c1", "acme", ("a", "b"))
    assert (record.amount, record.prompt, record.cached, record.completion, record.requests) == (11, 5, 4, 6, 2)
    assert (record.lost_prompt, record.lost_completion, record.lost_amount) == (8, 9, 10)
    assert (record.ending, record.echoed_model, record.worker, record.estimated) == ("client_gone", "other", "w1", True)
    assert (record.service_class, record.delivered, record.unpriced) == ("interactive", 7, False)
    assert 0 < record.opened_ns <= record.settled_ns
    assert list(slots.left_open(1)) == []


def test_what_is_open_is_settled_from_its_last_usage(tmp_path: Path) -> None:
    ring, slots = both(tmp_path)
    first, second = ring.open(opening("c1")), ring.open(opening("c2", rates=None))
    for number in range(1, 6):
        ring.running(first, 100, number, 40, number * 10)
    orphans = {record.charge_key: record for record in left_in(slots, 77)}
    assert set(orphans) == {"c1", "c2"}
    found = orphans["c1"]
    assert (found.ending, found.prompt, found.completion, found.cached, found.delivered) == (ORPHAN, 100, 5, 40, 50)
    assert found.amount == charge((500_000_000, 50_000_000, 1_500_000_000, 100), 100, 40, 5)
    assert (found.settled_ns, found.estimated, found.unpriced) == (77, False, False)
    none = orphans["c2"]
    assert (none.amount, none.prompt, none.requests, none.estimated, none.unpriced) == (0, 0, 0, False, True)
    assert second != first


def test_the_usage_of_an_earlier_call_in_a_slot_is_not_taken_for_a_later_one(tmp_path: Path) -> None:
    ring, slots = both(tmp_path, slots=1)
    slot = ring.open(opening("c1"))
    ring.running(slot, 1, 2, 3, 4)
    ring.settle(slot, DONE, settled(1))
    slots.durable = 1
    assert ring.open(opening("c2")) == slot
    [record] = left_in(slots)
    assert (record.charge_key, record.prompt) == ("c2", 0)


def test_a_change_of_model_changes_the_rates(tmp_path: Path) -> None:
    ring, slots = both(tmp_path)
    slot = ring.open(opening("c1"))
    ring.running(slot, 10, 10, 0, 1)
    for turn in range(3):
        ring.amend(slot, opening("c1", model=f"m{turn}", rates=(turn, 0, 0, 1000 + turn)))
        [record] = left_in(slots)
        assert (record.model, record.amount, record.completion) == (f"m{turn}", 1000 + turn, 10)
    ring.settle(slot, DONE, settled(1))
    final = record_of(slots.settlement(0))
    assert (final.model, final.opened_ns) == ("m2", record.opened_ns)


def test_a_slot_is_used_again_when_its_settlement_is_durable(tmp_path: Path) -> None:
    ring, slots = both(tmp_path, slots=2)
    fill(ring, 2)
    assert ring.open(opening("c3")) == FULL
    assert (ring.refused, slots.refused, ring.room) == (1, 1, 0)
    assert not ring.is_durable(1)
    slots.durable = 1
    assert ring.is_durable(1)
    assert ring.room == 1
    assert ring.open(opening("c3")) != FULL
    assert ring.open(opening("c4")) == FULL


def test_few_slots_take_turns(tmp_path: Path) -> None:
    ring, slots = both(tmp_path, slots=16)
    used = set()
    for _ in range(40):
        slot = ring.open(opening(ring.mint()))
        used.add(slot)
        ring.settle(slot, DONE, settled(1))
        slots.durable = ring.settled
    assert len(used) == 1


@pytest.mark.parametrize("text", ["x" * 5000, "ü" * 900, '"' * 700, "\x01" * 500, "\ud800bad"])
def test_words_that_do_not_fit_are_cut_and_charged_all_the_same(tmp_path: Path, text: str) -> None:
    ring, slots = both(tmp_path)
    words = dict.fromkeys(("call", "tenant", "key", "model", "deployment", "route", "price_version"), text)
    slot = ring.open(opening("c1", **words, tags=(text,) * 20))
    ring.settle(slot, Late("completed", text), settled(3))
    record = record_of(slots.settlement(0))
    assert (record.charge_key, record.amount, record.ending) == ("c1", 21, "completed")
    assert record.tenant


def test_numbers_that_no_engine_counts_are_bounded_and_marked(tmp_path: Path) -> None:
    ring, slots = both(tmp_path)
    slot = ring.open(opening("c1", rates=(0, 0, 0, 1)))
    ring.running(slot, 10**30, 1, -(10**30), 1)
    [orphan] = left_in(slots)
    assert (orphan.prompt, orphan.estimated) == (2**63 - 1, True)
    ring.settle(slot, DONE, Settled(prompt=10**30))
    record = record_of(slots.settlement(0))
    assert (record.prompt, record.estimated) == (2**63 - 1, True)


def test_a_living_process_holds_its_lock(tmp_path: Path) -> None:
    ring, slots = both(tmp_path)
    assert not slots.dead()
    ring.close()
    assert slots.dead()
    slots.remove()
    assert list(tmp_path.iterdir()) == []


def test_charge_keys_are_not_minted_twice(tmp_path: Path) -> None:
    rings = [Ring.create(tmp_path, "w", 1) for _ in range(3)]
    keys = [ring.mint() for ring in rings for _ in range(100)]
    assert len(set(keys)) == 300


NAMELESS = HEADER.pack(MAGIC, VERSION, 1, 0, 0, 0, 1).ljust(size_of(1), b"\1")


def test_memory_that_is_not_there_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        Ring.create(tmp_path, "w", 1 << 40)
    assert list(tmp_path.iterdir()) == []


def test_a_ring_that_was_never_finished_is_cleared_away(tmp_path: Path) -> None:
    for name, age in (("unborn-old", 60), ("unborn-new", 0), ("other", 60)):
        (tmp_path / name).write_bytes(b"")
        then = time.time() - age
        os.utime(tmp_path / name, (then, then))
    clear_unborn(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"unborn-new", "other"}


@pytest.mark.parametrize("content", [b"", b"tailedgr", b"x" * 9000, NAMELESS])
def test_a_file_that_is_no_ring_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ring-1"
    path.write_bytes(content)
    with pytest.raises(NoRing, match="is no ring"):
        Slots(path)
