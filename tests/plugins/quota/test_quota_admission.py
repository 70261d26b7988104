"""Admission by itself: how much of a budget can be used, that it is never overspent, and that it does not wait."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from driven import Driven, DrivenCall, asking, driven
from fakes import run
from tailrace.plugins.quota import Quota
from tailrace.plugins.quota.store import StoreSettings
from tailrace.proxy.config import Secret
from tailrace.proxy.fault import Reject
from tailrace.proxy.identity import Identity
from tailrace.proxy.limit import Limit
from tailrace.proxy.money import UNIT
from tailrace.proxy.tariff import Tariff

pytestmark = pytest.mark.interpreted

TARIFF = Tariff("EUR", "p1", (UNIT, UNIT // 10, 4 * UNIT, 1000))
"""A millionth of a unit for a token of prompt, four for one of completion."""


def test_with_leases_held_admission_ends_at_its_first_step(tmp_path: Path) -> None:
    limits = (
        Limit("requests", 100_000, "minute"),
        Limit("tokens", 10**9, "day", of="tenant"),
        Limit("money", 1000 * UNIT, "month", "Europe/Berlin"),
        Limit("concurrent_requests", 500, None, of="model"),
    )

    async def body() -> None:
        async with driven(tmp_path) as s:
            who = Identity(key="k", tenant="t", limits=limits)
            first = DrivenCall(asking(100, 50), who, TARIFF)
            await s.admit(first)
            for _ in range(50):
                call = DrivenCall(asking(100, 50), who, TARIFF)
                with pytest.raises(StopIteration):
                    s.admit(call).send(None)
                s.complete(call, 30, 20)
            assert s.quota.waited == 1

    run(body())


def test_a_silent_authority_is_not_noticed_while_leases_last(tmp_path: Path) -> None:
    who = Identity(key="k", tenant="t", limits=(Limit("requests", 1000, "day"),))

    async def body() -> None:
        async with driven(tmp_path, unknown="closed") as s:
            await s.admit(DrivenCall(asking(1, 1), who))
            heard = asyncio.Event()
            answer = s.part.answer

            asked = 0

            async def late(*question: Any) -> Any:
                nonlocal asked
                asked += 1
                await heard.wait()
                return await answer(*question)

            s.part.answer = late  # type: ignore[method-assign]
            at_once = 0
            while True:
                coroutine = s.admit(DrivenCall(asking(1, 1), who))
                try:
                    coroutine.send(None)
                except StopIteration:
                    at_once += 1
                else:
                    coroutine.close()
                    break
                await asyncio.sleep(0)
            assert at_once > 200
            statuses = set()
            for _ in range(20):
                with pytest.raises(Reject) as refused:
                    await s.admit(DrivenCall(asking(1, 1), who))
                statuses.add(refused.value.fault.status)
            assert statuses == {503}
            assert asked <= 3  # once to fill up, and by the first calls that had to wait
            heard.set()
            await asyncio.sleep(0.01)
            await s.admit(DrivenCall(asking(1, 1), who))

    run(body())


class Caller:
    """A key with a budget; each call's real answer is a tenth of what it asks."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.rng = rng
        self.model = f"m{number % 25}"
        self.prompt = rng.choice((200, 1500, 6000))
        self.most = rng.choice((512, 1024, 2048))
        self.money = number % 2 == 1
        calls = rng.choice((40, 60, 80))
        prompt, completion = self.prompt // 4, self.most // 10
        if self.money:
            self.budget = calls * (prompt * 1000 + completion * 4000)
            limit = Limit("money", self.budget, "day")
        else:
            self.budget = calls * (prompt + completion)
            limit = Limit("tokens", self.budget, "day")
        self.identity = Identity(key=f"k{number}", tenant="t", limits=(limit,))
        self.spent = 0
        self.refused = 0

    def call(self) -> DrivenCall:
        return DrivenCall(asking(self.prompt, self.most), self.identity, TARIFF, model=self.model)

    def used(self, call: DrivenCall) -> tuple[int, int]:
        """Of a call: tokens of its prompt (four bytes each) and its answer, within what was let through."""
        allowed = call.body.get("max_tokens")
        wanted = max(1, int(self.most * self.rng.uniform(0.05, 0.15)))
        return self.prompt // 4, min(allowed, wanted)


