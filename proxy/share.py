"""Even shares of new connections for processes that accept from the same sockets.

Left to the kernel, the process that wakes first takes all that is waiting, and an idle machine gives one of several
processes nearly everything. So each writes its number of connections where the others see it, and one that is ahead
leaves what is waiting to them, for PATIENCE at most: a process that stands still must not keep anybody out. Nor must it
cost everybody that patience: one whose number has not moved meanwhile is not waited for again until it moves, or until
a while has passed, which doubles as long as it stands still.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence

PAUSE = 0.001
PATIENCE = 0.005
PASSED_OVER = 0.01
PASSED_OVER_AT_MOST = 1.0
_VACANT = -1
_WIDTH = 8
_AHEAD = 32
"""One above the least is ahead; of many connections, a thirty-second part of them."""


class Board:
    """Shared memory with a number of connections for each seat."""

    def __init__(self, fd: int, seats: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, seats * _WIDTH)
        self._view = memoryview(self._map)
        self._counts = self._view.cast("q")

    @classmethod
    def create(cls, seats: int) -> Board:
        """A board on which every seat is vacant."""
        fd = _memory_file()
        os.ftruncate(fd, seats * _WIDTH)
        board = cls(fd, seats)
        for seat in range(seats):
            board.vacate(seat)
        return board

    def write(self, seat: int, connections: int) -> None:
        """Note how many connections a seat's process has."""
        self._counts[seat] = connections

    def vacate(self, seat: int) -> None:
        """Nobody accepts in this seat."""
        self._counts[seat] = _VACANT

    def counts(self) -> Sequence[int]:
        """What stands on it now, by seat."""
        return tuple(self._counts)

    def least_beside(self, seat: int, still: Mapping[int, int]) -> int | None:
        """The fewest connections that any other accepting process has; None where there is none.

        `still` are those that do not count while their number is this.
        """
        others = [
            count
            for other, count in enumerate(self._counts)
            if other != seat and count != _VACANT and still.get(other) != count
        ]
        return min(others, default=None)

    def close(self) -> None:
        """Let go of the memory."""
        self._counts.release()
        self._view.release()
        self._map.close()
        os.close(self.fd)


class Share:
    """One process's part in it."""

    def __init__(self, board: Board, seat: int) -> None:
        self._board = board
        self._seat = seat
        self._accepts = False
        self._still: dict[int, int] = {}
        self._until = 0.0
        self._passed_over = PASSED_OVER

    def join(self, connections: int) -> None:
        """Accept from now on."""
        self._accepts = True
        self.note(connections)

    def note(self, connections: int) -> None:
        """Let the others know how many connections there are."""
        if self._accepts:
            self._board.write(self._seat, connections)

    def may_take(self, connections: int, now: float) -> bool:
        """Whether a process with so many connections should take one more; the others learn the number."""
        self.note(connections)
        least = self._board.least_beside(self._seat, self._still if now < self._until else {})
        return least is None or not _ahead(connections, least)

    def seen(self) -> Sequence[int]:
        """What the board says when a wait begins, for `pass_over` at its end."""
        return self._board.counts()

    def pass_over(self, connections: int, seen: Sequence[int], now: float) -> None:
        """Wait no more, for a while, for those that were waited for and have not moved since."""
        still = {
            seat: count
            for seat, count in enumerate(self._board.counts())
            if seat != self._seat and count == seen[seat] != _VACANT and _ahead(connections, count)
        }
        again = still == self._still
        self._passed_over = min(self._passed_over * 2, PASSED_OVER_AT_MOST) if again else PASSED_OVER
        self._still, self._until = still, now + self._passed_over

    def leave(self) -> None:
        """Accept no more."""
        self._accepts = False
        self._board.vacate(self._seat)


def _ahead(connections: int, others: int) -> bool:
    return connections > others + others // _AHEAD


def _memory_file() -> int:
    try:
        return os.memfd_create("tailrace-share")
    except (AttributeError, OSError):  # no such call on this system, or forbidden by a sandbox
        fd, path = tempfile.mkstemp(prefix="tailrace-share-")
        os.unlink(path)  # noqa: PTH108 - only the descriptor is wanted
        return fd
