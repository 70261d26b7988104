"""The workers as the gateway sees them, the pools they form and the model names that lead to them.

Nothing here is looked up per request but one dictionary entry: whenever a worker's state changes, the lists of those
that may take calls are built anew.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson
from tailrace.proxy.address import Address
from tailrace.proxy.fault import HOP_KEY_REFUSED
from tailrace.proxy.headers import via
from tailrace.proxy.pool import ConnectionPool
from tailrace.proxy.standing import Standing

if TYPE_CHECKING:
    from tailrace.proxy.plugin import Key

MAX_CANDIDATES: Final = 8
SUSPECT: Final = "suspect"
"""The bar of a host that may have gone silent: such workers are the last to be let in again."""
SILENT: Final = "silent"
"""The bar of one that has been given up: it gets calls again only where nobody else would."""
SURVIVORS: Final = 0.5
"""Share of the workers that would take calls which bars leave in their pool, rounded up."""


class Worker:
    """One replica. `inflight` counts this process's calls from the moment of choice to the end of the attempt."""

    __slots__ = (
        "address",
        "bars",
        "connections",
        "credentials",
        "died",
        "drained",
        "headers",
        "inflight",
        "last_sent_ns",
        "learnt",
        "name",
        "origins",
        "pools",
        "post",
        "region",
        "sent_after_death",
        "standing",
        "strict",
        "weight",
    )

    def __init__(self, address: Address, connections: ConnectionPool) -> None:
        self.name = address.shown
        self.post = b"POST " + address.prefix.encode()
        self.address = address
        self.connections = connections
        self.credentials = b""
        self.headers = b""
        self.hop(b"")
        self.inflight = 0
        self.standing = Standing()
        self.drained = False
        self.strict = False
        """Whether it has refused a request for the options that plugins had added to it."""
        self.pools: list[Pool] = []
        self.origins: tuple[str, ...] = ()
        """Where it is known from: "static", or the sources that found it."""
        self.weight = 1.0
        self.region = ""
        self.bars: dict[str, float] = {}
        """Why it gets no new calls although it would take them, each with the second of its beginning."""
        self.learnt: dict[Key[Any], Any] = {}
        """What plugins have found out about it, each under a key of its own; outlives reloads."""
        self.last_sent_ns = 0
        """When the last attempt was sent to it."""
        self.died = 0.0
        """The second of the last sign of life of one that is gone, or may be; 0 of one that is there."""
        self.sent_after_death = math.nan
        """Seconds from its last death to the last attempt that was sent to it nevertheless."""

    def request_line(self, method: str) -> bytes:
        """The start of a request line: method and this worker's path prefix; `post` is that of most."""
        return b"%b %b" % (method.encode(), self.address.prefix.encode())

    def hop(self, lines: bytes) -> None:
        """Set what is said to this worker on every request: its name, its credentials and the hop's own lines."""
        self.headers = b"host: %b\r\n%b%b%b" % (self.address.authority, via(1), self.credentials, lines)

    @property
    def eligible(self) -> bool:
        """Whether new calls may go to it."""
        return not self.drained and self.standing.takes_calls

    @property
    def gets_calls(self) -> bool:
        """Whether new calls do go to it: to one of the last of its pool also where a bar other than silence is up."""
        if not self.bars or not self.eligible:
            return self.eligible
        return SILENT not in self.bars and any(self in pool.eligible for pool in self.pools)

    @property
    def reachable(self) -> bool:
        """Whether calls that only this worker can answer may still go to it."""
        return not self.standing.dead

    def bar(self, by: str, due: set[Pool] | None = None) -> None:
        """Take it out of the lists of those that get new calls, as long as enough others are left.

        That is so when this returns, unless `due` is given: it gets the pools whose lists whoever bars many at once
        has to rebuild, before any call is chosen for.
        """
        if by not in self.bars:
            self.bars[by] = time.monotonic()
            self._have_rebuilt(due)

    def unbar(self, by: str, due: set[Pool] | None = None) -> None:
        """Let it in again, unless something else bars it; for `due` see `bar`."""
        if self.bars.pop(by, None) is not None:
            self._have_rebuilt(due)

    def _have_rebuilt(self, due: set[Pool] | None) -> None:
        if due is None:
            self.changed()
        else:
            due.update(self.pools)

    def note_death(self) -> None:
        """It is gone indeed: note how long after its last sign of life an attempt was sent to it."""
        if self.died:
            self.sent_after_death = max(0.0, self.last_sent_ns * 1e-9 - self.died)

    def changed(self) -> None:
        """Rebuild what depends on this worker's standing."""
        for pool in self.pools:
            pool.rebuild()


