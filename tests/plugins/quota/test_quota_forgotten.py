"""Budgets whose counters were lost, the store's or the host's own: what the ledger knows counts."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fakes import run
from limited import limited, using
from pairs import Pair, pair
from postgres import postgres
from tailrace.plugins.quota import part, store
from tailrace.plugins.quota.spend import Spend
from tailrace.plugins.quota.store import Store
from tailrace.plugins.quota.terms import Counter as Limited
from tailrace.plugins.quota.windows import Clock, window_at
from tailrace.proxy.ground import Places
from tailrace.proxy.ledger.log import Log
from tailrace.proxy.ledger.record import Record
from tailrace.proxy.ledger.sinks import sink_of

CENT = 10_000_000
UNIT = 100 * CENT
BUDGET = Limited("key:/money/day/UTC", UNIT, "day", "UTC", "money", ("key", ""))


def records(name: str, count: int, opened_ns: int | None = None) -> list[Record]:
    """So many calls of a cent each, of nobody in particular."""
    opened = time.time_ns() if opened_ns is None else opened_ns
    return [
        Record(charge_key=f"{name}-{opened}-{number}", opened_ns=opened, settled_ns=opened, amount=CENT)
        for number in range(count)
    ]


def ledger_in(state: Path) -> str:
    """The name of a new ledger of a host."""
    log = Log(state / "ledger")
    try:
        return log.head.ledger
    finally:
        log.close()


async def another_host(s: Pair, folder: Path, cents: int) -> None:
    """Be a host that takes its part of the budget and is never heard of again."""
    client: Any = s.parts()[0]._store._client  # type: ignore[union-attr]
    third = Store(client, "tailrace", "gone", folder / "epoch-of-gone", Clock(), 1.0)
    await third._meet()
    third.up = True
    window = window_at("day", "UTC", time.time())
    given = await third.more(BUDGET, window, 0, cents * CENT, cents * CENT)
    assert given.amount >= cents * CENT
    await third.tell(BUDGET, window, cents * CENT)


async def until_told(s: Pair) -> Counter[int]:
    """Call until the budget can be told, and on to its end, with time for either host to give back what it has."""
    seen: Counter[int] = Counter()
    async with asyncio.timeout(20):
        for _ in range(2):
            found: Counter[int] = Counter()
            while found != {429: 20}:
                found = await s.calls(20)
                seen += found
                await asyncio.sleep(0.1)
            await asyncio.sleep(1.2)
    return seen


def test_a_store_without_memory_hears_of_budgets_from_hosts_and_ledgers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (store, part):
        monkeypatch.setattr(module, "GATHERED", 2)
    monkeypatch.setattr(part, "_IDLE", 0.3)

    async def body(url: str) -> None:
        names = [ledger_in(tmp_path / name) for name in "ab"]
        async with pair(
            tmp_path, "[{money: '1', per: day}]", price=str(CENT), more=f", ledger: '{url}', lease_wait_ms: 1000"
        ) as s:
            await another_host(s, tmp_path, 30)
            assert await s.calls(40) == {200: 40}
            sink = sink_of(url, tmp_path)
            for name, count in ((names[0], 20), (names[1], 20), ("gone", 30)):
                sink.store(name, records(name, count), None, None)
            sink.store("gone", records("gone", 50, time.time_ns() - 2 * 86_400 * 10**9), None, None)
            sink.close()
            await s.store.flush()
            seen = await until_told(s)
            assert 40 + seen[200] == 70
            assert seen[503]  # nobody could tell for a while

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with postgres() as server:
        run(body(server.url))


def test_a_budget_of_which_no_ledger_knows_stays_closed(tmp_path: Path) -> None:
    async def body() -> None:
        async with pair(tmp_path, "[{money: '1', per: day}]", price=str(CENT)) as s:
            assert await s.calls(10) == {200: 10}
            await s.store.flush()
            seen = await s.calls(200)
            assert seen[200] <= 90
            assert seen[429]

    run(body())


def test_the_largest_budget_is_counted_by_the_store(tmp_path: Path) -> None:
    async def body() -> None:
        async with pair(tmp_path, "[{money: '4600000000', per: month}]", price=str(4 * 10**17)) as s:
            assert await s.calls(30, at_once=1) == {200: 11, 429: 19}

    run(body())


def test_a_host_that_lost_its_memory_goes_on_from_its_ledger(tmp_path: Path) -> None:
    async def body() -> None:
        state = tmp_path / "state"
        state.mkdir()
        own = ledger_in(state)
        sink = sink_of(None, state)
        sink.store(own, records(own, 75), None, None)
        sink.store(own, records(own, 10, time.time_ns() - 2 * 86_400 * 10**9), None, None)
        sink.store("another", records("another", 20), None, None)
        sink.close()
        budget = "[{money: '1', per: day}]"
        for memory, left in (("kept", 25), ("kept", 0), ("lost", 25)):
            if memory == "lost":
                shutil.rmtree(Places.of(state).shared)
            async with limited(state, budget, using(1, 1), rates=f"[0, 0, 0, {CENT}]") as s:
                seen = [(await s.ask()).status for _ in range(40)]
            assert seen == [200] * left + [429] * (40 - left)

    run(body())


def test_the_ledger_is_read_once_for_all_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ledger_in(tmp_path)
    sink = sink_of(None, tmp_path)
    sink.store(own, records(own, 3), None, None)
    sink.close()
    spend = Spend(None, tmp_path)
    asked = 0
    ask = spend._ask

    def counting(*question: Any) -> Any:
        nonlocal asked
        asked += 1
        return ask(*question)

    monkeypatch.setattr(spend, "_ask", counting)
    window = window_at("day", "UTC", time.time())
    keys = [Limited(f"key:{key}/money/day/UTC", UNIT, "day", "UTC", "money", ("key", key)) for key in ("", "a", "b")]

    async def body() -> None:
        before = time.time_ns()
        found = await asyncio.gather(*(spend.of_own(counter, window, before) for counter in keys * 20))
        assert found == [3 * CENT, 0, 0] * 20
        assert asked == 1
        assert await spend.of_all(keys[0], window) == {own: 3 * CENT}

    run(body())
