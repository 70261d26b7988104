"""What the chunks of one stream have in common: text between a lead and a trail that stay the same.

An engine's events differ in one string. Where a chunk has the lead and the trail of one that was looked at before, and
no quote between them, the string is all that differs: whatever the dialect looks for, it is not there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tailrace.proxy.rescue.trail import IDS, NO_IDS
from tailrace.proxy.usage import COMPLETION, TOTAL, entry_of, usage_in

if TYPE_CHECKING:
    from tailrace.proxy.harvest import Harvest
    from tailrace.proxy.rescue.trail import Trail

# A number: bytes look for a number at once, and for bytes only after they have failed to read them as one.
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
# Formatting takes longer than all else that is done with a chunk.
_KNOWN: Final = 8192
_DIGITS: Final = [b"%d" % number for number in range(_KNOWN)]
_SIZE_LINES: Final = [b"%x\r\n" % size for size in range(_KNOWN)]
_NUMBER: Final = re.compile(rb"\s*:\s*(\d{1,9})")
_NUMBERS: Final = re.compile(
    rb'("total_tokens"|"completion_tokens")\s*:\s*(\d{1,9})\b.*?("total_tokens"|"completion_tokens")\s*:\s*(\d{1,9})\b'
)


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
        return None if end < 0 else cls(at, chunk[at:begin], chunk[end:])


class Metered:
    """The same of chunks that end with the usage so far: it is read, and taken out unless the client asked for it.

    `fixed` is what stands between text, first number, second number and end; `close` what is left of that without the
    usage.
    """

    __slots__ = (
        "_before",
        "_behind",
        "_between",
        "_cached",
        "_close",
        "_completion",
        "_keeps",
        "_lead",
        "_prompt",
        "_total_first",
    )

    def __init__(
        self,
        lead: bytes,
        fixed: tuple[bytes, bytes, bytes],
        close: bytes,
        prompt: int,
        cached: int,
        *,
        total_first: bool,
        keeps: bool,
    ) -> None:
        self._lead = lead
        self._before, self._between, self._behind = fixed
        self._close = close
        self._prompt = prompt
        self._cached = cached
        self._total_first = total_first
        self._keeps = keeps
        self._completion = 0

    def passed(self, chunk: bytes, harvest: Harvest) -> bytes | None:
        """What of a chunk goes on; None where it differs from the learnt one in more than its text and its numbers."""
        # The usual token is one more than the last.
        completion = self._completion + 1
        tail = self._tail(completion)
        if not chunk.endswith(tail):
            completion = _number_behind(chunk, COMPLETION)
            if completion < 0:
                return None
            tail = self._tail(completion)
            if not chunk.endswith(tail):
                return None
        lead = self._lead
        at = chunk.find(b"\n") + 1
        begin = at + len(lead)
        end = len(chunk) - len(tail)
        if end < begin or chunk[at:begin] != lead or _QUOTE in chunk[begin:end]:
            return None
        self._completion = completion
        harvest.note(self._prompt, completion, self._cached)
        if self._keeps:
            return chunk
        close = self._close
        size = end - at + len(close) - 2
        line = _SIZE_LINES[size] if size < _KNOWN else b"%x\r\n" % size
        return b"".join([line, chunk[at:end], close])

    def _tail(self, completion: int) -> bytes:
        first, second = self._prompt + completion, completion
        if not self._total_first:
            first, second = second, first
        return b"".join([self._before, _digits(first), self._between, _digits(second), self._behind])

    @classmethod
    def of(cls, chunk: bytes, mark: bytes, *, keeps: bool) -> Metered | None:
        """The pattern of a chunk that is one event whose text begins behind `mark` and whose usage ends it."""
        pattern = Pattern.of(chunk, mark)
        entry = entry_of(chunk)
        usage = usage_in(chunk)
        if pattern is None or entry is None or usage is None:
            return None
        begin = chunk.find(mark) + len(mark)
        text_end = chunk.find(b'"', begin)
        found = _NUMBERS.search(chunk, entry.start(), entry.end())
        if entry.start() < text_end or found is None:
            return None
        total_first = found.group(1) == TOTAL
        fixed = chunk[text_end : found.start(2)], chunk[found.end(2) : found.start(4)], chunk[found.end(4) :]
        close = chunk[text_end : entry.start()] + chunk[entry.end() :]
        lead = chunk[chunk.find(b"\n") + 1 : begin]
        learnt = cls(lead, fixed, close, usage.prompt, usage.cached, total_first=total_first, keeps=keeps)
        return learnt if chunk.endswith(learnt._tail(usage.completion)) else None


class Traced:
    """The same of chunks that end with the ids of their tokens: they are noted, and taken out unless the client asked.

    `seam` is what stands between text and ids, `close` what is left behind the text without them.
    """

    __slots__ = ("_behind", "_close", "_keeps", "_lead", "_seam")

    def __init__(self, lead: bytes, seam: bytes, behind: bytes, close: bytes, *, keeps: bool) -> None:
        self._lead = lead
        self._seam = seam
        self._behind = behind
        self._close = close
        self._keeps = keeps

    def passed(self, chunk: bytes, harvest: Harvest, trail: Trail) -> bytes | None:
        """What of a chunk goes on; None where it differs from the learnt one in more than its text and its ids."""
        lead, seam = self._lead, self._seam
        at = chunk.find(b"\n") + 1
        begin = at + len(lead)
        if chunk[at:begin] != lead or not chunk.endswith(self._behind):
            return None
        end = chunk.rfind(seam)
        if end < begin or _QUOTE in chunk[begin:end]:
            return None
        if trail.keeps_text:
            trail.text += chunk[begin:end]
        trail.add(chunk[end + len(seam) : len(chunk) - len(self._behind)], shows=end > begin)
        harvest.note(trail.prompt, len(trail.ids) + trail.beyond, harvest.cached)
        if self._keeps:
            return chunk
        close = self._close
        size = end - at + len(close) - 2
        line = _SIZE_LINES[size] if size < _KNOWN else b"%x\r\n" % size
        return b"".join([line, chunk[at:end], close])

    @classmethod
    def of(cls, chunk: bytes, mark: bytes, *, keeps: bool) -> Traced | None:
        """The pattern of a chunk that is one event with text behind `mark`, and behind that the ids of its tokens."""
        pattern = Pattern.of(chunk, mark)
        ids = IDS.search(chunk)
        if pattern is None or ids is None:
            return None
        begin = chunk.find(mark) + len(mark)
        text_end = chunk.find(b'"', begin)
        # A quote within the text is no end of it.
        if ids.start() < text_end or chunk[text_end - 1] == _BACKSLASH:
            return None
        seam, behind = chunk[text_end : ids.start(1)], chunk[ids.end(1) :]
        close = chunk[text_end : ids.start()] + NO_IDS + chunk[ids.end() :]
        return cls(chunk[chunk.find(b"\n") + 1 : begin], seam, behind, close, keeps=keeps)


def _digits(number: int) -> bytes:
    return _DIGITS[number] if number < _KNOWN else b"%d" % number


def _number_behind(chunk: bytes, name: bytes) -> int:
    """The number that is the value of a name's last occurrence, -1 where it has none."""
    at = chunk.rfind(name)
    if at < 0:
        return -1
    found = _NUMBER.match(chunk, at + len(name))
    return int(found.group(1)) if found is not None else -1
