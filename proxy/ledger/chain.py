"""The lines of a segment and the hashes that tie them: SHA-256 over the hash of the line before and the line itself.

A segment is a text file of lines, so that any tool can read it and no reader of ours is needed to see what is in it:

    {"ledger":"5f0c…","segment":7,"previous":"<hash>","records":1024,"opened_ns":…}     the segment before, and its end
    <hash> <number> <batch> <record as JSON>

Numbers count from 1 in each segment. A batch is what became durable together: there is a batch only where all before it
were durable, so a hole in the last one is a torn write, and one before it is damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import msgspec

GENESIS = "0" * 64
_HASH = 64
_WORDS = 3


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a segment: what came before it."""

    ledger: str
    segment: int
    previous: str
    records: int
    opened_ns: int
    version: int = 1


@dataclass(frozen=True, slots=True)
class Line:
    """One record's line as it stands in a file."""

    hash: str
    number: int
    batch: int
    body: bytes
    text: bytes
    """The record; `body` is what was hashed: number, batch and text."""

    def follows(self, previous: str) -> bool:
        """Whether it is what was written behind the line with this hash."""
        return self.hash == link(previous, self.body)


@dataclass(frozen=True, slots=True)
class Head:
    """How far a ledger goes: so many records of a segment, with the hash of the last."""

    ledger: str
    segment: int
    records: int
    hash: str


_header = msgspec.json.Decoder(Header).decode


def link(previous: str, body: bytes) -> str:
    """The hash of a line behind another."""
    return sha256(previous.encode() + body).hexdigest()


def begin(line: bytes) -> str:
    """The hash that a segment's first record follows: that of its header."""
    return sha256(line).hexdigest()


def chained(mark: str, number: int, batch: int, texts: Sequence[bytes]) -> tuple[str, bytes]:
    """The lines of a batch behind the record with a hash and number, and the hash of its last."""
    of_batch = b" %d " % batch
    parts = []
    before = mark.encode()
    for text in texts:
        number += 1
        body = str(number).encode() + of_batch + text
        mark = sha256(before + body).hexdigest()
        before = mark.encode()
        parts.append(before + b" " + body + b"\n")
    return mark, b"".join(parts)


def header_of(line: bytes) -> Header | None:
    """A segment's header; None where that is no header."""
    try:
        return _header(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def line_of(line: bytes) -> Line | None:
    """A record's line, without its end; None where it cannot be one."""
    body = line[_HASH + 1 :]
    words = body.split(b" ", _WORDS - 1)
    if len(words) != _WORDS or not words[0].isdigit() or not words[1].isdigit() or line[_HASH : _HASH + 1] != b" ":
        return None
    try:
        mark = line[:_HASH].decode("ascii")
    except UnicodeDecodeError:
        return None
    return Line(mark, int(words[0]), int(words[1]), body, words[2])
