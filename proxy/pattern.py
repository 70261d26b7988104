"""What the chunks of one stream have in common: text between a lead and a trail that stay the same.

An engine's events differ in one string. Where a chunk has the lead and the trail of one that was looked at before, and
no quote between them, the string is all that differs: whatever the dialect looks for, it is not there.
"""

from __future__ import annotations

from typing import Final

# A number: bytes look for a number at once, and for bytes only after they have failed to read them as one.
_QUOTE: Final = ord('"')


class Pattern:
    """One chunk's bytes before and behind its text, from the end of its size line on."""

    __slots__ = ("_at", "_lead", "_start", "_trail")

    def __init__(self, at: int, lead: bytes, trail: bytes) -> None:
        self._at = at
        self._lead = lead
        self._start = at + len(lead)
        self._trail = trail

    def fits(self, chunk: bytes) -> bool:
        """Whether a chunk differs from the learnt one in its text only."""
        end = len(chunk) - len(self._trail)
        return (
            end >= self._start
            and chunk.endswith(self._trail)
            and chunk[self._at : self._start] == self._lead
            and _QUOTE not in chunk[self._start : end]
        )

    @classmethod
    def of(cls, chunk: bytes, mark: bytes) -> Pattern | None:
        """The pattern of a chunk that is one event with nothing special in it, whose text begins behind `mark`."""
        at = chunk.find(b"\n") + 1
        begin = chunk.find(mark, at)
        if begin < 0 or chunk.find(b"\n\n", at) != len(chunk) - 4:
            return None
        begin += len(mark)
        end = chunk.find(b'"', begin)
        return cls(at, chunk[at:begin], chunk[end:])
