"""A plugin that counts once a host: its part answers the processes, and hears of their ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from tailrace.proxy.call import Call
from tailrace.proxy.config import setting
from tailrace.proxy.ground import Places
from tailrace.proxy.plugin import AnyPlugin, Plugin
from tailrace.proxy.reply import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the count begins with."""

    first: int = setting(default=0, help="the first number")


class Counter:
    """One count for all processes of a host."""

    def __init__(self, first: int) -> None:
        self.count = first
        self.asked = 0
        self.gone: list[int] = []

    async def answer(self, seat: int, question: str, fields: dict[str, Any]) -> Any:
        """The next number, who has left, or a failure."""
        if question == "gone":
            return self.gone
        if question == "fail":
            raise ZeroDivisionError(fields["why"])
        self.count += fields["by"]
        self.asked += 1
        return [seat, self.count]

    def left(self, seat: int) -> None:
        """Note it."""
        self.gone.append(seat)

    async def follow(self, plugin: AnyPlugin) -> None:
        """Count on from another number."""
        if plugin.config.first < 0:
            raise ValueError("below zero")
        self.count = plugin.config.first

    def unready(self) -> Sequence[str]:
        """Full at some number."""
        if self.count == 666:
            raise ZeroDivisionError
        return ["the count is full"] if self.count > 900 else []

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """How often it was asked, and where it stands."""
        yield "asked_total", {}, self.asked
        yield "count", {}, self.count


class Counted(Plugin[Config]):
    """Answers each call with what its part says to the question in `x-question`."""

    Config = Config

    @asynccontextmanager
    async def host_part(self, places: Places) -> AsyncIterator[Counter]:
        """The count."""
        if self.config.first == 13:
            raise ValueError("13 is no number to begin with")
        counter = Counter(self.config.first)
        yield counter
        counter.asked += 1
        (places.state / "ended").touch()

    async def on_request(self, call: Call) -> Reply | None:
        """Ask, and answer."""
        question = call.head.folded.get(b"x-question", b"next").decode()
        answer = await self.ground.ask(question, **({"why": "it was asked to"} if question == "fail" else {"by": 1}))
        return Reply(200, orjson.dumps(answer))
