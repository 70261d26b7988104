"""For the `redact` plugin: what its taps of all APIs have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import orjson
from tailrace.plugins.redact_patterns import Patterns
from tailrace.plugins.redact_text import Arguments, Plain
from tailrace.proxy.fault import Failed, bad_answer
from tailrace.proxy.sse import Event

if TYPE_CHECKING:
    from tailrace.proxy.outcome import Outcome

Json = dict[str, Any]
LONGEST_EVENT = 4 << 20
"""Bytes of one event of a stream: it is held back until it is whole, so an endless one ends the call."""
TOO_LONG = "The answer is longer than one that is redacted as a whole may be (`limits.body`)."
_LINE_ENDS = re.compile(rb"(?:\r\n|\n|\r)")


class Text:
    """The texts of one choice, each with its scanner, and what would show them by other means."""

    __slots__ = ("_held", "_opaque", "_patterns", "scanners")

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self.scanners: dict[Hashable, Plain | Arguments] = {}
        self._held: Json = {}
        self._opaque = False

    def scanner(self, key: Hashable, kind: type[Plain | Arguments]) -> Plain | Arguments:
        """The scanner of one text."""
        found = self.scanners.get(key)
        if found is None:
            found = self.scanners[key] = kind(self._patterns)
        return found

    def scan(self, holder: Json, field: str, key: Hashable, kind: type[Plain | Arguments] = Plain) -> bool:
        """Replace a field by what is decided of it; whether that changed it."""
        text = holder.get(field)
        if not isinstance(text, str) or not text:
            return False
        holder[field] = decided = self.scanner(key, kind).feed(text)
        return decided != text

    def rest(self, key: Hashable) -> str:
        """What one text still holds back."""
        scanner = self.scanners.get(key)
        return scanner.feed("", final=True) if scanner is not None and scanner.pending else ""

    @property
    def touched(self) -> bool:
        """Whether anything of the choice was replaced."""
        return any(scanner.touched for scanner in self.scanners.values())

    @property
    def pending(self) -> bool:
        """Whether any text is held back."""
        return any(scanner.pending for scanner in self.scanners.values())

    def mask(self, holder: Json, fields: tuple[str, ...], blank: Callable[[], Any] = lambda: None) -> bool:
        """Hold back the tokens of text that is held back; from the first replacement on they are gone."""
        self._opaque = self._opaque or self.touched
        changed = False
        for field in fields:
            value = holder.get(field)
            if self._opaque or self.pending:
                if value:
                    holder[field] = blank()
                    changed = True
                    if not self._opaque:
                        self._held[field] = _joined(self._held.get(field), value)
            elif field in self._held:
                holder[field] = _joined(self._held.pop(field), value)
                changed = True
        if self._opaque:
            self._held.clear()
        return changed


def _joined(first: Any, second: Any) -> Any:
    """Token lists one after the other, within objects field by field."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, list) and isinstance(second, list):
        return first + second
    if isinstance(first, dict) and isinstance(second, dict):
        return {key: _joined(first.get(key), second.get(key)) for key in {**first, **second}}
    return second


class Redaction:
    """One answer's tap; each API overrides `edit`, `left` and `whole`."""

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns
        self._open = b""

    # What each API says.

    def edit(self, event: Event, body: Json) -> tuple[Event, ...]:
        """What goes on in place of one event."""
        raise NotImplementedError

    def left(self) -> tuple[Event, ...]:
        """Events with all that is still held back."""
        raise NotImplementedError

    def whole(self, body: Json) -> bool:
        """Change a whole unary answer; whether there was anything to change."""
        raise NotImplementedError

    # The tap.

    def feed(self, event: Event) -> tuple[Event, ...]:
        """What goes on in place of one event; a piece of a very long event waits for its end."""
        raw = event.raw
        if self._open or not raw.endswith(b"\n\n"):
            raw = self._open + raw
            if not _ended(raw):
                if len(raw) > LONGEST_EVENT:
                    self._open = b""
                    raise Failed(bad_answer(f"an event is longer than {LONGEST_EVENT} bytes"))
                self._open = raw
                return ()
            self._open = b""
            event = Event(raw)
        data = event.data
        if not data:
            return (event,)
        if data == b"[DONE]":
            return (*self.left(), event)
        body = event.json()
        if isinstance(body, dict):
            return (event,) if body.get("error") else self.edit(event, body)
        return (self._unknown(event),)

    def _unknown(self, event: Event) -> Event:
        """An event that none of these APIs has is searched as plain text."""
        text = event.data.decode("utf-8", "replace")
        changed = self.plain(text)
        return event if changed == text else event.replaced(changed.replace("\n", "\ndata: ").encode())

    def finish(self, outcome: Outcome) -> tuple[Event, ...]:
        """What is still held back where a stream ended without saying so."""
        return self.left()

    def body(self, data: bytes) -> bytes:
        """A whole unary answer."""
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError:
            return self.plain(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if isinstance(body, dict) and self.whole(body):
            return orjson.dumps(body)
        return data

    # Texts that are whole.

    def plain(self, text: str) -> str:
        """A whole text."""
        return Plain(self.patterns).feed(text, final=True)

    def plain_in(self, holder: Json, field: str) -> bool:
        """A whole text in a field; whether it was changed."""
        text = holder.get(field)
        if not isinstance(text, str):
            return False
        holder[field] = self.plain(text)
        return bool(holder[field] != text)

    def arguments_in(self, holder: Json, field: str) -> bool:
        """Whole arguments in a field, as JSON text or as the object itself; whether they were changed."""
        value = holder.get(field)
        text = value if isinstance(value, str) else orjson.dumps(value).decode() if isinstance(value, dict) else ""
        scanner = Arguments(self.patterns)
        replaced = scanner.feed(text, final=True)
        if scanner.touched:
            holder[field] = replaced if isinstance(value, str) else orjson.loads(replaced)
        return scanner.touched


class Whole:
    """An answer that is no stream and comes in pieces: it is collected, up to `limit` bytes, and sent at its end."""

    def __init__(self, redaction: Redaction, limit: int) -> None:
        self._redaction = redaction
        self._room = limit
        self._pieces: list[bytes] = []

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Collect a piece."""
        self._room -= len(event.raw)
        if self._room < 0:
            self._pieces.clear()
            raise Failed(bad_answer("").but(message=TOO_LONG))
        self._pieces.append(event.raw)
        return ()

    def finish(self, outcome: Outcome) -> tuple[Event, ...]:
        """The whole answer."""
        return (Event(self._redaction.body(b"".join(self._pieces))),) if self._pieces else ()

    def body(self, data: bytes) -> bytes:
        """A unary answer that came whole."""
        return self._redaction.body(data)


def place(value: Any) -> Hashable:
    """An index as it keys a table, whatever an engine may have sent in its place."""
    return value if value is None or isinstance(value, int | str) else repr(value)


def objects(value: Any) -> list[Json]:
    """The objects of a list, none where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _ended(raw: bytes) -> bool:
    """Whether an event has its empty line."""
    ends = raw[len(raw.rstrip(b"\r\n")) :]
    return len(ends) == len(raw) or len(_LINE_ENDS.findall(ends)) >= 2
