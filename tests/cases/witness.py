"""A plugin that writes down what it is told, and a tap that writes down what it sees."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.proxy.attempt import Attempt
from tailrace.proxy.call import Call
from tailrace.proxy.head import Head
from tailrace.proxy.outcome import AttemptEnd, Outcome
from tailrace.proxy.plugin import Plugin
from tailrace.proxy.sse import Event, Splitter


@dataclass(frozen=True)
class Config:
    pass


class Witness(Plugin[Config]):
    """Counts heads, ends of attempts and ends of calls; adds no tap, so that the relay passes chunks as they come."""

    Config = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.heads: list[tuple[str, int]] = []
        self.attempts: list[Attempt] = []
        self.ends: list[AttemptEnd] = []
        self.outcomes: list[Outcome] = []
        self.calls: list[Call] = []

    def on_answer(self, call: Call, head: Head) -> None:
        self.heads.append((call.id, head.status))

    def on_attempt_end(self, call: Call, attempt: Attempt, end: AttemptEnd) -> None:
        self.attempts.append(attempt)
        self.ends.append(end)

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.calls.append(call)


class EventWatch:
    """Cuts the bytes it sees into events."""

    def __init__(self) -> None:
        self._splitter = Splitter()
        self.bytes = b""
        self.events: list[Event] = []
        self.outcomes: list[Outcome] = []

    def feed(self, data: bytes) -> None:
        self.bytes += data
        self.events += self._splitter.feed(data)

    def finish(self, outcome: Outcome) -> None:
        self.events += self._splitter.finish()
        self.outcomes.append(outcome)


class EventEdit:
    """Passes every event on as it is, having seen it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.outcomes: list[Outcome] = []

    def feed(self, event: Event) -> tuple[Event, ...]:
        self.events.append(event)
        return (event,)

    def finish(self, outcome: Outcome) -> tuple[Event, ...]:
        self.outcomes.append(outcome)
        return ()

    def body(self, data: bytes) -> bytes:
        return data


class Tapped(Witness):
    """A witness with one tap of each kind on every answer."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.watches: list[EventWatch] = []
        self.edits: list[EventEdit] = []

    def on_stream(self, call: Call, head: Head) -> EventWatch:
        self.watches.append(EventWatch())
        return self.watches[-1]


class Editing(Tapped):
    """The same with an edit in place of the watch."""

    def on_stream(self, call: Call, head: Head) -> EventEdit:  # type: ignore[override]
        self.edits.append(EventEdit())
        return self.edits[-1]


class HoldingEdit(EventEdit):
    """Holds every event back until the end."""

    def feed(self, event: Event) -> tuple[Event, ...]:
        self.events.append(event)
        return ()

    def finish(self, outcome: Outcome) -> tuple[Event, ...]:
        self.outcomes.append(outcome)
        return tuple(self.events)


class Holding(Tapped):
    """The same with an edit that holds everything back."""

    def on_stream(self, call: Call, head: Head) -> EventEdit:  # type: ignore[override]
        self.edits.append(HoldingEdit())
        return self.edits[-1]
