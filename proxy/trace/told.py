"""Records with their names on, and those that somebody asks for."""

from __future__ import annotations

import time
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from tailrace.proxy.trace.record import FINISHED, Raw
from tailrace.proxy.trace.ring import Ring

Of = Literal["slowest", "errors", "latest"]
ORDERS: tuple[Of, ...] = ("slowest", "errors", "latest")
MOST = 100


class Flaw(NamedTuple):
    """What went wrong; `why` is what the network had to say."""

    kind: str
    whose: str
    code: str
    why: str


class Tried(NamedTuple):
    """One attempt; moments are monotonic nanoseconds, 0 for what did not happen."""

    number: int
    why: str
    worker: str
    served: str
    began: int
    sent: int
    first: int
    ended: int
    status: int
    streaming: bool
    end: str
    flaw: Flaw | None


class Traced(NamedTuple):
    """A call's part of a trace; `spans` is what the ids of its spans begin with, `why` what it was kept for."""

    trace_id: str
    parent: str
    flags: int
    spans: str
    why: str
    phases: tuple[tuple[str, str, int, int], ...]


class Stages(NamedTuple):
    """Nanoseconds, as `proxy/stages.py` counts them."""

    network: int
    queue: int
    prefill: int
    decode: int
    gateway: int
    retry: int


class Record(NamedTuple):
    """One call that is over, in the order of `raw_of`."""

    id: str
    trace: Traced | None
    method: str
    route: str
    path: str
    model: str
    served: str
    stream: bool
    service_class: str
    started: int
    received: int
    waited: int
    requeued: int
    first: int
    finished: int
    status: int
    ending: str
    flaw: Flaw | None
    usage: tuple[int, int, int, bool] | None
    size: int
    delivered: int
    source: str
    stages: Stages | None
    tries: tuple[Tried, ...]

    @classmethod
    def of(cls, raw: Iterable[Any]) -> Record:
        """A record from its tuple, or from the lists that a socket makes of it."""
        record = cls(*raw)
        return record._replace(
            trace=None if record.trace is None else Traced(*record.trace),
            flaw=_flaw(record.flaw),
            stages=None if record.stages is None else Stages(*record.stages),
            tries=tuple(Tried(*tried)._replace(flaw=_flaw(tried[-1])) for tried in record.tries),
        )

    @property
    def took(self) -> int:
        """From its head to its end."""
        return self.finished - self.started

    @property
    def failed(self) -> bool:
        """Whether it went wrong, and not by what its client had asked or done."""
        return self.status >= 500 or self.ending in ("upstream_lost", "deadline", "failed")

    @property
    def slowness(self) -> int:
        """By what it counts as slow: the time to its first token where it streamed, else to its end."""
        return self.first - self.started if self.stream and self.first else self.took


def _flaw(raw: Any) -> Flaw | None:
    return None if raw is None else Flaw(*raw)


def offset_ns() -> int:
    """What makes Unix time of the monotonic moments of this host."""
    return time.time_ns() - time.monotonic_ns()


def matching(ring: Ring, name: str) -> list[Raw]:
    """The records of a request id, of its further attempts where they were calls of their own, or of a trace.

    A trace may have thousands of calls, of a job that makes them all: the last ones are given.
    """
    again = f"{name}-"
    found = [
        raw
        for raw in ring.all()
        if raw[0] == name or raw[0].startswith(again) or (raw[1] is not None and raw[1][0] == name)
    ]
    return sorted(found, key=itemgetter(FINISHED))[-MOST:]


def chosen(ring: Ring, of: Of, count: int) -> list[Raw]:
    """The first of all records in some order."""
    found = ring.all()
    if of == "errors":
        found = [raw for raw in found if Record(*raw).failed]
    return sorted(found, key=lambda raw: ordered(Record(*raw), of), reverse=True)[: min(count, MOST)]


def ordered(record: Record, of: Of) -> int:
    """What goes first in an order has more of this."""
    return record.slowness if of == "slowest" else record.finished
