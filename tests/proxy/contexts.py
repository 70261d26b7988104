"""Plugins that note in whose context each of their phases runs."""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import orjson
from tailrace.proxy.plugin import Plugin, Target, Verdict

WHOSE: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody")
LATEST: contextvars.ContextVar[str] = contextvars.ContextVar("latest", default="")


@dataclass(frozen=True)
class Config:
    tap: str = ""
    """`edit` or `watch`."""
    patience: float = 9.0
    retries: bool = False


class Tap:
    """Notes whose context its calls come in."""

    def __init__(self, call):
        self.call = call

    def feed(self, given):
        All.note("feed", self.call)
        LATEST.set("fed")
        return (given,)

    def finish(self, outcome):
        All.note("tap finish", self.call)
        return ()


class EditTap(Tap):
    def body(self, data):
        All.note("body", self.call)
        return data


class All(Plugin[Config]):
    """Every phase; the first says whose the context is, the others look."""

    Config = Config
    seen: dict[str, set[tuple[str, str]]]

    @staticmethod
    def note(phase, call):
        All.seen.setdefault(call.id, set()).add((phase, WHOSE.get()))

    def on_open(self, call):
        self.note("open", call)
        WHOSE.set(call.id)

    async def on_request(self, call):
        self.note("request", call)

    def score_workers(self, call, candidates):
        self.note("score", call)
        return [1.0] * len(candidates)

    def on_chosen(self, call, attempt):
        self.note("chosen", call)
        return True

    def on_attempt_end(self, call, attempt, end):
        self.note("attempt end", call)

    def on_answer(self, call, head):
        self.note("answer", call)

    def on_complete(self, call, outcome):
        self.note("complete", call)
        self.note(LATEST.get(), call)


class Steering(All):
    """What else steers attempts before one has content."""

    def patience(self, call, tries):
        self.note("patience", call)
        return self.config.patience

    def next_target(self, call, tries, fault):
        self.note("target", call)
        return Target() if self.config.retries else None

    def allow(self, call, tries, why):
        self.note("allow", call)
        LATEST.set(why)
        return True


class Judging(Steering):
    """And what looks at it."""

    def judge(self, call, attempt, prefix):
        self.note("judge", call)
        return Verdict.COMMIT if len(prefix) > 1 else Verdict.WAIT


class TapsOnly(All):
    """With a tap on every answer."""

    def on_stream(self, call, head):
        self.note("stream", call)
        return EditTap(call) if self.config.tap == "edit" else Tap(call)


class Tapping(TapsOnly, Judging):
    """All there is."""


@contextmanager
def watching() -> Iterator[dict[str, set[tuple[str, str]]]]:
    All.seen = {}
    yield All.seen
    for call_id, notes in All.seen.items():
        assert ("open", "nobody") in notes, "a request began with the context of another"
        assert ("complete", call_id) in notes
        strangers = {note for note in notes if note[1] != call_id and note != ("open", "nobody")}
        assert not strangers


def listed(plugin: str, **config: object) -> str:
    return f"[{{{__name__}:{plugin}: {orjson.dumps(config).decode()}}}]"


def phases(notes: set[tuple[str, str]]) -> set[str]:
    return {phase for phase, _ in notes}


class Value:
    """Something whose end can be seen."""


class Keeping(Plugin[Config]):
    """Puts a value of its own into the context of every call."""

    Config = Config
    value: contextvars.ContextVar[Value] = contextvars.ContextVar("value")
    latest: weakref.ref[Value]

    def on_open(self, call):
        Keeping.value.set(value := Value())
        Keeping.latest = weakref.ref(value)
