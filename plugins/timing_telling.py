"""What `timing` tells of a call's stages: in the head of its answer, and before the last event of its stream."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from tailrace.proxy.dialects import Sign
from tailrace.proxy.sse import Event
from tailrace.proxy.stages import Told, engine_told, stages_of

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import Head
    from tailrace.proxy.outcome import Outcome

_HEADER: Final = b"server-timing"
_ASKED: Final = b"x-tailrace-timing"
_METRICS: Final = b'"metrics"'


class Telling:
    """Who is told, as the settings say."""

    __slots__ = ("_comments", "_heads")

    def __init__(self, *, heads: bool, comments: bool) -> None:
        self._heads = heads
        self._comments = comments

    def answered(self, call: Call, head: Head) -> None:
        """Say what is known so far, in place of what a worker says of itself."""
        if self._heads:
            told = stages_of(call, monotonic_ns()).told()
            if head.get(_HEADER) is not None:
                head.remove(_HEADER)
            head.headers.append((_HEADER, told))

    def closing(self, call: Call, head: Head) -> Closing | None:
        """Look through the stream of a client that asked."""
        if not call.stream or not self._comments or call.route.dialect is None:
            return None
        asked = call.head.folded.get(_ASKED)
        return Closing(call) if asked is not None and asked.lower() == b"on" else None


class Closing:
    """Puts a comment before the last event of one stream."""

    __slots__ = ("_call", "_engine", "_told")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._engine: Told | None = None
        self._told = False

    def feed(self, event: Event) -> tuple[Event, ...]:
        """The event, behind the comment if it is the last."""
        raw = event.raw
        if raw.find(_METRICS) >= 0:
            self._engine = engine_told(raw) or self._engine
        dialect = self._call.route.dialect
        if self._told or dialect is None or dialect.judge(event) is not Sign.DONE:
            return (event,)
        return self._comment(), event

    def _comment(self) -> Event:
        self._told = True
        return Event(b": server-timing " + stages_of(self._call, monotonic_ns(), self._engine).told() + b"\n\n")

    def finish(self, outcome: Outcome) -> Iterable[Event]:
        """A stream without a last event of its own is whole all the same."""
        return () if self._told else (self._comment(),)

    def body(self, data: bytes) -> bytes:
        """An answer that is no stream says it in its head."""
        return data
