"""What every source of workers is to the search: a key, what it has found, and something that goes on for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tailrace.proxy.discovery.endpoint import Endpoint

Changed = Callable[[], None]


class Source(Protocol):
    """One source. `found` is what counts now; `trouble` why it may be old, empty where it is not."""

    found: tuple[Endpoint, ...]
    trouble: str

    async def look(self) -> float:
        """Bring `found` up to date; how many seconds from now to look again."""
