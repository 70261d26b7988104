"""A process killed between any two instructions, or in the middle of a copy: the state before or after, no mixture."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from ledgers import DONE, left_in, opening, record_of, settled
from tailrace.proxy.ledger import layout
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.ring import Ring
from tailrace.proxy.ledger.slots import Slots

pytestmark = pytest.mark.interpreted

SLOTS = 2
WORDS = {8 * word for word in (layout.SETTLED_WORD, layout.DURABLE_WORD, layout.FULL_WORD)}
WORDS |= {layout.QUEUE_AT + 8 * slot for slot in range(SLOTS)}
WORDS |= {layout.slots_at(SLOTS) + layout.SLOT * slot + 8 * word for slot in range(SLOTS) for word in (0, 1)}


def states(ring: Ring, act: Callable[[], Any]) -> Iterator[bytes]:
    """The memory after each instruction of the ring's own code, and in between after each byte of a copy."""
    seen = [ring._view.tobytes()]

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.endswith("ledger/ring.py"):
            return None
        frame.f_trace_opcodes = True
        memory = ring._view.tobytes()
        if memory != seen[-1]:
            seen.append(memory)
        return trace

    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(None)
    seen.append(ring._view.tobytes())
    for before, after in pairwise(seen):
        yield from _between(before, after)
    yield seen[-1]


def _between(before: bytes, after: bytes) -> Iterator[bytes]:
    """A copy that was cut anywhere; the words that are stored at once are changed at once."""
    memory = bytearray(before)
    yield before
    at = 0
    while at < len(memory):
        width = 8 if at in WORDS else 1
        if memory[at : at + width] != after[at : at + width]:
            memory[at : at + width] = after[at : at + width]
            yield bytes(memory)
        at += width


def told(folder: Path, memory: bytes) -> list[Record]:
    """What a keeper makes of the memory of a dead process."""
    path = folder / "copy"
    path.write_bytes(memory)
    slots = Slots(path)
    found = [record_of(slots.settlement(number)) for number in range(slots.durable, slots.settled)]
    found += left_in(slots)
    slots.remove()
    return found


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    """A ring whose slots have all been used."""
    ring = Ring.create(tmp_path, "w", SLOTS)
    for turn in range(2 * SLOTS):
        slot = ring.open(opening(f"old{turn}"))
        ring.running(slot, 901, 902, 903, 904)
        ring.running(slot, 905, 906, 907, 908)
        ring.amend(slot, opening(f"old{turn}", model="older"))
        ring.settle(slot, DONE, settled(900 + turn))
        if turn % SLOTS == SLOTS - 1:
            ring._words[layout.DURABLE_WORD] = ring.settled
    return ring


def seen_of(ring: Ring, folder: Path, act: Callable[[], Any]) -> list[tuple[Any, ...]]:
    """The different things that a keeper could be told on the way, in order."""
    found: list[tuple[Any, ...]] = []
    for memory in states(ring, act):
        records = [
            (r.charge_key, r.ending, r.model, r.prompt, r.cached, r.completion, r.delivered, r.amount)
            for r in told(folder, memory)
        ]
        if not found or found[-1] != tuple(records):
            found.append(tuple(records))
    return found


def test_a_record_is_open_or_not(ring: Ring, tmp_path: Path) -> None:
    seen = seen_of(ring, tmp_path, lambda: ring.open(opening("c1")))
    assert [[record[0] for record in records] for records in seen] == [[], ["c1"]]


def test_running_usage_is_the_one_before_or_the_one_after(ring: Ring, tmp_path: Path) -> None:
    slot = ring.open(opening("c1"))
    ring.running(slot, 1, 1, 1, 1)
    ring.running(slot, 2, 2, 2, 2)
    seen = seen_of(ring, tmp_path, lambda: ring.running(slot, 3, 3, 3, 3))
    assert [records[0][3:7] for records in seen] == [(2, 2, 2, 2), (3, 3, 3, 3)]


def test_a_change_of_model_is_made_or_not(ring: Ring, tmp_path: Path) -> None:
    slot = ring.open(opening("c1"))
    ring.amend(slot, opening("c1", model="m1"))
    seen = seen_of(ring, tmp_path, lambda: ring.amend(slot, opening("c1", model="m2", rates=(0, 0, 0, 5))))
    assert [records[0][2] for records in seen] == ["m1", "m2"]


def test_a_settlement_is_there_once_or_the_call_is_open(ring: Ring, tmp_path: Path) -> None:
    slot = ring.open(opening("c1"))
    ring.running(slot, 1, 2, 0, 4)
    seen = seen_of(ring, tmp_path, lambda: ring.settle(slot, DONE, settled(5)))
    assert [[record[:2] for record in records] for records in seen] == [[("c1", "orphan")], [("c1", "completed")]]
    assert seen[-1][0][3:] == (5, 2, 15, 9, 35)
