"""Adds, sets and removes headers: of requests on their way to workers, and of answers on their way to clients.

What it may not touch is what the relay itself decides: framing, hop-by-hop headers, the body's type and coding, and the
headers that say who the client is. A client's credentials stay here; a credential that is `set` is a fixed value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.proxy import headers as rules
from tailrace.proxy.config import At, setting
from tailrace.proxy.plugin import Plugin

if TYPE_CHECKING:
    from tailrace.proxy.call import Call
    from tailrace.proxy.head import Head
    from tailrace.proxy.reply import Reply

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OF_THE_BODY = frozenset({"content-type", "content-encoding", "content-length"})
_OF_THE_RELAY = frozenset({"host", "expect", "x-request-id", "accept-encoding", "date"})
_FORWARDED = ("x-forwarded-", "x-tailrace-")
_REMEMBERED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes to the headers of one direction; removed first, then set, then added."""

    remove: tuple[str, ...] = setting(default=(), help="names of headers that do not go on")
    set: dict[str, str] = setting(default_factory=dict, help="headers with this value in place of any they had")
    add: dict[str, str] = setting(default_factory=dict, help="headers with this value beside any they have")

    def check(self) -> Iterable[At]:
        """Faults of names and values."""
        removed = (("remove", number, name) for number, name in enumerate(self.remove))
        changed = ((key, name, name) for key in ("set", "add") for name in getattr(self, key))
        for key, step, name in (*removed, *changed):
            if not _NAME.fullmatch(name):
                yield At(f"'{name}' is no header name", key, step)
            elif why := _forbidden(name.lower()):
                yield At(f"'{name}' cannot be changed: {why}", key, step)
        for key, changes in (("set", self.set), ("add", self.add)):
            seen: dict[str, str] = {}
            for name, value in changes.items():
                if not _VALUE.fullmatch(value) or value != value.strip(" \t"):
                    text = f"the value of '{name}' must be one line of Latin-1 text without blanks around it"
                    yield At(text, key, name)
                if (other := seen.setdefault(name.lower(), name)) != name:
                    yield At(f"'{name}' is the same header as '{other}'", key, name)


def _forbidden(low: str) -> str | None:
    if low in _OF_THE_BODY:
        return "it describes the body, which stays as it is"
    if low.encode() in rules.HOP_BY_HOP:
        return "it is about one connection"
    if low in _OF_THE_RELAY or low.startswith(_FORWARDED):
        return "the relay itself decides it"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Changes in each direction."""

    request: Changes = setting(default_factory=Changes, help="requests on their way to workers")
    answer: Changes = setting(default_factory=Changes, help="answers on their way to clients, refusals too")

    def check(self) -> Iterable[At]:
        """A credential beside the one that a worker gets anyway would be ambiguous."""
        for name in self.request.add:
            if rules.request_rule(name.encode("ascii", "replace")) == rules.CREDENTIAL:
                text = f"'{name}' is a credential; `set` it, or give the pool an `api_key`"
                yield At(text, "request", "add", name)


_Config = Config  # inside the class the name means its attribute


class Headers(Plugin[Config]):
    """Both directions; the request's changes are made once a head, not once a request."""

    Config = Config

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        request, answer = config.request, config.answer
        self._dropped = _low(request.remove) | _low(request.set)
        self._lines = _lines(request.set) + _lines(request.add)
        self._changed: dict[bytes, bytes] = {}
        self._removed = _low(answer.remove) | _low(answer.set)
        self._appended = [*_pairs(answer.set), *_pairs(answer.add)]

    def on_request(self, call: Call) -> Reply | None:
        """Replace the lines that go on to workers."""
        if self._dropped or self._lines:
            lines = call.head.forwarded
            changed = self._changed.get(lines)
            if changed is None:
                changed = self._change(lines)
            call.head = call.head.forwarding(changed)
        return None

    def _change(self, lines: bytes) -> bytes:
        kept = [line for line in lines.splitlines(keepends=True) if _name_of(line) not in self._dropped]
        changed = b"".join(kept) + self._lines
        if len(self._changed) >= _REMEMBERED:
            self._changed.clear()
        self._changed[lines] = changed
        return changed

    def on_answer(self, call: Call, head: Head) -> None:
        """Change the head in place."""
        removed = self._removed
        if removed:
            head.headers = [pair for pair in head.headers if pair[0] not in removed]
        head.headers.extend(self._appended)


def _name_of(line: bytes) -> bytes:
    return line.partition(b":")[0].lower()


def _low(names: Iterable[str]) -> frozenset[bytes]:
    return frozenset(name.lower().encode() for name in names)


def _pairs(changes: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in changes.items()]


def _lines(changes: Mapping[str, str]) -> bytes:
    return b"".join([b"%b: %b\r\n" % (name.encode(), value.encode("latin-1")) for name, value in changes.items()])
