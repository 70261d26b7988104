"""How much time a call has: moments by which its first content and its end are due, and how hops are told of them.

Between hosts the budget travels as milliseconds that remain, because no two clocks agree.
"""

from __future__ import annotations

from typing import Final

TOTAL_HEADER: Final = b"x-tailrace-budget-ms"
FIRST_HEADER: Final = b"x-tailrace-ttft-ms"
_MS: Final = 1_000_000
_DIGITS: Final = 8


def milliseconds(value: bytes) -> int | None:
    """A header's value as nanoseconds; None where it is no plain whole number of milliseconds below a day or so."""
    if not value.isdigit() or len(value) > _DIGITS:
        return None
    return int(value) * _MS


class Budget:
    """Moments are monotonic nanoseconds, lengths nanoseconds; 0 where nothing is bounded.

    `first_ns` and `ends_ns` are when the first content and the end are due, `queue_ns` how long the call may stand in a
    queue, `model_ns` how long its worker may take to the first content. `reserve_ns` of both is for the way back: the
    worker is told so much less. At present what is due first takes workers `least_ns` if all goes well, and hardly ever
    more than `ample_ns`.
    """

    __slots__ = ("ample_ns", "due_ns", "ends_ns", "first_ns", "least_ns", "model_ns", "queue_ns", "reserve_ns")

    def __init__(
        self, ends_ns: int = 0, first_ns: int = 0, queue_ns: int = 0, model_ns: int = 0, reserve_ns: int = 0
    ) -> None:
        self.ends_ns = ends_ns
        self.first_ns = first_ns
        self.queue_ns = queue_ns
        self.model_ns = model_ns
        self.reserve_ns = reserve_ns
        self.least_ns = self.ample_ns = 0
        self.due_ns = first_ns if first_ns and (not ends_ns or first_ns < ends_ns) else ends_ns
        """The moment by which something has to come: the first content, or the end where that is sooner."""

    def left_ns(self, now_ns: int) -> int | None:
        """How long a worker may take from now to the first content, below 0 where it is too late; None: for ever."""
        due = self.due_ns
        if not due:
            return self.model_ns or None
        left = due - self.reserve_ns - now_ns
        return min(left, self.model_ns) if self.model_ns else left

    def lines(self, now_ns: int) -> bytes:
        """What the next hop is told: header lines, empty where there is nothing to say."""
        told = b""
        if self.ends_ns:
            left = self.ends_ns - self.reserve_ns - now_ns
            told = b"%b: %d\r\n" % (TOTAL_HEADER, max(0, left // _MS))
        if self.first_ns or self.model_ns:
            first = self.left_ns(now_ns) or 0
            told += b"%b: %d\r\n" % (FIRST_HEADER, max(0, first // _MS))
        return told

    @classmethod
    def told(cls, total: bytes | None, first: bytes | None, now_ns: int) -> Budget | None:
        """What a hop before says that is left from now on; None where it says nothing that can be read."""
        ends = None if total is None else milliseconds(total)
        begins = None if first is None else milliseconds(first)
        if ends is None and begins is None:
            return None
        return cls(
            ends_ns=0 if ends is None else now_ns + ends,
            first_ns=0 if begins is None else now_ns + begins,
        )
