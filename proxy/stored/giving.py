"""A kept answer as the reply to a call: whole or as a stream, at once or at the pace of an engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson
from tailrace.proxy.reply import Reply
from tailrace.proxy.stored.canonical import GENERATING
from tailrace.proxy.stored.sources import KEPT
from tailrace.proxy.stored.unfold import unfold

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.outcome import Usage
    from tailrace.proxy.stored.answer import Answer

STEP: Final = 48
"""Characters of a piece where all of them are given at once."""
_OF_TOKEN: Final = 4
"""Characters, where an answer does not say how many tokens it has."""
_TICK: Final = 0.02
EVENTS: Final = b"text/event-stream; charset=utf-8"


class Manner:
    """How a client wants its answer: as a stream, and with an event that has the usage."""

    __slots__ = ("streams", "usage")

    def __init__(self, *, streams: bool, usage: bool) -> None:
        self.streams = streams
        self.usage = usage

    @classmethod
    def of(cls, call: Call, fields: dict[str, Any]) -> Manner:
        """The manner of a request with these fields."""
        options = fields.get("stream_options") if call.stream else None
        return cls(streams=call.stream, usage=isinstance(options, dict) and options.get("include_usage") is True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manner) and (self.streams, self.usage) == (other.streams, other.usage)

    def __hash__(self) -> int:
        return hash((self.streams, self.usage))


def given(route: str, answer: Answer, manner: Manner, *, pace: float | None = None, source: str = KEPT) -> Reply | None:
    """The reply, `pace` in tokens a second; None where the answer has not the form that it should have."""
    age = [(b"age", b"%d" % max(0.0, time.time() - answer.made_at))]
    body, usage = answer.body, answer.usage
    if not manner.streams:
        return Reply(200, body, headers=age, usage=usage, source=source)
    if route not in GENERATING:
        return Reply(200, body, content_type=EVENTS, headers=age, usage=usage, source=source)
    step = STEP if pace is None else _step(body, answer.completion, pace)
    try:
        events = unfold(route, orjson.loads(body), step, usage=manner.usage)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError):
        return None
    return streamed(events, age, usage, paced=pace is not None, source=source)


def streamed(
    events: Sequence[bytes], headers: list[tuple[bytes, bytes]], usage: Usage | None, *, paced: bool, source: str
) -> Reply:
    """A reply of these events, one each tick where it is paced."""
    body = _paced(events) if paced else b"".join(events)
    return Reply(200, body, content_type=EVENTS, headers=headers, usage=usage, source=source)


def _step(body: bytes, tokens: int, pace: float) -> int:
    """How many characters a stream of so many tokens a second brings in a tick; an answer is mostly its text."""
    of_token = max(1.0, min(8.0, len(body) / tokens)) if tokens else _OF_TOKEN
    return max(1, round(of_token * pace * _TICK))


async def _paced(events: Sequence[bytes]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    due = loop.time()
    for event in events:
        yield event
        due += _TICK
        wait = due - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
