"""What of a stream may go on without being read as events: chunks that are whole events with nothing to be looked for.

Most differ from one that was looked at in their text alone, and in the usage so far where that is asked for. They are
the path that a token takes; all else goes the way of `StreamRelay.on_data`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.proxy.answers import choices_asked
from tailrace.proxy.pattern import Metered, Pattern, Traced
from tailrace.proxy.wire import SIZES, unframe

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.dialects import Dialect
    from tailrace.proxy.harvest import Harvest
    from tailrace.proxy.rescue.trail import Trail
    from tailrace.proxy.taps import Taps

LESSONS: Final = 4
"""How often a stream's pattern is learnt: the first chunks of a stream are unlike the rest."""
_END: Final = b"\n\n\r\n"
_IDS: Final = b'"token_ids":['


def passage_of(call: Call, taps: Taps | None) -> Passage | None:
    """The one for an answer's stream, None where all its events are to be read."""
    dialect, harvest = call.route.dialect, call.harvest
    assert dialect is not None
    if taps is None:
        return Passage(dialect)
    trail = call.trail
    if harvest is not None and taps.lean and trail is not None:
        return TracedPassage(dialect, harvest, trail)
    if harvest is not None and taps.lean and choices_asked(call) == 1:
        return MeteredPassage(dialect, harvest)
    return None


class Passage:
    """That of one stream, all of whose bytes the client may see."""

    __slots__ = ("_dialect", "_lessons", "_pattern")

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._lessons = LESSONS
        self._pattern: Pattern | None = None

    def passed(self, chunks: bytes, count: int) -> bytes | None:
        """What goes on of whole chunks, None where their events have to be read."""
        if count > 1:
            data = unframe(chunks)
            return chunks if data.endswith(b"\n\n") and self._dialect.silent(data) else None
        pattern = self._pattern
        if pattern is not None and pattern.fits(chunks):
            return chunks
        if not chunks.endswith(_END) or not self._dialect.silent(chunks):
            return None
        if self._lessons:
            self._lessons -= 1
            self._pattern = Pattern.of(chunks, self._dialect.mark)
        return chunks


class MeteredPassage(Passage):
    """That of one stream whose usage is wanted: it is noted, and taken out where the client did not ask for it."""

    __slots__ = ("_harvest", "_metered")

    def __init__(self, dialect: Dialect, harvest: Harvest) -> None:
        super().__init__(dialect)
        self._harvest = harvest
        self._metered: Metered | None = None

    def passed(self, chunks: bytes, count: int) -> bytes | None:
        """What goes on of whole chunks, None where their events have to be read."""
        if count == 1:
            return self._one(chunks)
        undo = self._undo()
        at, passed = 0, []
        while at < len(chunks):
            line_end = chunks.find(b"\r\n", at)
            end = line_end + 4 + SIZES.get(chunks[at:line_end], 0)
            chunk = self._one(chunks[at:end])
            if chunk is None:
                undo()  # they will be read as events, and counted then
                return None
            passed.append(chunk)
            at = end
        return b"".join(passed)

    def _undo(self) -> Callable[[], None]:
        """What forgets all that is noted from now on."""
        harvest, pieces = self._harvest, self._harvest.pieces

        def undo() -> None:
            harvest.pieces = pieces

        return undo

    def _one(self, chunk: bytes) -> bytes | None:
        harvest = self._harvest
        metered = self._metered
        if metered is not None:
            passed = metered.passed(chunk, harvest)
            if passed is not None:
                return passed
        pattern = self._pattern
        if pattern is not None and pattern.fits(chunk):
            harvest.pieces += 1
            return chunk
        if self._lessons and chunk.endswith(_END) and self._dialect.silent(chunk):
            self._lessons -= 1
            return self._learnt(chunk)
        return None

    def _learnt(self, chunk: bytes) -> bytes | None:
        """Learn from a chunk; what goes on of it."""
        mark, harvest = self._dialect.mark, self._harvest
        if chunk.find(b'"usage"') >= 0:
            self._metered = Metered.of(chunk, mark, keeps=not harvest.strip_running)
            if self._metered is None or not harvest.running:
                self._metered = None
                return None
            return self._metered.passed(chunk, harvest)
        self._pattern = None if chunk.find(mark + b'"') >= 0 else Pattern.of(chunk, mark)
        if self._pattern is None:
            return None
        harvest.pieces += 1
        return chunk


class TracedPassage(MeteredPassage):
    """That of one stream that may be continued elsewhere: the ids of its tokens are noted."""

    __slots__ = ("_trace", "_trail")

    def __init__(self, dialect: Dialect, harvest: Harvest, trail: Trail) -> None:
        super().__init__(dialect, harvest)
        self._trail = trail
        self._trace: Traced | None = None

    def _undo(self) -> Callable[[], None]:
        trail, harvest = self._trail, self._harvest
        ids, clean, text, beyond = len(trail.ids), trail.clean, len(trail.text), trail.beyond
        pieces = harvest.pieces

        def undo() -> None:
            # What the harvest has noted of it is noted anew.
            trail.rewind(ids, clean, text)
            trail.beyond = beyond
            harvest.pieces = pieces

        return undo

    def _one(self, chunk: bytes) -> bytes | None:
        trace, trail = self._trace, self._trail
        if trace is not None:
            passed = trace.passed(chunk, self._harvest, trail)
            if passed is not None:
                return passed
        if trail.obstacle and not trail.sample and chunk.find(_IDS) < 0:
            # Its engine gives no ids: all that is left to know is how much came.
            return MeteredPassage._one(self, chunk)
        if self._lessons and trail.sample and chunk.endswith(_END) and self._dialect.silent(chunk):
            self._lessons -= 1
            self._trace = Traced.of(chunk, self._dialect.mark, keeps=not trail.strips)
            if self._trace is not None:
                return self._trace.passed(chunk, self._harvest, trail)
        return None
