"""Scripted workers of a world: what becomes of each exchange is drawn when it begins."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from fakes import chat_chunk, event
from tailrace.proxy.fault import connect_failed, connection_lost
from tailrace.proxy.wire import frame, parse_head

if TYPE_CHECKING:
    from seeds.loop import VirtualLoop

EVENTS = parse_head(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked")
ROLE = chat_chunk("", role="assistant")
KINDS = (
    "good",
    "good",
    "good",
    "good",
    "slow",
    "hang",
    "reset",
    "stale",
    "refuse",
    "500",
    "503",
    "429",
    "400",
    "false",
)


class Engine:
    """One engine, as all processes of the host meet it."""

    def __init__(self, name: str, drawn: random.Random) -> None:
        self.name = name
        self.drawn = drawn
        self.speed = drawn.choice([1.0, 1.0, 1.0, 10.0])
        self.kinds = drawn.choice([("good",), ("good", "good", "slow"), KINDS, KINDS, ("hang",), ("500",), ("refuse",)])
        self.dead = False

    def change(self) -> None:
        """Something happens to it."""
        self.dead = self.drawn.random() < 0.2
        self.kinds = self.drawn.choice([("good",), ("good", "slow"), KINDS])

    def draw(self) -> str:
        return "refuse" if self.dead else self.drawn.choice(self.kinds)


class Pool:
    """One process's connections to an engine."""

    def __init__(self, loop: VirtualLoop, engine: Engine) -> None:
        self.loop = loop
        self.engine = engine
        self.busy: set[Connection] = set()
        self.resting = 0
        self.opening = 0

    def take(self) -> Connection | None:
        if not self.resting:
            return None
        self.resting -= 1
        return Connection(self, rested=True)

    def connect(self, done: Any, failed: Any, *doubted: Any) -> Any:
        self.opening += 1
        kind = self.engine.draw()
        delay = self.engine.drawn.uniform(0.0, 0.02)
        if kind == "refuse":
            handle = self.loop.call_later(delay, self._over, failed, connect_failed("refused"))
        else:
            handle = self.loop.call_later(delay, self._over, done, Connection(self))
        return Opening(self, handle)

    def _over(self, heard: Any, value: Any) -> None:
        self.opening -= 1
        heard(value)


class Opening:
    def __init__(self, pool: Pool, handle: Any) -> None:
        self._pool = pool
        self._handle = handle

    def cancel(self) -> None:
        if not self._handle.done and not self._handle.cancelled:
            self._handle.cancel()
            self._pool.opening -= 1


class Connection:
    def __init__(self, pool: Pool, *, rested: bool = False) -> None:
        self.pool = pool
        self.clock = pool.loop.clock
        self.sink: Any = None
        self.stride: Any = None
        self.closed = False
        self.rested = rested
        self.got_bytes = False
        self.touched = 0.0

    def send(self, sink: Any, head: bytes, body: bytes) -> None:
        self.sink = sink
        self.touched = self.clock.now
        self.pool.busy.add(self)
        engine = self.pool.engine
        kind = "stale" if self.rested and engine.drawn.random() < 0.2 else engine.draw()
        wait = engine.drawn.lognormvariate(-2.5, 0.6) * engine.speed * (10 if kind == "slow" else 1)
        self._later(wait, kind)

    def _later(self, wait: float, kind: str) -> None:
        if kind != "hang":
            self.pool.loop.call_later(wait, self._answer, self.sink, kind)

    def _answer(self, sink: Any, kind: str) -> None:
        if self.sink is not sink or sink.race.winner is sink:
            return
        self.got_bytes = True
        self.touched = self.clock.now
        if kind in ("reset", "refuse", "stale"):
            self._gone().on_fault(connection_lost(sent=kind != "stale"))
        elif kind in ("500", "503", "429", "400"):
            more = b"\r\nretry-after: 1" if kind in ("503", "429") else b""
            sink.on_head(parse_head(b"HTTP/1.1 %b X\r\ncontent-type: application/json%b" % (kind.encode(), more)))
            sink.on_data(b'{"error": {"message": "x"}}')
            self._gone().on_end()
        elif kind == "false":
            sink.on_head(EVENTS)
            sink.on_chunks(frame(ROLE) + frame(event("[DONE]")), 2)
        else:
            sink.on_head(EVENTS)
            sink.on_chunks(frame(ROLE) + frame(chat_chunk("hi")), 2)

    def _gone(self) -> Any:
        sink, self.sink = self.sink, None
        self.pool.busy.discard(self)
        return sink

    def rest(self) -> None:
        """Its answer is whole."""
        self._gone()
        self.pool.resting += 1

    def release(self) -> None:
        self._gone()
        self.closed = True
