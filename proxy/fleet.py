"""The workers as the gateway sees them, the pools they form and the model names that lead to them.

Nothing here is looked up per request but one dictionary entry: whenever a worker's state changes, the lists of those
that may take calls are built anew.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson
from tailrace.proxy.address import Address
from tailrace.proxy.fault import HOP_KEY_REFUSED
from tailrace.proxy.headers import via
from tailrace.proxy.pool import ConnectionPool
from tailrace.proxy.standing import Standing

MAX_CANDIDATES: Final = 8


class Worker:
    """One replica. `inflight` counts this process's calls from the moment of choice to the end of the attempt."""

    __slots__ = (
        "address",
        "connections",
        "credentials",
        "drained",
        "headers",
        "inflight",
        "name",
        "pools",
        "post",
        "standing",
        "strict",
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
    def reachable(self) -> bool:
        """Whether calls that only this worker can answer may still go to it."""
        return not self.standing.dead

    def changed(self) -> None:
        """Rebuild what depends on this worker's standing."""
        for pool in self.pools:
            pool.rebuild()


class Pool:
    """Workers that serve the same models."""

    __slots__ = ("_entries", "eligible", "name", "workers")

    def __init__(self, name: str, workers: Sequence[Worker]) -> None:
        self.name = name
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
        self.eligible = [worker for worker in self.workers if worker.eligible]
        for entry in self._entries:
            entry.rebuild()

    def adapters(self) -> dict[str, str]:
        """Adapter names that workers of this pool list, each with its base model."""
        found: dict[str, str] = {}
        for worker in self.workers:
            for name, parent in worker.standing.models.items():
                if parent:
                    found.setdefault(name, parent)
        return found


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

    def draw(self, without: Iterable[Worker] = ()) -> Sequence[Worker]:
        """At most MAX_CANDIDATES workers to choose from, at random where there are more."""
        candidates = self.candidates
        if without:
            candidates = [worker for worker in candidates if worker not in without] or candidates
        if len(candidates) > MAX_CANDIDATES:
            return random.sample(candidates, MAX_CANDIDATES)
        return candidates


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
