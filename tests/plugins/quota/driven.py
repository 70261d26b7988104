"""Quota without a gateway around it: calls that are admitted and settled in the loop, on a clock set by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
from tailrace.plugins.quota import Quota
from tailrace.plugins.quota.asking import Asking
from tailrace.plugins.quota.authority import Authority
from tailrace.plugins.quota.part import Part
from tailrace.plugins.quota.spend import Spend
from tailrace.plugins.quota.windows import Clock
from tailrace.proxy.body import JsonBody
from tailrace.proxy.ground import Ground, Places
from tailrace.proxy.outcome import Ending, Outcome, Usage

CHAT_ROUTE = SimpleNamespace(name="chat", local=None, anthropic=False)


class DrivenCall(dict[Any, Any]):
    """As much of a call as quota looks at."""

    def __init__(self, raw: bytes, *facts: object, model: str = "m") -> None:
        super().__init__()
        self.raw = raw
        self.body = JsonBody(raw, 32)
        self.model = model
        self.route = CHAT_ROUTE
        self.tries = [SimpleNamespace(sent_ns=1)]
        self.source = None
        self._facts = {type(fact): fact for fact in facts}

    def fact(self, kind: type) -> Any:
        return self._facts.get(kind)

    def provide(self, fact: object) -> None:
        self._facts[type(fact)] = fact

    def edit(self, name: str, value: bytes) -> None:
        self.body.edit(name, value)


def asking(prompt: int, most: int) -> bytes:
    """A body with so many bytes of prompt, for an answer of so many tokens at most."""
    return orjson.dumps({"model": "m", "max_tokens": most, "messages": [{"role": "user", "content": "x" * prompt}]})


class Driven:
    """A quota plugin whose host part runs in the same loop; `now` is the time that windows go by."""

    def __init__(self, quota: Quota, folder: Path) -> None:
        self.quota = quota
        self.now = 1000.0
        self.places = Places(folder / "state", folder / "shared")
        for place in (self.places.state, self.places.shared):
            place.mkdir()
        self.authority = Authority(self.places.shared / "quota", Clock(lambda: self.now, lambda: self.now + 1.7e9))
        self.part = Part(self.authority, None, Spend(None, self.places.state))
        self.ground = Ground("quota", self.places, 0, self._ask)

    async def _ask(self, _name: str, what: str, fields: dict[str, Any]) -> Any:
        return await self.part.answer(0, what, orjson.loads(orjson.dumps(fields)))

    async def admit(self, call: DrivenCall) -> None:
        """Raises Reject."""
        waiting = self.quota.on_request(call)  # type: ignore[arg-type]
        if waiting is not None:
            await waiting

    def complete(self, call: DrivenCall, prompt: int, completion: int) -> None:
        outcome = Outcome(Ending.COMPLETED, 200)
        outcome.usage = Usage(prompt, completion)
        self.quota.on_complete(call, outcome)  # type: ignore[arg-type]


@asynccontextmanager
async def driven(folder: Path, **config: Any) -> AsyncIterator[Driven]:
    it = Driven(Quota(Quota.Config(**config)), folder)
    asked = it.quota._asking = Asking(it.ground, lambda: it.now)
    await asked.join()
    try:
        yield it
    finally:
        await asked.leave()
        it.authority.close_books()
