"""Has another model or another pool answer where the one that was asked for cannot, in the order of a list.

Which entry counts depends on what went wrong. Answers say in a header where they come from, and are billed as what they
are: by the model that served.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

from tailrace.proxy.allowing import MAX_TRIES
from tailrace.proxy.config import AtLeast, AtMost, Matching, NotEmpty, setting
from tailrace.proxy.elsewhere import Elsewhere, first_of, unknown_models
from tailrace.proxy.fault import Whose
from tailrace.proxy.headers import safe_value
from tailrace.proxy.plugin import Key, Plugin, Target
from tailrace.proxy.repeatable import repeatable, seen

if TYPE_CHECKING:
    from tailrace.proxy.attempt import Attempt
    from tailrace.proxy.call import Call
    from tailrace.proxy.fault import Fault
    from tailrace.proxy.head import Head
    from tailrace.proxy.outcome import Outcome

Trouble = Literal["unavailable", "overloaded", "lost", "timeout", "error"]
_BY_KIND: Final[Mapping[str, Trouble]] = {
    "no_worker": "unavailable",
    "unavailable": "unavailable",
    "shutting_down": "unavailable",
    "drained": "unavailable",
    "connect_failed": "unavailable",
    "overloaded": "overloaded",
    "connection_lost": "lost",
    "false_end": "lost",
    "suspect": "lost",
}
_INSTEAD: Final = 0
"""The number of what is no attempt: a reply."""


def trouble_of(fault: Fault) -> Trouble | None:
    """What kind of trouble a fault is; None where another model would not help its caller."""
    if fault.whose is Whose.CLIENT:
        return None
    if fault.kind in _BY_KIND:
        return _BY_KIND[fault.kind]
    if fault.kind.endswith("_timeout"):
        return "timeout"
    return "overloaded" if fault.status in (429, 503) else "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Elsewhere):
    """Where to go, and for what trouble."""

    on: tuple[Trouble, ...] = setting(
        default=("unavailable", "overloaded", "lost", "timeout", "error"),
        help="for which trouble: no worker that takes calls; all that were asked too busy; connections that were lost; "
        "limits that passed; other errors",
    )

    def serves(self, fault: Fault) -> bool:
        """Whether it is meant for such a fault."""
        return trouble_of(fault) in self.on


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Where calls go that fail, and when."""

    to: Annotated[tuple[Choice, ...], NotEmpty()] = setting(help="the first that can be had is taken, each once")
    after: Annotated[int, AtLeast(1), AtMost(MAX_TRIES - 1)] = setting(
        default=1,
        help="so many attempts of a call must have failed, unless no worker takes it at all",
        why="a retry before it needs an attempt more, of three in all",
    )
    header: Annotated[str, Matching(r"[A-Za-z0-9-]+", "the name of a header")] | None = setting(
        default="x-tailrace-fallback", help="the header of answers that says where they come from; null for none"
    )

    def remark(self, models: Collection[str]) -> Iterator[str]:
        """Models that are not there."""
        return unknown_models(self.to, models)


_Config = Config  # inside the class the name means its attribute


class Fallback(Plugin[Config]):
    """Names the next choice after a fault, and marks what it answered."""

    Config = Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self._header = None if config.header is None else config.header.lower().encode()
        self._named: Key[dict[int, str]] = Key("fallback")
        """What the attempts that were to be made elsewhere are shown as, by their numbers."""
        self._asked = {choice.shown: 0 for choice in config.to}
        self._answered = dict(self._asked)

    def next_target(self, call: Call, tries: Sequence[Attempt], fault: Fault) -> Target | None:
        """The first choice that is meant for this fault and can be had."""
        if call.pinned is not None or (fault.kind != "no_worker" and len(tries) < self.config.after):
            return None
        # A worker may have seen it: elsewhere it would be done a second time.
        if seen(tries) and not repeatable(call):
            return None
        found = first_of(self.config.to, call, tries, fault, "fallback")
        if found is None:
            return None
        choice, target = found
        if self._named not in call:
            call[self._named] = {}
        call[self._named][_INSTEAD if target.reply is not None else len(tries) + 1] = choice.shown
        if target.reply is not None and self._header is not None:
            target.reply.head.set(self._header, safe_value(choice.shown))
        return target

    def on_answer(self, call: Call, head: Head) -> None:
        """Say where the answer comes from."""
        if self._header is None or self._named not in call or call.race is None:
            return
        winner = call.race.winner
        if winner is not None and winner.why == "fallback":
            shown = call[self._named].get(winner.number)
            if shown is not None:
                head.set(self._header, safe_value(shown))

    def on_complete(self, call: Call, outcome: Outcome) -> None:
        """Count what was asked elsewhere and what was answered there; not every choice that is named can be had."""
        if self._named not in call:
            return
        named = call[self._named]
        for attempt in call.tries:
            shown = named.get(attempt.number) if attempt.why == "fallback" else None
            if shown is not None:
                self._asked[shown] += 1
                self._answered[shown] += attempt.first_content_ns > 0
        if call.source and _INSTEAD in named:
            self._asked[named[_INSTEAD]] += 1
            self._answered[named[_INSTEAD]] += 1

    def metrics(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """How often each choice was asked, and how often it answered."""
        for shown, count in self._asked.items():
            yield "asked_total", {"to": shown}, count
            yield "answered_total", {"to": shown}, self._answered[shown]