class Pool:
    """Workers that serve the same models; `concurrency` are the calls that each takes at once, 0 is unknown."""

    __slots__ = ("_entries", "concurrency", "eligible", "name", "workers")

    def __init__(self, name: str, workers: Sequence[Worker], concurrency: int = 0) -> None:
        self.name = name
        self.concurrency = concurrency
        self.workers = tuple(workers)
        self.eligible: list[Worker] = []
        self._entries: list[ModelEntry] = []

    def attach(self, entry: ModelEntry) -> None:
        """Keep the list of an entry's candidates in step with this pool."""
        self._entries.append(entry)

    def detach(self, entry: ModelEntry) -> None:
        """Forget an entry."""
        if entry in self._entries:
            self._entries.remove(entry)

    def rebuild(self) -> None:
        """Recompute who may take calls."""
        taking = [worker for worker in self.workers if worker.eligible]
        self.eligible = _spared([worker for worker in taking if SILENT not in worker.bars] or taking)
        for entry in self._entries:
            entry.rebuild()

    @property
    def taking(self) -> int:
        """How many workers get its calls and have not been given up."""
        return sum(SILENT not in worker.bars for worker in self.eligible)

    def adapters(self) -> dict[str, str]:
        """Adapter names that workers of this pool list, each with its base model."""
        found: dict[str, str] = {}
        for worker in self.workers:
            for name, parent in worker.standing.models.items():
                if parent:
                    found.setdefault(name, parent)
        return found


def _spared(taking: list[Worker]) -> list[Worker]:
    """Those of the workers that take calls which are not barred, and of the barred as many as it takes for a floor.

    If all that is known speaks against most of a pool, what is known is more likely to be wrong, or no better choice.
    """
    free = [worker for worker in taking if not worker.bars]
    missing = math.ceil(len(taking) * SURVIVORS) - len(free)
    if missing <= 0:
        return free
    barred = sorted([worker for worker in taking if worker.bars], key=_readmission)
    spared = {*free, *barred[:missing]}
    return [worker for worker in taking if worker in spared]


def _readmission(worker: Worker) -> tuple[bool, float]:
    return SUSPECT in worker.bars, min(worker.bars.values())


class ModelEntry:
    """One model name that clients may use: the pool behind it and the name its workers know it by."""

    __slots__ = ("adapter", "candidates", "missed", "name", "pool", "rename", "served", "served_json")

    def __init__(self, name: str, pool: Pool, served: str, *, adapter: bool = False, rename: bool = False) -> None:
        self.name = name
        self.pool = pool
        self.served = served
        self.served_json = orjson.dumps(served) if served != name else None
        self.adapter = adapter
        self.rename = rename and served != name
        self.candidates: list[Worker] = []
        self.missed = False
        """The log has said that no worker lists it."""

    def rebuild(self) -> None:
        """Recompute the candidates; an adapter is only where a worker lists it."""
        eligible = self.pool.eligible
        if self.adapter:
            eligible = [worker for worker in eligible if self.served in worker.standing.models]
        self.candidates = eligible

    @property
    def why_nobody(self) -> str:
        """Why nobody takes a call, where that is for an operator to mend; else an empty text."""
        if not self.candidates and any(worker.standing.hop_refused for worker in self.pool.workers):
            return HOP_KEY_REFUSED
        return f"No worker lists '{self.served}'." if self.unlisted else ""

    @property
    def unlisted(self) -> bool:
        """Whether workers say what they serve, and none says that it serves this."""
        told = [worker.standing.models for worker in self.pool.workers if worker.standing.models]
        return bool(told and self.name) and not any(self.served in models for models in told)

    @property
    def known(self) -> bool:
        """Whether every worker that lives has said what it serves."""
        return all(worker.standing.models or worker.standing.dead for worker in self.pool.workers)


@dataclass(frozen=True, slots=True)
class Models:
    """What `GET /v1/models` lists and what a request's `model` is looked up in."""

    entries: Mapping[str, ModelEntry]
    adapters: dict[str, ModelEntry]
    written: dict[bytes, ModelEntry] = field(default_factory=dict)
    """The entries by their name as JSON: what a request body holds, found without decoding it."""
    otherwise: ModelEntry | None = None
    """Where every other name leads, unchanged: a sidecar has one engine and leaves the names to it."""

    def resolve(self, name: str) -> ModelEntry | None:
        """The entry for a model name, configured or listed by workers as an adapter."""
        return self.entries.get(name) or self.adapters.get(name) or self.otherwise
