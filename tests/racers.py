"""The people of a race without sockets: workers and a model's entry that only note what is done to them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fakes import chat_chunk
from tailrace.proxy.fault import Fault, connect_failed, connection_lost
from tailrace.proxy.fleet import _spared
from tailrace.proxy.standing import Standing
from tailrace.proxy.sweep import Clock
from tailrace.proxy.wire import frame, parse_head

EVENTS = parse_head(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked")
ROLE = chat_chunk("", role="assistant")
JSON = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: 2"


class FakeConnection:
    def __init__(self) -> None:
        self.sink: Any = None
        self.stride: Any = None
        self.clock = Clock()
        self.closed = False
        self.transport = None

    def send(self, sink: Any, head: bytes, body: bytes) -> None:
        self.sink = sink

    def release(self) -> None:
        self.sink = None
        self.closed = True


class FakePool:
    """Hands out a resting connection where `resting` says so; opens others when the test says so."""

    def __init__(self) -> None:
        self.resting = 0
        self.busy: set[FakeConnection] = set()
        self.opening: list[tuple[Any, Any]] = []
        self.cancelled = 0
        self.connections: list[FakeConnection] = []

    def take(self) -> FakeConnection | None:
        if not self.resting:
            return None
        self.resting -= 1
        return self.made()

    def made(self) -> FakeConnection:
        self.connections.append(FakeConnection())
        return self.connections[-1]

    def connect(self, done: Any, failed: Any, *doubted: Any) -> Any:
        entry = (done, failed)
        self.opening.append(entry)

        def cancel() -> None:
            self.cancelled += entry in self.opening

        return SimpleNamespace(cancel=cancel)


class FakeWorker:
    def __init__(self, name: str) -> None:
        self.name = name
        self.connections = FakePool()
        self.inflight = 0
        self.reachable = True
        self.eligible = True
        self.standing = Standing()
        self.pools: list[Any] = []
        self.bars: dict[str, float] = {}

    def bar(self, by: str) -> None:
        if by not in self.bars:
            self.bars[by] = len(self.bars)
            self.changed()

    def unbar(self, by: str) -> None:
        if self.bars.pop(by, None) is not None:
            self.changed()

    def changed(self) -> None:
        for pool in self.pools:
            pool.rebuild()

    def __repr__(self) -> str:
        return self.name

    # What happens to its latest attempt.

    def accept(self) -> None:
        done, _ = self.connections.opening.pop()
        done(self.connections.made())

    def refuse(self) -> None:
        _, failed = self.connections.opening.pop()
        failed(connect_failed("refused"))

    @property
    def sink(self) -> Any:
        return self.connections.connections[-1].sink

    def _gone(self) -> Any:
        connection = self.connections.connections[-1]
        sink, connection.sink = connection.sink, None
        return sink

    def lose(self, *, sent: bool = True) -> None:
        self._gone().on_fault(connection_lost(sent=sent))

    def fail(self, fault: Fault) -> None:
        self._gone().on_fault(fault)

    def say(self, *pieces: bytes) -> None:
        sink = self.sink
        if not hasattr(sink, "head"):
            sink.on_head(EVENTS)
        sink.on_chunks(b"".join([frame(piece) for piece in pieces]), len(pieces))

    def status(self, status: int, body: bytes = b"{}", *lines: bytes) -> None:
        sink = self.sink
        sink.on_head(parse_head(b"\r\n".join((JSON % status, *lines))))
        sink.on_data(body)
        self._gone().on_end()

    def answer(self, text: str = "hi") -> None:
        self.say(chat_chunk(text))


class Body(dict[str, Any]):
    """The top-level fields of a request."""

    def flag(self, name: str) -> bool:
        return self.get(name) is True

    def has(self, name: str) -> bool:
        return name in self


class Notes(SimpleNamespace):
    """A call of plain attributes, with places for the state of plugins."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes, state={})

    def __getitem__(self, key: Any) -> Any:
        return self.state[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.state[key] = value

    def __contains__(self, key: Any) -> bool:
        return key in self.state


class Members:
    """The pool of an entry."""

    name = "main"

    def __init__(self, entry: Entry, workers: list[FakeWorker]) -> None:
        self.workers = workers
        self.eligible = workers
        self._entry = entry

    def rebuild(self) -> None:
        self.eligible = self._entry.candidates = _spared([each for each in self.workers if each.eligible])


class Entry:
    """The workers of a model, drawn in order, those not tried yet first."""

    unlisted = adapter = False

    why_nobody = ""

    def __init__(self, workers: list[FakeWorker]) -> None:
        self.name = "m"
        self.candidates = workers
        self.pool = Members(self, workers)
        for worker in workers:
            worker.pools = [self.pool]

    def draw(self, without: Any = ()) -> list[FakeWorker]:
        return [worker for worker in self.candidates if worker not in without] or self.candidates
