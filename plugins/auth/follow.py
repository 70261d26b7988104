"""A thread for each store of keys: a store that hangs or is down holds up neither the others nor any event loop."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from tailrace.plugins.auth.ring import Change, KeyRing
from tailrace.plugins.auth.store import StoreFailed, WentBack
from tailrace.proxy.config import ConfigError

log = logging.getLogger("tailrace")
SHORTEST, LONGEST = 0.25, 5.0
"""Seconds between two tries to reach a store that is down."""
LISTEN = 0.5
_NUMBERS = itertools.count(1)


class Store(Protocol):
    """Where keys come from; its methods are called by one thread."""

    name: str
    every: float

    def changes(self) -> Iterator[Change]:
        """What has changed since the last call; raises StoreFailed or ConfigError."""

    def wait(self, seconds: float) -> None:
        """Until there may be something new, or for so long at most."""

    def close(self) -> None:
        """Let go of what is open; the next look begins anew."""


class Following(threading.Thread):
    """Follows one store until it is told to stop."""

    def __init__(self, store: Store, ring: KeyRing) -> None:
        super().__init__(name=f"keys-{store.name}", daemon=True)
        self.store = store
        self.label = _label(store)
        """What its keys are known by: after a change of configuration, two stores may have one name for a while."""
        self.first = threading.Event()
        """Set when the first look is over, whatever came of it."""
        self.confirmed_ns = 0
        """When the store was last heard of, on the monotonic clock."""
        self.fault: str | None = None
        self._ring = ring
        self._over = threading.Event()

    def run(self) -> None:
        """Look, wait, look again."""
        pause = SHORTEST
        while not self._over.is_set():
            if self.look():
                pause = SHORTEST
                self._over.wait(self.store.every)
            else:
                self._over.wait(pause)
                pause = min(2 * pause, LONGEST)
        self.store.close()

    def look(self) -> bool:
        """Take up what is new; whether the store could be read."""
        try:
            if self.first.is_set() and not self.store.every:
                self.store.wait(LISTEN)
            self._take()
        except (StoreFailed, ConfigError, OSError, ValueError) as error:
            self._failed(error)
            return False
        except Exception as error:
            log.exception("following the keys in %s failed", self.store.name)
            self._failed(error)
            return False
        else:
            self.confirmed_ns = time.monotonic_ns()
            if self.fault is not None:
                log.info("the keys in %s can be read again", self.store.name)
                self.fault = None
            return True
        finally:
            self.first.set()

    def _take(self) -> None:
        try:
            self._ring.apply(self.label, self.store.changes())
        except WentBack:
            log.warning("the keys in %s are older than they were, and are read anew", self.store.name)
            old, self.label = self.label, _label(self.store)
            self._ring.apply(self.label, self.store.changes())
            self._ring.forget(old)

    def _failed(self, error: Exception) -> None:
        told = str(error)
        if told != self.fault:
            log.error("the keys in %s cannot be read, the last known ones stay: %s", self.store.name, told)
        self.fault = told
        self.store.close()

    def stop(self) -> None:
        """End soon; the thread of a store that hangs is left behind."""
        self._over.set()


def _label(store: Store) -> str:
    return f"{store.name}-{next(_NUMBERS)}"
