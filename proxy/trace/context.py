"""The W3C trace context of one call: which trace it is part of, and the ids of its spans.

Spans are made when a call is over, if at all, but their ids are sent to workers while it runs. So they are derived: the
ids of a call's own span and of its attempts' begin alike, and end with the number of the attempt, 0 for its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from random import getrandbits
from typing import Any, Final

PARENT_HEADER: Final = b"traceparent"
STATE_HEADER: Final = b"tracestate"
SAMPLED: Final = 1
_RANDOM: Final = 2
_KNOWN: Final = SAMPLED | _RANDOM
"""Flags that nobody knows yet are not passed on."""
_THIS: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_LATER: Final = re.compile(r"(?!ff|00)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-[\x21-\x7e]*)?")
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
_LINE_FEED: Final = 10
_NUMBERS: Final[list[str]] = [f"{number:02x}" for number in range(256)]
_FLAGS: Final[list[str]] = [f"{flags:02x}" for flags in range(4)]
DRAWN: Final = 46
"""Hexadecimal digits of a new trace and of what its call's spans have in common."""
_COMMON: Final = 14

Keep = Callable[[tuple[Any, ...]], None]
Phase = tuple[str, str, int, int]
"""A plugin, the phase of it that took long, when that began and how long it took: nanoseconds."""


class TraceContext:
    """One call's part of a trace.

    `parent` is the caller's span, empty where it named none; `keep` takes the call's record when it is over, None where
    it is not kept, and `why` says what it is kept for. `phases` is filled for calls whose plugins are timed.
    """

    __slots__ = ("call_id", "flags", "keep", "parent", "phases", "spans", "trace_id", "why")

    def __init__(self, call_id: str, trace_id: str, spans: str, parent: str, flags: int) -> None:
        self.call_id = call_id
        self.trace_id = trace_id
        self.spans = spans
        """What the ids of its spans begin with."""
        self.parent = parent
        self.flags = flags
        self.keep: Keep | None = None
        self.why = ""
        self.phases: list[Phase] | None = None

    def span_id(self, number: int = 0) -> str:
        """The id of the call's own span or, for its number, of an attempt's."""
        return span_id(self.spans, number)

    def line(self, number: int) -> bytes:
        """What the worker of an attempt is told, as a header line."""
        flags, numbered = _FLAGS[self.flags], _NUMBERS[number & 255]
        return f"traceparent: 00-{self.trace_id}-{self.spans}{numbered}-{flags}\r\n".encode()


def drawn() -> str:
    """A new trace id, and behind it what the ids of its call's spans begin with; that these are zero never comes up."""
    return getrandbits(4 * DRAWN).to_bytes(DRAWN // 2, "big").hex()


def drawn_spans() -> str:
    """What the ids of a call's spans begin with, in a trace that is there."""
    return getrandbits(4 * _COMMON).to_bytes(_COMMON // 2, "big").hex()


def span_id(spans: str, number: int) -> str:
    """The id that begins so, of the call itself or of an attempt."""
    return spans + _NUMBERS[number & 255]


def parse(value: bytes) -> tuple[str, str, int] | None:
    """Trace, span and flags of a `traceparent`; None for what the recommendation calls invalid."""
    text = value.decode("latin-1")
    found = _THIS.fullmatch(text) or _LATER.fullmatch(text)
    if found is None:
        return None
    trace_id, span_id, flags = found.groups()
    if trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return trace_id, span_id, int(flags, 16) & _KNOWN


def without(name: bytes, lines: bytes) -> tuple[bytes, int]:
    """Header lines less those of a name, given in lower case with its colon, and how many those were."""
    low = lines.lower()
    at = low.find(name)
    if at < 0:
        return lines, 0
    if low.find(name, at + 1) < 0 and (at == 0 or low[at - 1] == _LINE_FEED):
        return lines[:at] + lines[low.find(b"\n", at) + 1 :], 1
    split = lines.splitlines(keepends=True)
    kept = [line for line in split if not line.lower().startswith(name)]
    return b"".join(kept), len(split) - len(kept)


CURRENT: Final[ContextVar[TraceContext | None]] = ContextVar("tailrace_trace", default=None)
"""That of the call in whose context code runs: for log lines. Each call has a context of its own that ends with it."""
