"""Answers that carry the name the client asked for, where a model entry says `rename: true`."""

from __future__ import annotations

from tailrace.proxy.body import JsonBody
from tailrace.proxy.fault import Reject
from tailrace.proxy.outcome import Outcome
from tailrace.proxy.sse import Event

_NESTED = ("message", "response")
_ANY_DEPTH = 1 << 30


class Rename:
    """An Edit that stands behind every plugin's tap and changes nothing but the `model` field."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Rename in one event."""
        if b'"model"' not in event.raw:
            return (event,)
        data = event.data
        renamed = self._renamed(data)
        return (event,) if renamed is data else (event.replaced(renamed),)

    def finish(self, outcome: Outcome) -> tuple[Event, ...]:
        """Nothing is held back."""
        return ()

    def body(self, data: bytes) -> bytes:
        """Rename in a whole answer."""
        return self._renamed(data)

    def _renamed(self, data: bytes) -> bytes:
        try:
            body = JsonBody(data, _ANY_DEPTH)
        except Reject:
            return data
        if body.has("model"):
            body.edit("model", self._name)
        for name in _NESTED:
            inner = body.written(name)
            if inner is None:
                continue
            before = bytes(inner)
            after = self._renamed(before) if before.startswith(b"{") else before
            if after is not before:
                body.edit(name, after)
        return body.render() if body.edited else data
