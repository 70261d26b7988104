"""Replaces what looks like a secret or a person's data in answers: text, reasoning and the arguments of tool calls.

A stream is searched as one text per choice, however it is cut: what may be the beginning of a match is held back until
it is decided, so an event's text may arrive with a later one. Events, their order and their number stay, but for a last
delta where a text ends while something is held back. Where a choice was touched, its log probabilities and token ids
are removed, because they spell the text. What has to be held until it is whole is bounded: an answer that is no stream
by `limits.body`, one event by 4 MiB; one beyond that is cut off. Requests, input that an engine echoes outside the
answer's text, and paths that are passed through are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tailrace.plugins.redact_chat import Choices
from tailrace.plugins.redact_messages import Messages
from tailrace.plugins.redact_patterns import Patterns
from tailrace.plugins.redact_prefix import analysed
from tailrace.plugins.redact_responses import Responses
from tailrace.plugins.redact_stream import TOO_LONG, Redaction, Whole
from tailrace.proxy.config import At, AtLeast, AtMost, setting
from tailrace.proxy.fault import Reject, Whose
from tailrace.proxy.personal import BUILT_IN, Named
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import Head
    from tailrace.proxy.plugin import Tap

_TAPS: dict[str, type[Redaction]] = {
    "chat": Choices,
    "completions": Choices,
    "messages": Messages,
    "responses": Responses,
}

_FIELD = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is replaced, and by what."""

    patterns: tuple[Named, ...] = setting(
        default=("email", "credit_card", "us_ssn", "iban", "api_key"),
        help="patterns by name",
        why="addresses of hosts and phone numbers look like much else",
    )
    own: dict[str, str] = setting(
        default_factory=dict, help="own regular expressions by name; they are trusted, as code is"
    )
    replacement: str = setting(default="[{name}]", help="what is put in place; {name} is the pattern's name")
    longest: Annotated[int, AtLeast(256), AtMost(4096)] = setting(
        default=256, help="the most characters that a match may have", why="so much of a stream may be held back"
    )

    def check(self) -> Iterable[str | At]:
        """Nothing to do."""
        if not self.patterns and not self.own:
            yield "there is nothing to replace: give `patterns` or `own`"

    def check_replacement(self) -> Iterable[At]:
        """Names that nothing is put in for."""
        for field in _FIELD.findall(self.replacement):
            if field != "{name}":
                yield At(f"{field} stands for nothing: {{name}} is the one that is replaced", "replacement")

    def check_own(self) -> Iterable[At]:
        """Faults of the expressions."""
        for name, pattern in self.own.items():
            if name in BUILT_IN:
                yield At(f"'{name}' is the name of a built-in pattern", "own", name)
            try:
                analysed(pattern, self.longest)
            except ValueError as error:
                yield At(str(error), "own", name)


_Config = Config  # inside the class the name means its attribute


class Redact(Plugin[Config]):
    """An editing tap on every answer that holds generated text."""

    Config = Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        named = [(name, *BUILT_IN[name]) for name in config.patterns]
        own = [(name, pattern, None) for name, pattern in config.own.items()]
        shown = [(config.replacement.replace("{name}", name), *rest) for name, *rest in (*named, *own)]
        self._patterns = Patterns(shown, config.longest)  # type: ignore[arg-type]

    def on_stream(self, call: Call, head: Head) -> Tap | None:
        """A tap for the answer's API; raises Reject for an answer that cannot be read."""
        dialect = call.route.dialect
        if dialect is None:
            return None
        if head.get(b"content-encoding") not in (None, b"identity"):
            text = "The worker's answer is compressed and could not be redacted."
            raise Reject(502, "bad_upstream_answer", text, whose=Whose.ENGINE, kind="bad_answer")
        redaction = _TAPS[dialect.name](self._patterns)
        streamed = (head.get(b"content-type") or b"").lower().startswith(b"text/event-stream")
        winner = call.race.winner if call.race is not None else None
        if not streamed and winner is not None and not winner.ended:
            # The core holds as much of it as it may, and it is not whole yet.
            raise Reject(502, "bad_upstream_answer", TOO_LONG, whose=Whose.ENGINE, kind="bad_answer")
        return redaction if streamed else Whole(redaction, call.chain.limits.body)
