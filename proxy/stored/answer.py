"""One kept answer, in memory and as bytes for a store that others share."""

from __future__ import annotations

from typing import Final

import msgspec
from tailrace.proxy.outcome import Usage
from tailrace.proxy.stored.canonical import SCHEMA

OVERHEAD: Final = 400
"""Bytes that an entry takes beside its answer, in memory."""


class Answer(msgspec.Struct, gc=False, array_like=True):
    """An answer and what it is the answer to, good `until` then; times are in seconds of Unix time.

    No object of the garbage collector, which would go through all of them again and again.
    """

    body: bytes
    check: bytes
    made_at: float
    until: float
    scope: str
    model: str
    route: str
    prompt: int = 0
    completion: int = 0
    cached: int = 0

    @property
    def usage(self) -> Usage | None:
        """What it took to make it, None where that is not known."""
        if not self.prompt and not self.completion:
            return None
        return Usage(self.prompt, self.completion, self.cached)

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return len(self.body) + OVERHEAD


_MARK: Final = b"tr" + SCHEMA + b":"
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Answer).decode


def packed(answer: Answer) -> bytes:
    """An answer as bytes, with the version of their form in front."""
    return _MARK + _encode(answer)


def unpacked(packed: bytes) -> Answer | None:
    """The other way round; None for another version, and for what is none."""
    if not packed.startswith(_MARK):
        return None
    try:
        return _decode(memoryview(packed)[len(_MARK) :])
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return None
