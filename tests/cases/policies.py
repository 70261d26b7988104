"""Attempt policies and plugins with one fault each, for the cases that need them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from fakes import stream_of
from tailrace.proxy.attempt import Attempt
from tailrace.proxy.call import Call
from tailrace.proxy.fault import Fault
from tailrace.proxy.fleet import Worker
from tailrace.proxy.plugin import Needs, Plugin, Target, Verdict
from tailrace.proxy.reply import Reply
from tailrace.proxy.sse import Event

from cases.witness import Config


class MoveOn(Plugin[Config]):
    """After any fault, ask another worker."""

    Config = Config

    def next_target(self, call: Call, tries: Sequence[Attempt], fault: Fault) -> Target | None:
        return Target()


@dataclass(frozen=True)
class After:
    seconds: float = 0.05


class Hedge(Plugin[After]):
    """A second attempt where the first is slow."""

    Config = After

    def patience(self, call: Call, tries: Sequence[Attempt]) -> float | None:
        return self.config.seconds if len(tries) == 1 else None


class InOrder(Plugin[Config]):
    """Prefers the worker that is listed first."""

    Config = Config

    def score_workers(self, call: Call, candidates: Sequence[Worker]) -> Sequence[float]:
        return [1.0 / (1 + place) for place in range(len(candidates))]


class Patient(Plugin[Config]):
    """Waits for more events than most streams have."""

    Config = Config

    def judge(self, call: Call, attempt: Attempt, prefix: Sequence[Event]) -> Verdict:
        return Verdict.COMMIT if len(prefix) >= 50 else Verdict.WAIT


class Refusing(Plugin[Config]):
    """Waits for the terminal event, and then takes another answer."""

    Config = Config

    def judge(self, call: Call, attempt: Attempt, prefix: Sequence[Event]) -> Verdict:
        return Verdict.NEXT if prefix[-1].data == b"[DONE]" else Verdict.WAIT


class Queue(Plugin[Config]):
    """Lets one call through at a time; the others wait."""

    Config = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.waiting = 0
        self._turn = asyncio.Semaphore(1)
        self._running: set[str] = set()

    async def on_request(self, call: Call) -> None:
        self.waiting += 1
        try:
            async with call.waiting():
                await self._turn.acquire()
        finally:
            self.waiting -= 1
        self._running.add(call.id)

    def on_complete(self, call: Call, outcome: Any) -> None:
        if call.id in self._running:
            self._running.discard(call.id)
            self._turn.release()


class NeedsUsage(Plugin[Config]):
    """Has the core ask for usage and read it."""

    Config = Config
    needs = Needs.USAGE


@dataclass(frozen=True)
class Late:
    kind: str


class Replies(Plugin[Late]):
    """Answers in the worker's place after a wait: events or JSON, whole or in pieces with waits between them."""

    Config = Late

    async def on_request(self, call: Call) -> Reply:
        kind, _, how = self.config.kind.partition(" ")
        body = b"".join(stream_of(["late"])) if kind == "events" else b'{"choices": []}'
        content_type = b"text/event-stream" if kind == "events" else b"application/json"
        if how == "late":
            await asyncio.sleep(0.6)
            return Reply(200, body, content_type=content_type)
        return Reply(200, self._pieces(body), content_type=content_type)

    async def _pieces(self, body: bytes) -> AsyncIterator[bytes]:
        yield body[:7]
        await asyncio.sleep(0.6)
        yield body[7:]
        await asyncio.sleep(0.6)


PIECES = stream_of(["a", "b"])
HALF = PIECES[1][:30]


@dataclass(frozen=True)
class Manner:
    kind: str = "events"
    then: str = "ends"


class InPieces(Plugin[Manner]):
    """Answers with one piece of a stream or of JSON; then it ends, fails (perhaps inside an event) or says no more."""

    Config = Manner

    async def on_request(self, call: Call) -> Reply:
        content_type = b"text/event-stream" if self.config.kind == "events" else b"application/json"
        return Reply(200, self._pieces(), content_type=content_type)

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield PIECES[0] if self.config.kind == "events" else b'{"choices":['
        if self.config.then == "fails inside":
            yield HALF
        if self.config.then.startswith("fails"):
            raise RuntimeError("the backend is lost")
        if self.config.then == "hangs":
            await asyncio.sleep(60)


class Stubborn(Plugin[Config]):
    """Waits, and goes on when it is cancelled."""

    Config = Config

    async def on_request(self, call: Call) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
