"""Processes that a test of the ledger kills: one that sets calls down and tells of each step, one that keeps them.

ledger_roles.py write SHARED      tells on standard output, a line behind each step: open, run, settle
ledger_roles.py keep SHARED LOG   goes round until it is killed, or its standard input ends
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from tailrace.proxy.ledger.keeper import Keeper
from tailrace.proxy.ledger.log import Log
from tailrace.proxy.ledger.record import Late, Opening
from tailrace.proxy.ledger.ring import FULL, Ring
from tailrace.proxy.ledger.settled import Settled

RATES = (3_000_000, 1_000_000, 7_000_000, 11)
AT_ONCE = 20


def write(shared: Path) -> None:
    """Calls without end, some at once, each with its running usage; what number n uses is told by n."""
    ring = Ring.create(shared, "writer", 512)
    number = 0
    running: list[tuple[int, str, int, int]] = []
    while True:
        while len(running) < AT_ONCE:
            number += 1
            key = ring.mint()
            slot = ring.open(Opening(key, tenant="t", model="m", currency="EUR", rates=RATES))
            if slot == FULL:
                break
            tell(f"open {key} {number} 0")
            running.append((slot, key, number, 0))
        if not running:
            # No keeper has been there for as long as the slots last.
            time.sleep(0.001)
            continue
        slot, key, mine, step = running.pop(random.randrange(len(running)))
        if step < 6:
            ring.running(slot, mine, step + 1, 0, mine * 10 + step + 1)
            tell(f"run {key} {mine} {step + 1}")
            running.append((slot, key, mine, step + 1))
        else:
            ring.settle(slot, Late("completed", "m"), Settled(amount=mine, status=200, prompt=mine, completion=step))
            tell(f"settle {key} {mine} {step}")


def tell(line: str) -> None:
    """Whole lines only: a pipe takes so few bytes in one piece."""
    os.write(1, line.encode() + b"\n")


def keep(shared: Path, folder: Path) -> None:
    """A keeper whose segments are small, so that it is killed between two of them as well."""
    keeper = Keeper(shared, Log(folder, segment_bytes=100_000), period=0.002)
    keeper.start()
    tell("keeps")
    sys.stdin.read()
    keeper.close()


if __name__ == "__main__":
    {"write": write, "keep": keep}[sys.argv[1]](*map(Path, sys.argv[2:]))
