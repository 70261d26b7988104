"""Processes that set calls down, and keepers of the ledger, killed under load: each call is in the log exactly once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tailrace.proxy.ledger import segments
from tailrace.proxy.ledger.keeper import Keeper
from tailrace.proxy.ledger.log import Log
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.verify import verify
from tailrace.proxy.tariff import charge

from kills.ledger_roles import RATES

KILLS = int(os.environ.get("TAILRACE_KILLS", "30"))
ROLES = Path(__file__).parent / "ledger_roles.py"
pytestmark = pytest.mark.timeout(60 + 4 * KILLS)


class Writer:
    """One process that sets calls down, and what it said until it was killed."""

    def __init__(self, shared: Path) -> None:
        self._process = subprocess.Popen([sys.executable, ROLES, "write", shared], stdout=subprocess.PIPE)
        self._said = bytearray()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while piece := self._process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
            self._said += piece

    def wait_for_load(self) -> None:
        end = time.monotonic() + 30
        while len(self._said) < 20_000:
            assert time.monotonic() < end and self._process.poll() is None
            time.sleep(0.005)

    def kill(self) -> dict[str, tuple[str, int, int]]:
        """The last step of each call that it told of."""
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        last = {}
        for line in self._said.decode().splitlines():
            step, key, number, count = line.split()
            last[key] = step, int(number), int(count)
        return last


@contextmanager
def keeping(shared: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, ROLES, "keep", shared, folder], stdin=pipe, stdout=pipe)
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == b"keeps\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def log_of(folder: Path) -> list[Record]:
    """All lines of the log, repeats too."""
    found = []
    for segment in segments.numbers(folder):
        lines, _ = segments.lines_from(segments.path_of(folder, segment), 0, -1)
        found += [msgspec.json.decode(line.text, type=Record) for line in lines]
    return found


def judge(told: dict[str, tuple[str, int, int]], records: list[Record], kills: int) -> None:
    """That the log has what the processes told, and no more than the one step that each could not tell."""
    counts = Counter(record.charge_key for record in records)
    assert [key for key, count in counts.items() if count != 1] == []
    assert [key for key in told if key not in counts] == []
    assert len(counts.keys() - told.keys()) <= kills
    untold = 0
    for record in records:
        if record.charge_key not in told:
            continue
        step, number, count = told[record.charge_key]
        if record.ending == "completed":
            assert (record.amount, record.prompt, record.completion) == (number, number, 6)
            assert step == "settle" or count == 6
            untold += step != "settle"
        else:
            assert (record.ending, step == "settle") == ("orphan", False)
            assert record.completion in (count, count + 1)
            untold += record.completion != count
            prompt = number if record.completion else 0
            delivered = number * 10 + record.completion if record.completion else 0
            assert (record.prompt, record.delivered) == (prompt, delivered)
            # Whoever got nothing does not pay for having asked either.
            assert record.requests == bool(record.completion)
            assert record.amount == charge(RATES, prompt, 0, record.completion, record.requests)
    assert untold <= kills
    assert len(told) > 5 * kills


def test_processes_killed_under_load(tmp_path: Path) -> None:
    shared, folder = tmp_path / "shared", tmp_path / "ledger"
    shared.mkdir()
    chance = random.Random()
    told: dict[str, tuple[str, int, int]] = {}
    keeper = Keeper(shared, Log(folder, segment_bytes=300_000))
    keeper.start()
    writers = [Writer(shared) for _ in range(2)]
    for _ in range(KILLS):
        writer = writers.pop(0)
        writer.wait_for_load()
        writers.append(Writer(shared))
        time.sleep(chance.uniform(0, 0.05))
        told |= writer.kill()
    for writer in writers:
        told |= writer.kill()
    keeper.close()
    kills = KILLS + len(writers)
    judge(told, log_of(folder), kills)
    assert verify(folder, None).faults == []
    assert keeper.orphans > 0
    assert list(shared.iterdir()) == [] or {path.name[:7] for path in shared.iterdir()} == {"unborn-"}


def test_keepers_killed_under_load(tmp_path: Path) -> None:
    shared, folder = tmp_path / "shared", tmp_path / "ledger"
    shared.mkdir()
    chance = random.Random()
    told: dict[str, tuple[str, int, int]] = {}
    writers = [Writer(shared)]
    for turn in range(KILLS):
        with keeping(shared, folder):
            time.sleep(chance.uniform(0, 0.1))
        if turn % 5 == 0:
            # With no keeper there, as if the whole service had been killed.
            told |= writers.pop().kill()
            writers.append(Writer(shared))
    told |= writers.pop().kill()
    with keeping(shared, folder) as last:
        assert last.stdin is not None
        last.stdin.close()
        last.wait(30)
    judge(told, log_of(folder), 1 + -(-KILLS // 5))
    assert verify(folder, None).faults == []
