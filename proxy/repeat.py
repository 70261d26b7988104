"""A connection's request head that came before: recognised by its bytes, so that it need not be parsed again.

SDKs keep connections and repeat their heads but for the length of the body. What equals, byte for byte, a head that the
parser has accepted means what that head meant; the length is the one thing read anew, by the parser's own rule.
"""

from __future__ import annotations

import re
from typing import Final

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})(?=[ \t]*\r\n)", re.IGNORECASE)
_MOST_DIGITS: Final = 15
_LONGEST: Final = 4096
"""Every connection remembers one head."""


class Repeat:
    """The bytes before and behind the digits of a head's Content-Length."""

    __slots__ = ("_after", "_before")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after

    @classmethod
    def of(cls, data: bytes) -> Repeat | None:
        """The head of the one request that `data` is, None where it is not exactly that or states no length once.

        Of several requests in one read nobody could say which of them the parser read last.
        """
        end = data.find(b"\r\n\r\n")
        if end < 0 or end > _LONGEST:
            return None
        head = data[: end + 4]
        found = _LENGTH.findall(head)
        length = _LENGTH.search(head)
        if len(found) != 1 or length is None or b"transfer-encoding" in head.lower():
            return None
        repeat = cls(head[: length.start(1)], head[length.end(1) :])
        return None if repeat.body_of(data) is None else repeat

    def body_of(self, data: bytes) -> bytes | None:
        """The body of `data` where it is exactly one whole request with this head."""
        before = self._before
        if not data.startswith(before):
            return None
        start = len(before)
        end = data.find(b"\r", start, start + _MOST_DIGITS + 1)
        if end < 0:
            return None
        digits = data[start:end]
        if (
            not digits.isdigit()
            or (digits.startswith(b"0") and digits != b"0")
            or not data.startswith(self._after, end)
        ):
            return None
        body = end + len(self._after)
        return data[body:] if len(data) - body == int(digits) else None
