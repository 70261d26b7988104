"""What a host knows of each counter in each window, in memory that outlives the supervisor.

One writer, the authority. An entry's own words come before the mark that makes it one; those of a window that is over
are used again.

    MARK    the counter's mark, 0 where the entry is free
    BEGINS  the window's beginning
    ENDS    and end
    CLOSED  what was spent by leases that are closed
    HELD    what this host may give to its processes in all, where a store divides the limit between hosts
    PASSING 1 where what is spent comes back: calls and tokens that run at once
    SEEDED  1 where CLOSED has what the ledger knows from before this memory was made
"""

from __future__ import annotations

import mmap
import os
import secrets
from pathlib import Path
from typing import Final

from tailrace.plugins.quota.windows import FOREVER

MARK: Final = 0
BEGINS: Final = 1
ENDS: Final = 2
CLOSED: Final = 3
HELD: Final = 4
PASSING: Final = 5
SEEDED: Final = 6
_NAME: Final = 6
"""In the first entry, which has no other use, as the next."""
_BORN: Final = 7
WIDTH: Final = 8
ENTRIES: Final = 1 << 18
_MANY: Final = 4000
_SIZE: Final = ENTRIES * WIDTH * 8


class Full(Exception):  # noqa: N818 - a state that its finder deals with
    """More counters are in use than there is room for."""


class Stocks:
    """The entries, found by mark and window; `words[at + CLOSED]` is one of an entry's words."""

    def __init__(self, path: Path, now: float) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(fd).st_size != _SIZE:
                os.ftruncate(fd, 0)
                os.ftruncate(fd, _SIZE)
            self._map = mmap.mmap(fd, _SIZE)
        finally:
            os.close(fd)
        self._bytes = memoryview(self._map)
        self.words: memoryview[int] = self._bytes.cast("q")
        if not self.words[_NAME]:
            self.words[_BORN] = int(now * 10**9)
            self.words[_NAME] = secrets.randbits(62) | 1
        self.name = f"{self.words[_NAME]:x}"
        """Of this memory: one that was lost and made anew has another."""
        self.born = self.words[_BORN]
        self._places: dict[tuple[int, int], int] = {}
        # What ends when: there are many counters, and few ends.
        self._ending: dict[int, list[tuple[int, int]]] = {}
        self._free: list[int] = []
        for at in range((ENTRIES - 1) * WIDTH, 0, -WIDTH):
            if self.words[at + MARK]:
                self._note(at, self.words[at + MARK], self.words[at + BEGINS], self.words[at + ENDS])
            else:
                self._free.append(at)

    def find(self, mark: int, begins: int) -> int | None:
        """The entry of a counter's window, if there is one."""
        return self._places.get((mark, begins))

    def open(self, mark: int, begins: int, ends: int, *, passing: bool) -> int:
        """A new entry, in which nothing is spent and nothing held; raises Full."""
        if not self._free:
            raise Full
        at = self._free.pop()
        words = self.words
        words[at + BEGINS], words[at + ENDS], words[at + CLOSED], words[at + HELD] = begins, ends, 0, 0
        words[at + PASSING], words[at + SEEDED] = passing, 0
        words[at + MARK] = mark
        self._note(at, mark, begins, ends)
        return at

    def _note(self, at: int, mark: int, begins: int, ends: int) -> None:
        self._places[mark, begins] = at
        if ends < FOREVER:
            self._ending.setdefault(ends, []).append((mark, begins))

    def free(self, mark: int, begins: int) -> None:
        """Forget a counter's window."""
        at = self._places.pop((mark, begins))
        self.words[at + MARK] = 0
        self._free.append(at)

    def sweep(self, now: float) -> None:
        """Forget windows that are over, so many at once that nobody waits for it."""
        left = _MANY
        for ends in [ends for ends in self._ending if ends <= now]:
            keys = self._ending[ends]
            while keys and left:
                self.free(*keys.pop())
                left -= 1
            if not keys:
                del self._ending[ends]

    def close(self) -> None:
        """Let go of the memory."""
        self.words.release()
        self._bytes.release()
        self._map.close()
