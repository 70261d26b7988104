"""The event of a stream that is not whole yet: kept to be judged when it is, and not looked at with every read."""

from __future__ import annotations

from typing import Final

from tailrace.proxy.sse import ends_within

MOST: Final = 4 << 20
"""Of a larger one the beginning is let go: it is relayed, and not judged."""
_LONG: Final = 8 * 1024
_SEAM: Final = 3


class OpenEvent:
    """What a client has been sent of it; `size` is 0 while it stands between two events."""

    __slots__ = ("_pieces", "_seam", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._seam = b""
        self.size = 0

    def set(self, rest: bytes) -> None:
        """Begin with what stands behind the last whole event, maybe nothing."""
        self._pieces = [rest] if rest else []
        self._seam = rest[-_SEAM:]
        self.size = len(rest)

    @property
    def content(self) -> bytes:
        """What of it is kept."""
        pieces = self._pieces
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def goes_on(self, data: bytes) -> bool:
        """Whether all of `data` belongs to a long event that does not end in it; it is kept with the rest then."""
        if self.size < _LONG or ends_within(self._seam + data):
            return False
        self._pieces.append(data)
        self._seam = (self._seam + data)[-_SEAM:]
        self.size += len(data)
        if self.size > MOST + (MOST >> 2):
            self._pieces = [self.content[-MOST:]]
            self.size = MOST
        return True
