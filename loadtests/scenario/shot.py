"""One request of a scenario and what came of it, its text included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openloop.record import Outcome, Record


@dataclass(frozen=True, slots=True)
class Heard:
    """What a client was told: the text, why it ended, and what it is charged for."""

    text: str
    reason: str | None
    usage: tuple[int, int] | None


@dataclass(slots=True)
class Shot(Record):
    """A request with a known right answer."""

    load: str = ""
    prompt: int = 0
    door: int = 0
    """Which of the gateways it went to."""
    pieces: list[str] = field(default_factory=list)
    reason: str | None = None
    usage: tuple[int, int] | None = None
    ids: set[str] = field(default_factory=set)

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take in an event of its stream."""
        if answer_id := event.get("id"):
            self.ids.add(answer_id)
        for choice in event.get("choices") or ():
            text = (choice.get("delta") or {}).get("content")
            if text:
                self.pieces.append(text)
            self.reason = choice.get("finish_reason") or self.reason
        if used := event.get("usage"):
            self.usage = (used["prompt_tokens"], used["completion_tokens"])

    @property
    def heard(self) -> Heard:
        return Heard("".join(self.pieces), self.reason, self.usage)

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def refused(self) -> bool:
        """Turned away in good order, and told when to come again."""
        return self.outcome is Outcome.HTTP_ERROR and self.status in (429, 503) and bool(self.retry_after)

    @property
    def failed(self) -> bool:
        return not self.ok and not self.refused

    def wrong(self, right: Heard) -> str:
        """In what it differs from the right answer; empty where it does not, or was no whole answer."""
        if not self.ok or (self.heard == right and len(self.ids) == 1):
            return ""
        heard = self.heard
        if heard.text != right.text:
            at = next((at for at, (a, b) in enumerate(zip(heard.text, right.text, strict=False)) if a != b), None)
            return f"text, {len(heard.text)} for {len(right.text)} characters, first difference at {at}"
        if heard.reason != right.reason:
            return f"finish_reason {heard.reason} for {right.reason}"
        return f"usage {heard.usage} for {right.usage}" if heard.usage != right.usage else f"{len(self.ids)} ids"