def test_500_keys_use_nearly_all_of_their_budgets_though_answers_are_a_tenth_of_what_is_asked(tmp_path: Path) -> None:
    rng = random.Random(7)

    async def drain(s: Driven, caller: Caller) -> None:
        running: list[DrivenCall] = []
        while caller.refused < 3:
            if len(running) >= 4 or (running and rng.random() < 0.3):
                finish(s, caller, running.pop(0))
            call = caller.call()
            try:
                await s.admit(call)
            except Reject as refusal:
                assert refusal.fault.status == 429
                # Whoever is refused beside calls of its own that are running comes again when these are over.
                caller.refused += not running
                for each in running:
                    finish(s, caller, each)
                running.clear()
                s.now += 0.3
                s.quota._asking.purse.sweep()  # type: ignore[union-attr]
            else:
                running.append(call)

    def finish(s: Driven, caller: Caller, call: DrivenCall) -> None:
        prompt, completion = caller.used(call)
        s.complete(call, prompt, completion)
        cost = prompt * 1000 + completion * 4000 + 1000
        caller.spent += cost if caller.money else prompt + completion

    async def body() -> None:
        async with driven(tmp_path) as s:
            callers = [Caller(number, rng) for number in range(500)]
            for caller in callers:
                await drain(s, caller)
            of_what = defaultdict(list)
            for caller in callers:
                assert caller.spent <= caller.budget
                of_what[caller.money].append((caller.spent, caller.budget))
            for pairs in of_what.values():
                assert sum(spent for spent, _ in pairs) / sum(whole for _, whole in pairs) >= 0.95
            assert s.now - 1000 < 3600

    run(body(), limit=60)


@pytest.mark.parametrize("greed", [0.1, 1.0])
def test_1000_concurrent_calls_never_overspend(tmp_path: Path, greed: float) -> None:
    budget = 3_000_000
    limits = (Limit("tokens", budget, "day"), Limit("money", 5 * UNIT, "day"))
    who = Identity(key="k", tenant="t", limits=limits)
    spent = {"tokens": 0, "money": 0}

    async def body() -> None:
        # However long this machine takes: whoever cannot be told in time is refused, and not let through.
        async with driven(tmp_path, lease_wait_ms=1000, unknown="closed") as s:
            rng = random.Random(3)

            async def one() -> bool:
                call = DrivenCall(asking(400, 2000), who, TARIFF)
                try:
                    await s.admit(call)
                except Reject:
                    return False
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
                completion = int(call.body.get("max_tokens") * greed)
                spent["tokens"] += 400 + completion
                spent["money"] += 400 * 1000 + completion * 4000 + 1000
                s.complete(call, 400, completion)
                return True

            for _ in range(20):
                admitted = sum(await asyncio.gather(*(one() for _ in range(1000))))
                s.now += 0.3
                s.quota._asking.purse.sweep()  # type: ignore[union-attr]
                if not admitted:
                    break
            assert spent["tokens"] <= budget
            assert spent["money"] <= 5 * UNIT
            assert max(spent["tokens"] / budget, spent["money"] / (5 * UNIT)) > 0.95

    run(body(), limit=60)


def test_another_store_waits_for_the_next_start_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with driven(tmp_path) as s:
            s.part._config = s.quota.config
            await s.part.follow(Quota(Quota.Config(limits=(Limit("requests", 1, "day"),))))
            assert not caplog.messages
            await s.part.follow(Quota(Quota.Config(store=StoreSettings(url=Secret("redis://127.0.0.1:1")))))
            assert caplog.messages == [
                "quota: another `store` or `ledger` is taken up by the next start, the present one stays"
            ]

    run(body())
